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
"""Plans over the API."""

from tests.unit.api import base
from tests.unit.conductor.endpoints import test_agents
from tests.unit.db import database

FINAL = ('proposed', 'failed', 'cancelled')


class PlanTest(base.ApiTest):

    def propose(self, **values):
        """A proposal that is done being computed."""
        status, body, headers = self.call(
            'POST', '/v1/plans', {'plan': {'site': 'edge', **values}})
        self.assertEqual(202, status, body)
        path = '/v1/plans/' + body['plan']['id']
        self.assertEqual(f'http://localhost{path}', headers['Location'])
        # The one thread that proposals are computed in is done after this.
        conductor_proposals = self.conductor._proposals
        conductor_proposals._pool.submit(int).result()
        plan = self.get(path)['plan']
        self.assertIn(plan['state'], FINAL)
        return plan

    def current(self):
        [plan] = self.get('/v1/plans?state=current')['plans']
        return plan


class TestProposals(PlanTest):

    def test_is_not_in_force(self):
        plan = self.propose()
        self.assertEqual(('proposed', None),
                         (plan['state'], plan['generation']))
        self.assertTrue(plan['items'])
        self.assertEqual([], self.get('/v1/plans?state=current')['plans'])
        self.assertIsNone(self.api.get_plan(self.ctxt, 'edge'))

    def test_what_it_moves_and_saves_is_shown(self):
        plan = self.propose()
        self.assertGreaterEqual(plan['move_wan_bytes'], 100 * test_agents.MB)
        self.assertGreaterEqual(plan['move_lan_bytes'], 0)
        self.assertGreater(plan['fill_seconds'], 0.0)
        self.assertGreater(plan['saved_seconds'], 0.0)
        self.assertGreater(plan['saved_wan_bytes'], 0)
        self.assertEqual('seconds', plan['objective'])
        self.assertGreaterEqual(plan['cost_wan_bytes'], 0)
        path = f'/v1/plans/{plan["id"]}'
        self.assertEqual(plan, self.get(path)['plan'])
        for user, status in ((None, 401), ('reader', 403), ('other', 403)):
            self.assertEqual(status, self.call('GET', path, user=user)[0])

    def test_apply(self):
        agent = self.listen('h1')
        plan = self.propose()
        status, body, _headers = self.call(
            'POST', f'/v1/plans/{plan["id"]}/apply', {'generation': 0})
        self.assertEqual((200, 'current'), (status, body['plan']['state']))
        generation, _items = agent.plans.get(
            timeout=test_agents.ANSWER_SECONDS)
        self.assertEqual(body['plan']['generation'], generation)
        self.assertEqual(plan['id'], self.current()['id'])

    def test_apply_twice(self):
        plan = self.propose()
        path = f'/v1/plans/{plan["id"]}/apply'
        self.call('POST', path, {})
        error = self.refused(409, 'POST', path, {})
        self.assertEqual('diffcache.conflict', error['code'])

    def test_apply_after_another_plan(self):
        first, second = self.propose(), self.propose()
        self.call('POST', f'/v1/plans/{second["id"]}/apply', {})
        error = self.refused(409, 'POST', f'/v1/plans/{first["id"]}/apply',
                             {})
        self.assertEqual('diffcache.concurrent_update', error['code'])
        # Proposed anew it is computed against what is in force now.
        third = self.propose()
        self.call('POST', f'/v1/plans/{third["id"]}/apply', {})
        self.assertEqual(third['id'], self.current()['id'])

    def test_apply_what_was_seen_otherwise(self):
        plan = self.propose()
        error = self.refused(409, 'POST', f'/v1/plans/{plan["id"]}/apply',
                             {'generation': 12})
        self.assertEqual('diffcache.concurrent_update', error['code'])

    def test_cancel(self):
        plan = self.propose()
        path = f'/v1/plans/{plan["id"]}/cancel'
        for _repeated in range(2):
            _status, body, _headers = self.call('POST', path, {})
            self.assertEqual('cancelled', body['plan']['state'])
        self.refused(409, 'POST', f'/v1/plans/{plan["id"]}/apply', {})

    def test_cancel_what_is_in_force(self):
        self.api.plan_now(self.ctxt, 'edge')
        self.refused(409, 'POST',
                     f'/v1/plans/{self.current()["id"]}/cancel', {})

    def test_site_without_hosts_fails_with_the_reason(self):
        for name in ('h1', 'h2'):
            database.silence(self.database, name)
            self.api.remove_host(self.ctxt, name)
        plan = self.propose()
        self.assertEqual(('failed', None), (plan['state'], plan['cost_s']))
        self.assertIn('no living compute host', plan['error'])

    def test_unknown_site(self):
        self.refused(404, 'POST', '/v1/plans', {'plan': {'site': 'none'}})

    def test_unknown_solver(self):
        self.refused(400, 'POST', '/v1/plans',
                     {'plan': {'site': 'edge', 'solver': 'oracle'}})

    def test_solver_of_choice(self):
        self.assertEqual('greedy', self.propose(solver='greedy')['solver'])


class TestListing(PlanTest):

    def test_latest_first_in_parts(self):
        plans = [self.propose()['id'] for _ in range(3)]
        answer = self.get('/v1/plans?limit=2&site=edge')
        found = [plan['id'] for plan in answer['plans']]
        answer = self.get(answer['plans_links'][0]['href'])
        found += [plan['id'] for plan in answer['plans']]
        self.assertEqual(plans[::-1], found)

    def test_superseded(self):
        self.api.plan_now(self.ctxt, 'edge')
        before = self.current()['id']
        plan = self.propose()
        self.call('POST', f'/v1/plans/{plan["id"]}/apply', {})
        self.assertEqual(
            [before],
            [p['id'] for p in
             self.get('/v1/plans?state=superseded')['plans']])


class TestReasons(PlanTest):

    def test_each_object_has_one(self):
        plan = self.propose()
        path = f'/v1/plans/{plan["id"]}/explanation'
        reasons = self.get(path)['explanation']
        self.assertEqual(
            {(item['host'], item['id']) for item in plan['items']},
            {(reason['host'], reason['id']) for reason in reasons})
        self.assertTrue(all(reason['why'] for reason in reasons))
        some = self.get(f'{path}?host=h1')['explanation']
        self.assertEqual({'h1'}, {reason['host'] for reason in some})

    def test_of_a_plan_that_failed(self):
        for name in ('h1', 'h2'):
            database.silence(self.database, name)
            self.api.remove_host(self.ctxt, name)
        plan = self.propose()
        self.refused(409, 'GET', f'/v1/plans/{plan["id"]}/explanation')

    def test_what_if_the_wan_were_faster(self):
        before_count = len(self.get('/v1/plans')['plans'])
        status, body, _headers = self.call('POST', '/v1/what-if', {
            'what_if': {'site': 'edge',
                        'changes': {'repository_mbps': 1000}}})
        self.assertEqual(200, status, body)
        answer = body['what_if']
        self.assertLess(answer['after']['mean_s'],
                        answer['before']['mean_s'])
        self.assertEqual(before_count, len(self.get('/v1/plans')['plans']))

    def test_what_if_in_both_objectives(self):
        change = {'site': 'edge', 'changes': {'capacity_bytes': -10 ** 12}}
        for objective in ('seconds', 'wan_bytes'):
            answer = self.call('POST', '/v1/what-if', {'what_if': {
                **change, 'objective': objective}})[1]
            answer = answer['what_if']
            self.assertEqual(objective, answer['objective'])
            before, after = answer['before'], answer['after']
            for name in ('mean_wan_bytes', 'cost_wan_bytes', 'mean_s'):
                self.assertLess(before[name], after[name])
            self.assertLessEqual(answer['saving_wan'], 0)
        self.conf.set_override('objective', 'wan_bytes', 'planner')
        answer = self.call('POST', '/v1/what-if', {'what_if': change})[1]
        self.assertEqual('wan_bytes', answer['what_if']['objective'])

    def test_what_if_with_nonsense(self):
        for changes in ({'repository_mbps': 0}, {'add_hosts': -1},
                        {'colour': 'red'}, {'demand_factor': 0},
                        {'demand_factor': 1e308},
                        {'capacity_bytes': 10 ** 30}):
            self.refused(400, 'POST', '/v1/what-if', {
                'what_if': {'site': 'edge', 'changes': changes}})
        self.refused(404, 'POST', '/v1/what-if', {
            'what_if': {'site': database.SITE + '2', 'changes': {}}})
