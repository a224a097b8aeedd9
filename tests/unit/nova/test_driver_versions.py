#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.
"""The driver has servers saved where Nova stops or removes them."""

import types
from unittest import mock

# Before Nova itself, which may be missing.
from tests.unit.nova import needs  # noqa: F401

from nova.compute import manager
from nova.compute import task_states
from nova import exception
from nova.virt.libvirt import driver as libvirt_driver

from diffcache_openstack.nova import driver
from tests.unit.nova import test_driver


class Agent:
    """An agent that answers as a test says."""

    def __init__(self, order):
        self.answer = {'version': 'v', 'required': False, 'error': None}
        self._order = order

    def save_server(self, server_id, wish, stall_timeout):
        self._order.append(wish['trigger'])
        return self.answer


class HooksTest(test_driver.DriverTest):

    def setUp(self):
        super().setUp()
        self.order = []
        self.agent = Agent(self.order)
        self.patch(driver.local_client, 'LocalClient',
                   return_value=self.agent)
        for name in ('power_off', 'power_on', 'reboot', 'destroy', 'snapshot',
                     'migrate_disk_and_power_off', '_create_guest', 'rescue',
                     'resume_state_on_host_boot'):
            self.patch(libvirt_driver.LibvirtDriver, name,
                       side_effect=lambda *_, name=name: self.order.append(
                           name))
        self.driver = self.load()
        self.instance = types.SimpleNamespace(
            uuid='a-server', project_id='p', image_ref='', task_state=None)

    def required(self):
        self.agent.answer = {'version': None, 'required': True,
                             'error': 'no space'}

    def test_saved_after_it_was_shut_down(self):
        self.instance.task_state = task_states.POWERING_OFF
        self.driver.power_off(self.instance, 60, 10)
        self.assertEqual(['power_off', 'shutdown'], self.order)

    def test_one_that_is_off_stays_so_whether_it_was_saved_or_not(self):
        # Regression: Nova took it for running, and stopped it again and again.
        self.required()
        self.instance.task_state = task_states.POWERING_OFF
        self.driver.power_off(self.instance)
        self.assertEqual(['power_off', 'shutdown'], self.order)

    def test_not_when_it_is_off_for_a_moment_only(self):
        self.instance.task_state = task_states.RESIZE_MIGRATING
        self.driver.power_off(self.instance)
        self.assertEqual(['power_off'], self.order)

    def test_saved_before_it_is_deleted(self):
        self.instance.task_state = task_states.DELETING
        self.driver.destroy(None, self.instance, None)
        self.assertEqual(['delete', 'destroy'], self.order)

    def test_what_has_to_be_saved_stays(self):
        self.required()
        self.instance.task_state = task_states.DELETING
        # Regression: after another error Nova removes its ports.
        self.assertRaises(exception.InstancePowerOffFailure,
                          self.driver.destroy, None, self.instance, None)
        self.assertEqual(['delete'], self.order)

    def test_one_whose_volume_cannot_leave_keeps_its_network(self):
        self.patch(libvirt_driver.LibvirtDriver, 'destroy',
                   side_effect=exception.VolumeDetachFailed(
                       volume_id='v', reason='dirty'))
        self.instance.task_state = task_states.DELETING
        error = self.assertRaises(exception.InstancePowerOffFailure,
                                  self.driver.destroy, None, self.instance,
                                  None)
        self.assertIn('dirty', str(error))

    def test_nova_keeps_the_network_of_a_server_that_stays(self):
        self.required()
        self.instance.task_state = task_states.DELETING
        self.instance.get_network_info = lambda: ['port']
        nova = mock.MagicMock(driver=self.driver)
        self.assertRaises(
            exception.InstancePowerOffFailure,
            manager.ComputeManager._shutdown_instance, nova, mock.Mock(),
            self.instance, [], notify=False)
        nova._try_deallocate_network.assert_not_called()

    def test_not_when_its_disks_stay_or_it_never_started(self):
        self.instance.task_state = task_states.DELETING
        self.driver.destroy(None, self.instance, None,
                            destroy_disks=False)
        self.instance.task_state = task_states.SPAWNING
        self.driver.destroy(None, self.instance, None)
        self.assertEqual(['destroy', 'destroy'], self.order)

    def test_disk_in_the_middle_of_a_restore_is_not_started(self):
        folder = self.instances / 'a-server'
        folder.mkdir()
        with mock.patch.object(driver.libvirt_utils, 'get_instance_path',
                               return_value=str(folder)):
            self.driver.power_on(None, self.instance, None)
            self.driver.reboot(None, self.instance, None, 'HARD')
            (folder / 'disk.rollback').touch()
            error = self.assertRaises(
                exception.InstancePowerOnFailure, self.driver.power_on,
                None, self.instance, None)
            self.assertRaises(
                exception.InstanceRebootFailure, self.driver.reboot,
                None, self.instance, None, 'HARD', share_info=[])
            self.assertIn('middle of a restore', str(error))
            self.assertEqual(['power_on', 'reboot'], self.order)
            # Regression: Nova took half a disk to another host, or to Glance.
            error = self.assertRaises(
                exception.InstanceFaultRollback,
                self.driver.migrate_disk_and_power_off, None, self.instance,
                'host', None, None)
            self.assertIn('middle of a restore', str(error.inner_exception))
            self.assertRaises(
                exception.NovaException, self.driver.snapshot, None,
                self.instance, 'image', None)
            self.assertRaises(
                exception.InstancePowerOnFailure, self.driver._create_guest,
                None, '<domain/>', self.instance)
            self.assertRaises(
                exception.InstanceNotRescuable, self.driver.rescue, None,
                self.instance, None, None, 'password', None)
            self.assertRaises(
                exception.InstancePowerOnFailure,
                self.driver.resume_state_on_host_boot, None, self.instance,
                None)
            self.assertEqual(['power_on', 'reboot'], self.order)
            (folder / 'disk.rollback').unlink()
            self.driver.migrate_disk_and_power_off(
                None, self.instance, 'host', None, None)
            self.driver.snapshot(None, self.instance, 'image', None)
            self.driver._create_guest(None, '<domain/>', self.instance)
        self.assertEqual(['migrate_disk_and_power_off', 'snapshot',
                          '_create_guest'], self.order[2:])
