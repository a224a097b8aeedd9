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
import socket
from unittest import mock

from tests.unit.nova import needs  # Before Nova itself, which may be missing.

import libvirt

from diffcache_openstack.nova import volume_waits

RUNNING = (libvirt.VIR_DOMAIN_RUNNING, 1)
FAILED = (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR)
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
        self.resumer = volume_waits.Resumer(lambda: [self.guest])

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
        for errors in ({}, {'vda': 1}, {'vda': 1, 'vdb': 1}, {'vdc': 1}):
            self.domain.diskErrors.return_value = errors
            self.assertResumed(0)

    def test_a_server_that_ends_meanwhile(self):
        self.listen()
        gone = mock.Mock(uuid='gone')
        gone._domain.state.side_effect = libvirt.libvirtError('gone')
        self.resumer = volume_waits.Resumer(lambda: [gone, self.guest])
        self.assertResumed(1)
