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
"""Plans: proposed, explained, applied, cancelled."""

from tempest.lib import decorators
from tempest.lib import exceptions

from diffcache_openstack.tempest_plugin.tests.api import base


class TestPlans(base.ApiTest):

    def propose(self):
        """Create a proposal for a site with hosts and images."""
        self.some_image()
        site = self.compute_host()['site']
        plan = self.admin.send('plans', {'plan': {'site': site}},
                               status=202)['plan']
        return self.wait_for(f'plans/{plan["id"]}', 'plan', 'state',
                             'proposed')

    @decorators.idempotent_id('c3b9a1d2-0f6e-4f7b-a4c8-2e1d9b7c5f01')
    def test_apply(self):
        plan = self.propose()
        reasons = self.admin.fetch(
            f'plans/{plan["id"]}/explanation')['explanation']
        self.assertEqual(len(plan['items']), len(reasons))
        path = f'plans/{plan["id"]}/apply'
        self.assertRaises(exceptions.Conflict, self.admin.send, path,
                          {'generation': plan['base_generation'] + 1})
        applied = self.admin.send(path, {})['plan']
        self.assertEqual('current', applied['state'])
        self.assertRaises(exceptions.Conflict, self.admin.send, path, {})
        self.assert_paged('plans', 'plans', state='current')

    @decorators.idempotent_id('c3b9a1d2-0f6e-4f7b-a4c8-2e1d9b7c5f02')
    def test_cancel(self):
        path = f'plans/{self.propose()["id"]}'
        self.assertEqual('cancelled', self.admin.send(
            f'{path}/cancel', {})['plan']['state'])
        self.assertRaises(exceptions.Conflict, self.admin.send,
                          f'{path}/apply', {})

    @decorators.idempotent_id('c3b9a1d2-0f6e-4f7b-a4c8-2e1d9b7c5f03')
    def test_malformed(self):
        for document in ({}, {'plan': {}}, {'plan': {'site': 7}},
                         {'plan': {'site': 'x', 'colour': 'red'}}):
            self.assertRaises(exceptions.BadRequest, self.admin.send,
                              'plans', document)
        self.assertRaises(exceptions.NotFound, self.admin.send, 'plans',
                          {'plan': {'site': 'none'}})
