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
"""Plans that are proposed."""

import datetime

from diffcache_openstack.common import exceptions
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.planning import proposals
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.views import plan_views
from diffcache_openstack import objects
from tests.unit.db import database

ID = '00000000-0000-4000-8000-00000000000a'


class ProposalTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.begin()

    def begin(self):
        self.write(host_rows.put_host, database.host('h1'), database.at(0))
        self.write(proposals.begin, database.SITE, ID, 'auto',
                   database.at(0))

    def plan(self):
        return objects.Plan(
            site=database.SITE, generation=0, solver='auto', cost_s=2.0,
            lower_bound_s=1.0, proved_optimal=False, solver_seconds=0.1,
            created_at=database.at(1), hosts=['h1'],
            items=[objects.PlanItem(host='h1', kind=objects.IMAGES,
                                    id=database.content(1), bytes=5,
                                    priority=0)])

    def state(self):
        return self.read(plan_views.get_plan, ID)['state']


class TestProposals(ProposalTest):

    def test_life(self):
        self.assertEqual('computing', self.state())
        self.assertTrue(self.write(proposals.finish, ID, self.plan()))
        self.assertEqual('proposed', self.state())
        applied = self.write(proposals.apply, ID, 0, database.at(2))
        self.assertEqual(
            applied, self.read(plans.current_plan, database.SITE))
        self.assertEqual('current', self.state())

    def test_result_that_nobody_waits_for(self):
        self.write(proposals.cancel, ID)
        self.assertFalse(self.write(proposals.finish, ID, self.plan()))
        self.assertEqual('cancelled', self.state())

    def test_late_one_changes_nothing(self):
        self.write(proposals.finish, ID, self.plan())
        current = self.write(plans.put_plan, self.plan(), 0)
        self.assertRaises(exceptions.Busy, self.write, proposals.apply, ID,
                          None, database.at(2))
        self.assertEqual(current, self.read(plans.current_plan,
                                            database.SITE))

    def give_up(self, before, now):
        return self.write(proposals.give_up, database.at(before),
                          database.at(now))

    def test_of_a_conductor_that_died(self):
        self.assertEqual(0, self.give_up(0, 9))
        self.assertEqual(1, self.give_up(1, 9))
        self.assertEqual('failed', self.state())

    def test_as_long_as_its_lease_lasts(self):
        other = ID[:-1] + 'b'
        self.write(proposals.begin, database.SITE, other, 'auto',
                   database.at(0))
        for until in (5, 10):
            self.write(proposals.renew, [ID], 'me', database.at(1),
                       database.at(until))
        self.assertEqual(1, self.give_up(1, 9))
        self.assertEqual('computing', self.state())
        self.assertEqual(1, self.give_up(1, 10))
        self.assertEqual('failed', self.state())

    def test_kept_apart_from_plans_that_were_in_force(self):
        self.write(proposals.finish, ID, self.plan())
        self.write(plans.put_plan, self.plan(), 0)
        self.write(plans.prune, database.SITE, 1)
        self.assertEqual('proposed', self.state())
        later = database.at(0) + datetime.timedelta(days=1)
        self.assertEqual(1, self.write(proposals.prune, later))
        self.assertIsNotNone(self.read(plans.current_plan, database.SITE))
        self.assertRaises(exceptions.NotFound, self.read,
                          plan_views.get_plan, ID)
