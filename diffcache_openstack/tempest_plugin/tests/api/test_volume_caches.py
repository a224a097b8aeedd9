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
"""SSD caches of hosts and volumes in them: who sees and changes what."""

from tempest.lib import decorators
from tempest.lib import exceptions

from diffcache_openstack.tempest_plugin.tests.api import base

VOLUMES = 'volume-caches'
CACHES = 'ssd-caches'


class TestVolumeCaches(base.ApiTest):

    @decorators.idempotent_id('5e0f2b7c-41d8-4b0a-9a53-7c1d6e2f8a03')
    def test_what_does_not_exist(self):
        path = f'{VOLUMES}/{base.UNKNOWN}'
        for client in (self.admin, self.member):
            for each in (path, f'{path}/curve'):
                self.assertRaises(exceptions.NotFound, client.fetch, each)
        self.assertRaises(exceptions.NotFound, self.admin.fetch,
                          f'{CACHES}/none')
        self.assertRaises(exceptions.NotFound, self.admin.change, path,
                          {'volume_cache': {'generation': 0}})

    @decorators.idempotent_id('5e0f2b7c-41d8-4b0a-9a53-7c1d6e2f8a04')
    def test_members_change_nothing(self):
        path = f'{VOLUMES}/{base.UNKNOWN}'
        for client in (self.member, self.reader):
            self.assertRaises(exceptions.Forbidden, client.fetch,
                              f'{CACHES}/none')
            self.assertRaises(exceptions.Forbidden, client.change, path,
                              {'volume_cache': {'generation': 0}})
            self.assertRaises(exceptions.Forbidden, client.send,
                              f'{path}/actions', {'action': 'flush'})

    @decorators.idempotent_id('5e0f2b7c-41d8-4b0a-9a53-7c1d6e2f8a05')
    def test_caches_of_hosts(self):
        caches = self.admin.fetch(CACHES)['ssd_caches']
        if not caches:
            raise self.skipException('no host reports an SSD cache')
        for cache in caches:
            found = self.admin.fetch(f'{CACHES}/{cache["host"]}')['ssd_cache']
            self.assertEqual((cache['host'], cache['policy']),
                             (found['host'], found['policy']))
            self.assertIsInstance(found['decisions'], list)
        self.assert_paged(CACHES, 'ssd_caches')
