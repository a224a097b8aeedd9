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
"""Versions of servers and their policies: whose they are, and what is refused.

What takes a server is in the scenarios.
"""

from tempest.lib import decorators
from tempest.lib import exceptions

from diffcache_openstack.tempest_plugin.tests.api import base

PATH = 'versions'
TASKS = 'version-tasks'
POLICIES = 'version-policies'


class TestVersions(base.ApiTest):

    @decorators.idempotent_id('0c7b1f52-6a0e-4b83-8f3d-5d2f9c6e1a01')
    def test_unknown_server_is_not_saved(self):
        for client in (self.admin, self.member):
            self.assertRaises(exceptions.NotFound, client.send, PATH,
                              {'version': {'server_id': base.UNKNOWN}})

    @decorators.idempotent_id('0c7b1f52-6a0e-4b83-8f3d-5d2f9c6e1a02')
    def test_unknown_version(self):
        path = f'{PATH}/{base.UNKNOWN}'
        self.assertRaises(exceptions.NotFound, self.member.fetch, path)
        self.assertRaises(exceptions.NotFound, self.member.remove, path)
        for action in ('restore', 'export'):
            self.assertRaises(exceptions.NotFound, self.member.send,
                              f'{path}/{action}', {action: {}})
        self.assertRaises(exceptions.NotFound, self.member.send,
                          f'{path}/restore', {'restore': {'method': 'auto'}})
        self.assertRaises(exceptions.NotFound, self.member.fetch,
                          f'{TASKS}/{base.UNKNOWN}')

    @decorators.idempotent_id('0c7b1f52-6a0e-4b83-8f3d-5d2f9c6e1a03')
    def test_malformed(self):
        for values in ({'server_id': ''}, {'alpha': '2'}, {'rate': 0},
                       {'colour': 'red'}):
            self.assertRaises(
                exceptions.BadRequest, self.member.send, PATH,
                {'version': {'server_id': base.UNKNOWN, **values}})
        self.assertRaises(
            exceptions.BadRequest, self.member.send,
            f'{PATH}/{base.UNKNOWN}/restore',
            {'restore': {'method': 'sideways'}})

    @decorators.idempotent_id('0c7b1f52-6a0e-4b83-8f3d-5d2f9c6e1a04')
    def test_listings(self):
        for path, name in ((PATH, 'versions'), (TASKS, 'version_tasks')):
            self.assertEqual([], self.member.fetch(
                path, server_id=base.UNKNOWN)[name])


class TestPolicies(base.ApiTest):

    def set(self, client, **values):
        """Set a policy, which the test removes."""
        policy = client.send(POLICIES, {'version_policy': values})[
            'version_policy']
        self.addCleanup(self.remove, policy['id'])
        return policy

    def remove(self, policy_id):
        try:
            self.admin.remove(f'{POLICIES}/{policy_id}')
        except exceptions.NotFound:
            pass  # The test did.

    @decorators.idempotent_id('0c7b1f52-6a0e-4b83-8f3d-5d2f9c6e1a05')
    def test_life(self):
        policy = self.set(self.member, keep_daily=7, on_delete=True)
        path = f'{POLICIES}/{policy["id"]}'
        self.assertEqual(policy,
                         self.member.fetch(path)['version_policy'])
        again = self.set(self.member, keep_last=3)
        self.assertEqual(
            (policy['id'], 3, 0, False),
            tuple(again[name] for name in
                  ('id', 'keep_last', 'keep_daily', 'on_delete')))
        self.assertRaises(exceptions.NotFound, self.other.fetch, path)
        self.assertRaises(exceptions.NotFound, self.other.remove, path)
        self.member.remove(path)
        self.assertRaises(exceptions.NotFound, self.member.fetch, path)

    @decorators.idempotent_id('0c7b1f52-6a0e-4b83-8f3d-5d2f9c6e1a06')
    def test_reader_only_looks(self):
        self.reader.fetch(POLICIES)
        self.assertRaises(exceptions.Forbidden, self.reader.send, POLICIES,
                          {'version_policy': {'keep_last': 1}})
