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
"""Options that suffice for reaching a service, and those that do not."""

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keystone
from diffcache_openstack.conf import opts
from tests import base

PASSWORD = ('[nova]\nauth_type = password\nauth_url = http://127.0.0.1:1/v3\n'
            'username = u\npassword = p\nproject_name = s\n'
            'user_domain_name = d\nproject_domain_name = d\n')


class TestSession(base.TestCase):

    def config(self, text):
        return opts.new_config(files=[
            str(self.write_file('conf', text.encode()))])

    def test_endpoint_and_retries(self):
        conf = self.config(PASSWORD + 'region_name = north\n')
        self.assertEqual({
            'service_type': 'compute', 'interface': ['internal', 'public'],
            'region_name': 'north', 'connect_retries': 1,
            'status_code_retries': 2},
            keystone.adapter_options(conf, 'nova'))
        self.assertIsInstance(keystone.session(conf, 'nova'),
                              keystone.Session)

    def test_a_service_that_hangs_does_not_block_forever(self):
        for group in ('nova', 'glance'):
            conf = self.config(PASSWORD.replace('[nova]', f'[{group}]'))
            self.assertGreater(keystone.session(conf, group).timeout, 0)

    def assertRefused(self, text, reason, load=keystone.session):
        error = self.assertRaises(exceptions.NotConfigured, load,
                                  self.config(text), 'nova')
        self.assertIn('[nova]', str(error))
        self.assertIn(reason, str(error))

    def test_options_that_do_not_suffice_are_named(self):
        self.assertRefused('', 'auth_type')
        self.assertRefused('[nova]\nauth_type = v3password\n', 'auth_url')
        self.assertRefused('[nova]\nauth_type = nonsense\n', 'nonsense')
        self.assertRefused(PASSWORD + 'version = 2\nmin_version = 2\n',
                           'version', keystone.adapter_options)
