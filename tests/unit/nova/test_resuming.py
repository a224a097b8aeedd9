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

import socket
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
        self.path = str(self.directory / 'nbd.sock')
        self.guest = mock.Mock(uuid='a-server')
        self.domain = self.guest._domain
        self.domain.state.return_value = FAILED
        self.domain.diskErrors.return_value = {'vdb': 1}
        self.domain.XMLDesc.return_value = f'''
<domain><devices>
<disk type='file'><source file='/x'/><target dev='vda'/></disk>
<disk type='network'><source protocol='nbd' name='e'>
 <host transport='unix' socket='{self.path}'/></source>
 <target dev='vdb'/></disk>
<disk type='network'><source protocol='nbd' name='e'>
 <host name='h' port='1'/></source><target dev='vdc'/></disk>
<disk type='network'><source protocol='rbd' name='e'/>
 <target dev='vdd'/></disk>
</devices></domain>'''
        self.other = mock.Mock(what='something else')
        self.other.disks.return_value = ['vda']
        self.other.is_over.return_value = False
        self.waits = (volume_waits.VolumeWait(), self.other)
        self.resumer = resuming.Resumer(lambda: [self.guest], self.waits)

    def listen(self):
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(self.path)
        server.listen()
        return server

    def assertResumed(self, times):
        self.resumer.look()
        self.assertEqual(times, self.domain.resume.call_count)

    def test_it_waits_until_the_cache_runs(self):
        self.assertResumed(0)
        server = self.listen()
        self.assertResumed(1)
        server.close()  # The socket of one that was killed.
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
