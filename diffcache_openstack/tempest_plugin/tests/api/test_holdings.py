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
"""What several hosts hold and would get, and patches of several images."""

from tempest.lib import decorators
from tempest.lib import exceptions

from diffcache_openstack.tempest_plugin.tests.api import base

HOLDINGS = 'holdings'


class TestHoldings(base.ApiTest):

    @decorators.idempotent_id('1b7e5d92-40c3-4f6a-9e18-6a2d70c4b303')
    def test_malformed_queries(self):
        for query in ({'kind': 'cows'}, {'not_in_plan': 'x'}, {'marker': 'x'}):
            self.assertRaises(exceptions.BadRequest, self.admin.fetch,
                              HOLDINGS, **query)
        self.assertRaises(exceptions.NotFound, self.admin.fetch, HOLDINGS,
                          not_in_plan=base.UNKNOWN)

    @decorators.idempotent_id('1b7e5d92-40c3-4f6a-9e18-6a2d70c4b305')
    def test_of_a_site(self):
        host = self.compute_host()
        wanted = {
            each['id'] for each in self.admin.fetch(
                f'hosts/{host["name"]}/objects', kind='images')['objects']}
        found = self.admin.fetch(HOLDINGS, site=host['site'],
                                 kind='images', limit=1000)[HOLDINGS]
        for each in found:
            self.assertEqual((host['site'], 'images'),
                             (each['site'], each['kind']))
        self.assertLessEqual(wanted, {each['object_id'] for each in found
                                      if each['host'] == host['name']})
        self.assert_paged(HOLDINGS, HOLDINGS, site=host['site'],
                          kind='images')

    @decorators.idempotent_id('1b7e5d92-40c3-4f6a-9e18-6a2d70c4b306')
    def test_patches_of_several_images(self):
        for patch in self.admin.fetch('patches', limit=1)['patches']:
            found = self.admin.fetch(
                'patches', target=[base.UNKNOWN, patch['target']],
                base=[patch['base'], base.UNKNOWN])['patches']
            self.assertEqual([patch['id']], [each['id'] for each in found])

    @decorators.idempotent_id('1b7e5d92-40c3-4f6a-9e18-6a2d70c4b307')
    def test_lookups_of_all_hosts(self):
        host, image = self.compute_host(), self.some_image()
        path = f'images/{image["id"]}/lookups'
        found = self.admin.fetch(path, site=host['site'], limit=100)
        [shown] = [each for each in found['lookups']
                   if each['host'] == host['name']]
        self.assertEqual(1, len(shown['ways']))
        self.assert_paged(path, 'lookups')
        for client in (self.member, self.reader, self.other):
            self.assertRaises(exceptions.Forbidden, client.fetch, path)
        self.assertRaises(exceptions.NotFound, self.admin.fetch,
                          f'images/{base.UNKNOWN}/lookups')
