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
"""Servers with volumes that bypass QEMU."""

import os
import types
from unittest import mock

# Before Nova itself, which may be missing.
from tests.unit.nova import needs  # noqa: F401

from nova import exception
from nova.objects import flavor
import nova.virt.libvirt.driver

from diffcache_openstack.nova import guest_paths
from diffcache_openstack.nova import volumes_driver
from tests.unit.nova import test_driver
from tests.unit.nova import test_guest_disks

VOLUME = test_guest_disks.OTHER
NOVA = nova.virt.libvirt.driver.LibvirtDriver


class VhostTest(test_driver.DriverTest):

    def setUp(self):
        super().setUp()
        self.driver = self.load()
        self.get_guest = self.patch(self.driver._host, 'get_guest')
        self.guest = self.get_guest.return_value
        self.guest._domain.XMLDesc.return_value = test_guest_disks.DOCUMENT
        self.client = self.patch(self.driver._volumes, 'client')
        self.server = types.SimpleNamespace(
            uuid='a-server', numa_topology=None,
            flavor=flavor.Flavor(extra_specs={}))


class TestRefused(VhostTest):

    def test_a_live_migration_before_it_starts(self):
        own = self.patch(NOVA, 'check_can_live_migrate_source')
        error = self.assertRaises(
            exception.MigrationPreCheckError,
            self.driver.check_can_live_migrate_source, None, self.server,
            'data')
        for word in ('a-server', VOLUME, 'vhost-user', 'cold'):
            self.assertIn(word, str(error))
        own.assert_not_called()
        self.client.drain_volume.assert_not_called()

    def test_one_that_was_checked_before_it_had_the_volume(self):
        own, recover = self.patch(NOVA, 'live_migration'), mock.Mock()
        with self.assertLogs(volumes_driver.LOG, 'ERROR') as logs:
            self.driver.live_migration(None, self.server, 'dest', 'post',
                                       recover, False, 'data')
        self.assertIn(VOLUME, logs.output[0])
        recover.assert_called_once_with(None, self.server, 'dest', 'data')
        own.assert_not_called()

    def test_a_copy_to_another_volume(self):
        own = self.patch(NOVA, 'swap_volume')
        old = {'serial': VOLUME, 'data': {}}
        error = self.assertRaises(
            exception.VolumeRebaseFailed, self.driver.swap_volume, None, old,
            'new', self.server, '/dev/vdd', 0)
        self.assertIn(VOLUME, str(error))
        own.assert_not_called()


class TestStart(VhostTest):

    def start(self):
        return self.driver._create_guest(None, test_guest_disks.DOCUMENT,
                                         self.server, pause=True)

    def test_with_volumes_that_are_there(self):
        own = self.patch(NOVA, '_create_guest', return_value='guest')
        exists = self.patch(os.path, 'exists', side_effect=[False, True])
        self.patch(guest_paths.time, 'sleep')
        self.assertEqual('guest', self.start())
        self.assertEqual(2, exists.call_count)
        own.assert_called_once_with(None, test_guest_disks.DOCUMENT,
                                    self.server, pause=True)

    def test_without_a_volume(self):
        """Regression: QEMU waited for its socket for ever."""
        own = self.patch(NOVA, '_create_guest')
        self.patch(guest_paths, '_SOCKET_SECONDS', -1)
        error = self.assertRaises(exception.InstancePowerOnFailure,
                                  self.start)
        self.assertIn(VOLUME, str(error))
        own.assert_not_called()


class TestEnd(VhostTest):

    def test_the_cache_learns_that_its_server_ended(self):
        self.client.ssd_cache.return_value = {'volumes': {
            'a': {'export': 'e4', 'losses': [[0, 4096]]}}}
        self.patch(NOVA, '_destroy')
        self.driver._destroy(self.server)
        self.client.end_volume_guest.assert_called_once_with('a')


class TestExtend(VhostTest):

    def test_a_running_server_sees_it_without_qemu(self):
        self.guest.is_active.return_value = True
        self.patch(self.driver, '_extend_volume', return_value=1 << 30)
        own = self.patch(NOVA, 'extend_volume')
        self.driver.extend_volume(None, {'serial': VOLUME, 'data': {}},
                                  self.server, 1 << 30)
        self.client.resize_volume.assert_called_once_with(VOLUME)
        own.assert_not_called()


class TestMemory(VhostTest):

    def want(self):
        self.server.flavor.extra_specs = {'diffcache:shared_memory': 'true'}

    def assert_keeps_nbd(self, words):
        self.assertIn(words, self.driver._nbd_reason(self.server))

    def test_a_server_that_was_started_before(self):
        """Regression: a disk that is added does not connect again."""
        self.assert_keeps_nbd('not shared')
        self.want()
        self.assert_keeps_nbd('hard reboot')

    def test_one_that_is_started(self):
        self.get_guest.side_effect = exception.InstanceNotFound(
            instance_id='i')
        self.assert_keeps_nbd('not shared')
        self.want()
        self.assertIsNone(self.driver._nbd_reason(self.server))
        self.server.flavor.extra_specs = {}
        self.set('file_backed_memory', 1024, 'libvirt')
        self.assertIsNone(self.driver._nbd_reason(self.server))

    def test_one_that_was_powered_off(self):
        """As for a resize on its host."""
        self.want()
        self.guest.is_active.return_value = False
        self.assertIsNone(self.driver._nbd_reason(self.server))

    def test_many_nodes(self):
        self.guest.is_active.return_value = False
        self.want()
        self.server.numa_topology = types.SimpleNamespace(cells=[None] * 4)
        self.patch(self.driver, '_wants_hugepages', return_value=False)
        self.assertIsNone(self.driver._nbd_reason(self.server))
        self.server.numa_topology.cells.append(None)
        self.assert_keeps_nbd('NUMA')

    def test_huge_pages(self):
        self.get_guest.side_effect = exception.InstanceNotFound(
            instance_id='i')
        self.patch(self.driver, '_get_host_numa_topology')
        pages = self.patch(self.driver, '_wants_hugepages',
                           return_value=False)
        self.server.numa_topology = types.SimpleNamespace(cells=[None])
        self.assert_keeps_nbd('not shared')
        pages.return_value = True
        self.assertIsNone(self.driver._nbd_reason(self.server))

    def test_its_backing(self):
        own = self.patch(NOVA, '_get_guest_memory_backing_config',
                         return_value=None)
        build = self.driver._get_guest_memory_backing_config
        self.assertIsNone(build(None, None, self.server.flavor, 'image'))
        self.want()
        self.assertTrue(build(None, None, self.server.flavor,
                              'image').sharedaccess)
        own.assert_called_with(None, None, self.server.flavor, 'image')
