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
from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor import addresses
from diffcache_openstack.conf import opts
from tests import base
from tests.unit.db import database


class AddressesTest(base.TestCase):

    def check(self, url, networks=(), **values):
        conf = opts.new_config()
        conf.set_override('site_networks', list(networks), 'conductor')
        addresses.Addresses(conf).check(
            database.host('h1', url=url, **values))

    def refused(self, *args, **values):
        self.assertRaises(exceptions.Forbidden, self.check, *args, **values)

    def test_no_site_has_metadata_services(self):
        for address in ('169.254.169.254', '[fe80::1]', '0.0.0.0', '[::]',
                        '224.0.0.1', '[::ffff:169.254.169.254]'):
            self.refused(f'http://{address}/latest')
        self.check('http://127.0.0.1:9192')

    def test_only_networks_of_the_site(self):
        networks = ['edge=10.1.0.0/16', ' edge = 2001:db8::/32',
                    'other=10.2.0.0/16']
        for address in ('10.1.2.3', '[2001:db8::5]', '[::ffff:10.1.2.3]'):
            self.check(f'https://{address}:9192', networks)
        for address in ('10.2.0.1', '127.0.0.1', '169.254.169.254',
                        '[2001:db9::1]'):
            self.refused(f'https://{address}:9192', networks)
        self.check('https://10.9.9.9:9192', networks, site='third')

    def test_only_the_own_name_is_taken(self):
        self.check('http://H1:9192', ['edge=10.1.0.0/16'])
        self.check(None, ['edge=10.1.0.0/16'])
        for name in ('h2', 'h1.evil.example', 'metadata.internal',
                     '2130706433', 'h1@169.254.169.254', '[::1'):
            self.refused(f'http://{name}:9192')

    def test_networks_that_cannot_be_read(self):
        for given in ('10.1.0.0/16', 'edge', 'edge=x', 'edge=10.1.2.3/16'):
            error = self.assertRaises(exceptions.InvalidInput, self.check,
                                      None, [given])
            self.assertIn('site_networks', str(error))
