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
"""Running servers whose base image arrives."""

import os
import unittest
from unittest import mock

try:
    import libvirt
    import libvirt_qemu  # noqa: F401
except ImportError as error:
    raise unittest.SkipTest('libvirt-python is not installed') from error

from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import lazy_guests
from diffcache_openstack.nova import tallies
from tests import base
from tests.unit.nova import test_base_nodes as nodes


class GuestsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.base = self.directory / 'b'
        self.tally = tallies.Tally(self.directory / 'images.json')
        self.document = nodes.DOCUMENT.replace('/instances/_base/b',
                                               str(self.base))
        self.opened = self.patch(lazy_guests.base_nodes, 'open_anew')
        self.guest = self.new_guest('one', 1)

    def patch(self, *words, **more):
        patcher = mock.patch.object(*words, **more)
        self.addCleanup(patcher.stop)
        return patcher.start()

    def new_guest(self, uuid, number):
        guest = mock.Mock(uuid=uuid)
        guest._domain.ID.return_value = number
        guest._domain.XMLDesc.return_value = self.document
        guest._domain.jobInfo.return_value = [libvirt.VIR_DOMAIN_JOB_NONE]
        guest._domain.blockJobInfo.return_value = {}
        return guest

    def counts(self):
        return self.tally.summary()['lazy']


class TestLeavers(GuestsTest):

    def setUp(self):
        super().setUp()
        self.guests = [self.guest]
        self.leavers = lazy_guests.Leavers(lambda: self.guests, self.tally)

    def leave(self):
        return self.leavers.leave(self.base)

    def test_each_start_of_a_server_opens_the_file_once(self):
        self.assertTrue(self.leave())
        self.assertTrue(self.leave())
        self.assertEqual({'left': 1}, self.counts())
        [call] = self.opened.call_args_list
        self.assertEqual(('vda', str(self.base)),
                         (call.args[1].device, call.args[1].base))
        self.guests.append(self.new_guest('two', 2))
        self.assertTrue(self.leave())
        self.guest._domain.ID.return_value = 3
        self.assertTrue(self.leave())
        self.assertEqual({'left': 3}, self.counts())

    def test_servers_of_other_images_are_left_alone(self):
        self.assertTrue(self.leavers.leave(self.directory / 'another'))
        self.opened.assert_not_called()

    def test_not_while_the_server_migrates_or_its_disk_is_copied(self):
        domain = self.guest._domain
        domain.jobInfo.return_value = [libvirt.VIR_DOMAIN_JOB_UNBOUNDED]
        self.assertFalse(self.leave())
        domain.jobInfo.return_value = [libvirt.VIR_DOMAIN_JOB_NONE]
        domain.blockJobInfo.return_value = {'type': 2}
        self.assertFalse(self.leave())
        self.opened.assert_not_called()
        domain.blockJobInfo.return_value = {}
        self.assertTrue(self.leave())

    def test_what_fails_is_done_again(self):
        for error in (exceptions.PermanentError('in use'),
                      exceptions.ServiceUnavailable('ended')):
            self.opened.side_effect = error
            self.assertFalse(self.leave())
        self.opened.side_effect = None
        self.assertTrue(self.leave())
        self.assertEqual({'left': 1}, self.counts())

    def test_a_server_that_ends_meanwhile(self):
        self.guest._domain.XMLDesc.side_effect = libvirt.libvirtError('gone')
        self.assertFalse(self.leave())
        self.guests.clear()
        self.assertTrue(self.leave())


class TestLazyWait(GuestsTest):

    def setUp(self):
        super().setUp()
        self.served = {'path': '/mount/id', 'present': 3}
        os.symlink(self.served['path'], self.base)
        self.client = mock.Mock()
        self.client.lazy.side_effect = lambda: [self.served]
        self.now = 1000.0
        self.patch(lazy_guests.time, 'monotonic', lambda: self.now)
        self.wait = lazy_guests.LazyWait(self.client, self.tally)

    def is_over(self, after=0.0, guest=None):
        self.now += after
        return self.wait.is_over(guest or self.guest, self.document, {'vda'})

    def test_only_disks_that_stop_their_server(self):
        self.assertEqual(['vda'], self.wait.disks(self.document))

    def test_a_server_is_resumed_with_its_base_opened_anew(self):
        self.assertTrue(self.is_over())
        [call] = self.opened.call_args_list
        self.assertEqual('vda', call.args[1].device)
        self.assertEqual({'stopped': 1, 'resumed': 1}, self.counts())

    def test_again_at_once_when_more_has_arrived(self):
        self.assertTrue(self.is_over())
        self.assertFalse(self.is_over(2))
        self.served['present'] += 1
        self.assertTrue(self.is_over(2))
        # As a file it has all.
        self.base.unlink()
        self.assertTrue(self.is_over(2))
        self.assertFalse(self.is_over(2))
        self.assertEqual({'stopped': 1, 'resumed': 3}, self.counts())

    def test_now_and_then_when_nothing_has_arrived(self):
        self.assertTrue(self.is_over())
        self.client.lazy.side_effect = exceptions.ServiceUnavailable('down')
        self.assertTrue(self.is_over(2))
        waits = []
        for _ in range(6):
            waits.append(0)
            while not self.is_over(1):
                waits[-1] += 1
        self.assertEqual([14, 29, 59, 119, 239, 299], waits)
        # An error of next day is another one.
        self.assertTrue(self.is_over(86400))
        self.assertEqual(2, self.counts()['stopped'])

    def test_a_base_that_cannot_be_opened_is_tried_again_soon(self):
        self.opened.side_effect = exceptions.PermanentError('not mounted')
        self.assertRaises(exceptions.PermanentError, self.is_over)
        self.assertFalse(self.is_over(2))
        self.assertRaises(exceptions.PermanentError, self.is_over, 4)
        self.opened.side_effect = None
        self.assertTrue(self.is_over(11))
        self.assertEqual({'stopped': 1, 'resumed': 1}, self.counts())

    def test_each_server_has_its_own_pause(self):
        self.assertTrue(self.is_over())
        self.assertTrue(self.is_over(guest=self.new_guest('two', 2)))
