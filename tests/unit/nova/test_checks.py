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
"""Mistakes in nova.conf that stop nova-compute, and those that must not."""

import os
import socket

from oslo_config import cfg

from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import checks
from diffcache_openstack.nova import options
from tests import base


class TestChecks(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        # The options of Nova that are looked at, with their defaults.
        self.conf.register_opts([
            cfg.BoolOpt('force_raw_images', default=True),
            cfg.StrOpt('state_path', default=str(self.directory))])
        self.conf.register_opts([
            cfg.StrOpt('images_type', default='default'),
            cfg.StrOpt('virt_type', default='kvm')], group='libvirt')
        options.register_compute_opts(self.conf)
        self.conf([])
        self.socket = self.directory / 'agent.sock'
        self.set('socket', str(self.socket))

    def set(self, name, value, group='diffcache'):
        self.conf.set_override(name, value, group)

    def listen(self):
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(str(self.socket))
        server.listen()

    def assertRefused(self, *parts):
        error = self.assertRaises(exceptions.InvalidInput, checks.check,
                                  self.conf)
        for part in parts:
            self.assertIn(part, str(error))

    def test_a_right_configuration(self):
        self.listen()
        for images_type in checks.IMAGES_TYPES:
            self.set('images_type', images_type, 'libvirt')
            checks.check(self.conf)

    def test_a_misspelt_option(self):
        self.listen()
        path = self.directory / 'nova.conf'
        path.write_text(f'[diffcache]\nsocket = {self.socket}\n'
                        f'cost_timeout = 1\n[other]\nx = 1\n')
        self.conf(['--config-file', str(path)])
        checks.check(self.conf)
        path.write_text('[diffcache]\nfalback = error\n')
        self.assertRefused(str(path), "'falback'", "'fallback'")

    def test_backends_without_base_images(self):
        self.listen()
        for images_type in ('rbd', 'lvm', 'ploop'):
            self.set('images_type', images_type, 'libvirt')
            self.assertRefused('[libvirt] images_type', images_type, 'qcow2')

    def test_containers(self):
        self.set('virt_type', 'lxc', 'libvirt')
        self.assertRefused('[libvirt] virt_type', 'lxc')

    def test_base_images_that_stay_qcow2(self):
        self.set('force_raw_images', False, None)
        self.assertRefused('[DEFAULT] force_raw_images')

    def test_no_socket(self):
        self.set('socket', None)
        self.assertRefused('[diffcache] socket is not set', '[agent] socket')

    def test_a_socket_without_a_full_path(self):
        self.set('socket', 'agent.sock')
        self.assertRefused('[diffcache] socket', 'absolute')

    def test_a_socket_whose_path_is_too_long(self):
        self.set('socket', '/' + 'x' * 107)
        self.assertRefused('[diffcache] socket', '107')

    def test_a_socket_where_no_agent_ever_is(self):
        self.set('socket', str(self.directory / 'nowhere' / 'agent.sock'))
        self.assertRefused('[diffcache] socket', 'nowhere')

    def test_a_file_instead_of_a_socket(self):
        self.socket.write_text('')
        self.assertRefused('[diffcache] socket', 'no socket')

    def test_an_agent_that_is_not_up_yet(self):
        checks.check(self.conf)
        # Its socket may be there from before.
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(self.socket))
        server.close()
        checks.check(self.conf)

    def test_a_socket_of_others(self):
        if os.geteuid() == 0:
            self.skipTest('root may connect to any socket')
        self.listen()
        self.socket.chmod(0)
        self.assertRefused('[diffcache] socket', '[agent] socket_group')

    def test_counts_that_cannot_be_kept(self):
        self.listen()
        self.set('state_file', str(self.directory / 'nowhere' / 'x.json'))
        self.assertRefused('[diffcache] state_file', 'nowhere')
        self.set('state_file', 'x.json')
        self.assertRefused('[diffcache] state_file', 'absolute')
