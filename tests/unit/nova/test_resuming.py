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
"""Servers that are resumed when what they wait for is there again."""

from unittest import mock

from tests.unit.nova import needs  # Before Nova itself, which may be missing.

import libvirt

from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import resuming
from diffcache_openstack.nova import volume_waits

RUNNING = (libvirt.VIR_DOMAIN_RUNNING, 1)
FAILED = (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR)
UNSPECIFIED = libvirt.VIR_DOMAIN_DISK_ERROR_UNSPEC
NO_SPACE = libvirt.VIR_DOMAIN_DISK_ERROR_NO_SPACE
BY_USER = (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER)


class TestResumer(needs.NovaTest):

    def setUp(self):
        super().setUp()
        self.client = mock.Mock()
        self.client.ssd_cache.side_effect = exceptions.ServiceUnavailable(
            'the cache does not run')
        self.guest = mock.Mock(uuid='a-server')
        self.domain = self.guest._domain
        self.domain.state.return_value = FAILED
        self.domain.diskErrors.return_value = {'vdb': 1}
        self.domain.XMLDesc.return_value = '''
<domain><devices>
<disk type='file'><source file='/x'/><target dev='vda'/></disk>
<disk type='network'><source protocol='nbd' name='e1'>
 <host transport='unix' socket='/run/nbd'/></source>
 <target dev='vdb'/></disk>
<disk type='network'><source protocol='nbd' name='e'>
 <host name='h' port='1'/></source><target dev='vdc'/></disk>
<disk type='network'><source protocol='rbd' name='e'/>
 <target dev='vdd'/></disk>
</devices></domain>'''
        self.other = mock.Mock(what='something else')
        self.other.disks.return_value = ['vda']
        self.other.is_over.return_value = False
        self.waits = (volume_waits.VolumeWait(self.client), self.other)
        self.resumer = resuming.Resumer(lambda: [self.guest], self.waits)

    def listen(self, *losses):
        self.client.ssd_cache.side_effect = None
        self.client.ssd_cache.return_value = {'volumes': {
            'v1': {'export': 'e1', 'losses': list(losses)},
            'v2': {'export': 'e2', 'losses': [[0, 4096]]}}}

    def assertResumed(self, times):
        self.resumer.look()
        self.assertEqual(times, self.domain.resume.call_count)

    def test_it_waits_until_the_cache_runs(self):
        self.assertResumed(0)
        self.listen()
        self.assertResumed(1)
        # The volume is not served by the cache that runs now.
        self.client.ssd_cache.return_value = {'volumes': {}}
        self.assertResumed(1)

    def test_one_whose_storage_lost_blocks_stays_paused(self):
        """QEMU would repeat the flush, and it would go on without them."""
        self.listen([1 << 20, 4096])
        with self.assertLogs(volume_waits.LOG, 'ERROR') as logs:
            self.assertResumed(0)
            self.assertResumed(0)
        [line] = logs.output
        for words in ('Server a-server stays paused', 'volume v1',
                      '4096 bytes at 1048576', '--accept-loss v1',
                      'reboot --hard a-server'):
            self.assertIn(words, line)
        self.listen()
        self.assertResumed(1)

    def test_other_states_are_left_alone(self):
        self.listen()
        for state in (RUNNING, BY_USER):
            self.domain.state.return_value = state
            self.assertResumed(0)

    def test_errors_of_other_disks_are_left_alone(self):
        self.listen()
        self.other.is_over.return_value = True
        for errors in ({}, {'vdd': 1}, {'vdb': 1, 'vdd': 1}, {'vdc': 1}):
            self.domain.diskErrors.return_value = errors
            self.assertResumed(0)

    def test_all_waits_have_to_be_over(self):
        self.domain.diskErrors.return_value = {'vda': UNSPECIFIED,
                                               'vdb': UNSPECIFIED}
        self.other.is_over.return_value = True
        self.assertResumed(0)
        self.listen()
        self.other.is_over.return_value = False
        self.assertResumed(0)
        self.other.is_over.return_value = True
        self.assertResumed(1)
        self.other.is_over.assert_called_with(
            self.guest, self.domain.XMLDesc(0), {'vda'})

    def test_a_disk_without_space_is_left_alone(self):
        self.listen()
        self.domain.diskErrors.return_value = {'vdb': NO_SPACE}
        self.assertResumed(0)

    def test_what_cannot_be_looked_at_keeps_no_other_from_it(self):
        self.other.is_over.side_effect = exceptions.PermanentError('refused')
        failing = mock.Mock(uuid='failing')
        failing._domain.state.return_value = FAILED
        failing._domain.diskErrors.return_value = {'vda': UNSPECIFIED}
        failing._domain.XMLDesc = self.domain.XMLDesc
        self.listen()
        self.resumer = resuming.Resumer(lambda: [failing, self.guest],
                                        self.waits)
        self.assertResumed(1)
        failing._domain.resume.assert_not_called()

    def test_a_server_that_ends_meanwhile(self):
        self.listen()
        gone = mock.Mock(uuid='gone')
        gone._domain.state.side_effect = libvirt.libvirtError('gone')
        self.resumer = resuming.Resumer(lambda: [gone, self.guest],
                                        self.waits)
        self.assertResumed(1)
