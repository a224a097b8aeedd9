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
"""Policies of versions over the API."""


from tests.unit.api import base
from tests.unit.api.handlers import test_versions

POLICIES = '/v1/version-policies'


class TestPolicies(test_versions.VersionsTest):

    def put(self, user='member', **values):
        status, body, _headers = self.call(
            'POST', POLICIES, {'version_policy': values}, user=user)
        self.assertEqual(200, status, body)
        return body['version_policy']

    def test_of_a_server_and_of_a_project(self):
        own = self.put(server_id='running', every=3600, keep_last=3)
        self.assertEqual(
            ('running', base.PROJECT, 3600, 3, 0, False),
            tuple(own[name] for name in (
                'server_id', 'project_id', 'every', 'keep_last',
                'keep_daily', 'required')))
        common = self.put(on_shutdown=True, required=True)
        self.assertEqual((None, True, True), tuple(
            common[name] for name in
            ('server_id', 'on_shutdown', 'required')))
        # Set again it is replaced, under the same id.
        again = self.put(server_id='running', keep_daily=7)
        self.assertEqual((own['id'], None, 0, 7), tuple(
            again[name] for name in
            ('id', 'every', 'keep_last', 'keep_daily')))
        listed = self.get(f'{POLICIES}?server_id=running',
                          user='member')['version_policies']
        self.assertEqual([again], listed)
        path = f'{POLICIES}/{own["id"]}'
        self.refused(404, 'DELETE', path, user='other')
        self.assertEqual(204, self.call('DELETE', path, user='member')[0])
        self.refused(404, 'GET', path)
        self.assertEqual([], self.get(POLICIES,
                                      user='other')['version_policies'])

    def test_of_a_foreign_server_is_not_set(self):
        self.refused(404, 'POST', POLICIES, {
            'version_policy': {'server_id': 'foreign'}}, user='member')

    def test_values_out_of_range(self):
        for values in ({'every': 5}, {'keep_last': -1},
                       {'on_shutdown': 'maybe'}, {'alpha': '7'}):
            self.refused(400, 'POST', POLICIES, {'version_policy': values},
                         user='member')
