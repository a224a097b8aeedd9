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
"""Hydrations of servers' images: who sees and changes what."""

from tempest.lib import decorators
from tempest.lib import exceptions

from diffcache_openstack.tempest_plugin.tests.api import base

HYDRATIONS = 'hydrations'
UNKNOWN = f'{HYDRATIONS}/{base.UNKNOWN}'


class TestHydrations(base.ApiTest):

    @staticmethod
    def document(**settings):
        """Return a change."""
        return {'hydration': {'generation': 0, **settings}}

    @decorators.idempotent_id('c40f7a15-6e2d-4b93-8d07-51e9b2a6f302')
    def test_projects_list_their_own(self):
        for client, credentials in (
                (self.member, self.os_primary.credentials),
                (self.other, self.os_alt.credentials),
                (self.reader, self.os_project_reader.credentials)):
            for each in client.fetch(HYDRATIONS)['hydrations']:
                self.assertEqual(credentials.project_id, each['project_id'])
                self.assertIsNone(each['host'])
        self.assert_paged(HYDRATIONS, 'hydrations')

    @decorators.idempotent_id('c40f7a15-6e2d-4b93-8d07-51e9b2a6f303')
    def test_hosts_are_for_operators(self):
        self.admin.fetch(HYDRATIONS, host='none')
        for client in (self.member, self.reader):
            self.assertRaises(exceptions.Forbidden, client.fetch, HYDRATIONS,
                              host='none')

    @decorators.idempotent_id('c40f7a15-6e2d-4b93-8d07-51e9b2a6f304')
    def test_what_does_not_exist(self):
        for client in (self.admin, self.member):
            self.assertRaises(exceptions.NotFound, client.fetch, UNKNOWN)
            self.assertRaises(exceptions.NotFound, client.change, UNKNOWN,
                              self.document(paused=True))

    @decorators.idempotent_id('c40f7a15-6e2d-4b93-8d07-51e9b2a6f305')
    def test_malformed(self):
        self.assertRaises(exceptions.BadRequest, self.admin.fetch,
                          HYDRATIONS, state='late')
        for settings in ({'deadline': 0}, {'rate': -1}, {'paused': 'yes'},
                         {'mode': 'idle'}):
            self.assertRaises(exceptions.BadRequest, self.admin.change,
                              UNKNOWN, self.document(**settings))
