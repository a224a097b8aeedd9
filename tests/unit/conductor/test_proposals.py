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

import datetime
import threading
from unittest import mock

from diffcache_openstack.conductor import proposals
from diffcache_openstack.db.planning import proposals as db_proposals
from diffcache_openstack.db.views import plan_views
from diffcache_openstack.objects import versioned
from diffcache_openstack.placement import replan
from diffcache_openstack.planning import planners
from tests.unit.db import database
from tests.unit.planning import test_planners
from tests import waiting


class TestProposals(test_planners.PlannerTest):

    def setUp(self):
        super().setUp()
        self.proposals = proposals.Proposals(
            self.conf, self.database, self.planner, mock.Mock(), 'me')
        self.addCleanup(self.proposals.stop)

    def propose(self, solver=None):
        plan_id = self.proposals.propose_plan(None, database.SITE,
                                              solver, None)

        def proposed():
            plan = self.read(db_proposals.get_plan, plan_id)
            return plan.items and plan

        return waiting.until(proposed, 'a proposal')

    def ask_for_another_image(self):
        """A plan for the second image, then more demand for the first."""
        self.add_images(1, 2)
        self.add_requests('t2', 1, 5)
        self.plan()
        self.add_requests('t1', 10, 8)

    def test_moves_have_their_cost_as_in_the_planner(self):
        self.ask_for_another_image()
        self.patch(planners, 'TERMS', replan.Terms(move_weight=1e6))
        self.assertEqual([database.content(2)], self.held(self.propose()))

    def test_worthy_moves_are_proposed(self):
        self.ask_for_another_image()
        self.assertEqual([database.content(1)], self.held(self.propose()))

    def test_solver_that_weighs_no_moves(self):
        self.ask_for_another_image()
        self.patch(planners, 'TERMS', replan.Terms(move_weight=1e6))
        self.assertEqual([database.content(1)],
                         self.held(self.propose('ilp')))


class TestQueue(test_planners.PlannerTest):
    """A proposal behind another one, for longer than a lease lasts."""

    def setUp(self):
        super().setUp()
        self.proposals, self.other = (
            proposals.Proposals(self.conf, self.database, self.planner,
                                mock.Mock(), owner)
            for owner in ('me', 'other'))
        for each in (self.proposals, self.other):
            self.addCleanup(each.stop)
        self.is_free = threading.Event()
        self.addCleanup(self.is_free.set)
        self.proposals._pool.submit(self.is_free.wait)
        self.add_images(1)
        self.add_requests('t1', 1, 5)
        self.plan_id = self.proposals.propose_plan(None, database.SITE, None,
                                                   None)

    def wait(self, parts):
        """Have some conductors live on for an hour."""
        begin = versioned.now()
        for minutes in range(0, 65, 5):
            now = begin + datetime.timedelta(minutes=minutes)
            with mock.patch.object(versioned, 'now', lambda now=now: now):
                for each in parts:
                    each.renew()
                self.other.tidy()

    def state(self):
        return self.read(plan_views.get_plan, self.plan_id)['state']

    def test_it_is_computed(self):
        self.wait((self.proposals, self.other))
        self.assertEqual('computing', self.state())
        self.is_free.set()
        waiting.until(lambda: self.state() == 'proposed', 'a proposal')
        waiting.until(lambda: not self.proposals._pending, 'an empty queue')

    def test_given_up_if_its_conductor_is_gone(self):
        self.wait((self.other, ))
        self.assertEqual('failed', self.state())
