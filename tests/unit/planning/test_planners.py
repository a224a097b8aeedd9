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
import dataclasses
import datetime
import logging
import threading
from unittest import mock

import fixtures

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.sites import networks
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.planning import model
from diffcache_openstack.planning import planners
from diffcache_openstack.planning import site_state
from tests.unit.db import database

MB = 10 ** 6
SIZE = 100 * MB


class PlannerTest(database.DatabaseTest):
    """One host with room for one of two images, and a patch."""

    def setUp(self):
        super().setUp()
        self.planner = planners.Planner(self.conf, self.database, 'me')
        self.add_host('h1')

    def set_terms(self, **values):
        self.patch(planners, 'TERMS',
                   dataclasses.replace(planners.TERMS, **values))

    def add_host(self, name, **values):
        self.write(host_rows.put_host,
                   database.host(name, **{'capacity': 130 * MB, **values}),
                   versioned.now())

    def add_images(self, *numbers):
        for number in numbers:
            self.write(catalogue.put_image,
                       database.image(number, data_size=SIZE),
                       versioned.now())

    def add_requests(self, image, first, count):
        self.write(history.put_requests, [
            database.request(n, image_id=image,
                             started_at=versioned.now())
            for n in range(first, first + count)])

    def plan(self):
        return self.planner.plan(database.SITE)

    def held(self, plan, host='h1'):
        return [item.id for item in plan.items if item.host == host]


class TestPlan(PlannerTest):

    def test_follows_demand(self):
        self.add_images(1, 2)
        self.add_requests('t2', 1, 5)
        first = self.plan()
        self.assertEqual([database.content(2)], self.held(first))
        self.add_requests('t1', 10, 50)
        second = self.plan()
        self.assertEqual([database.content(1)], self.held(second))
        # Generations follow the clock, so they may skip numbers.
        self.assertLess(first.generation, second.generation)
        self.assertEqual(
            second, self.read(plans.current_plan, database.SITE))

    def test_room_that_is_left_goes_to_a_patch(self):
        self.add_images(1, 2)
        self.write(catalogue.put_patch,
                   database.patch(1, 2, size=10 * MB, apply_seconds=0.1),
                   versioned.now())
        self.add_requests('t1', 1, 5)
        self.assertEqual(
            {database.content(1), database.patch(1, 2).id},
            set(self.held(self.plan())))

    def test_what_it_moves_and_saves(self):
        """One image of 100 MB, 40 MB of which cross 20 Mbit/s."""
        self.write(catalogue.put_image, database.image(
            1, data_size=SIZE, compressed_size=40 * MB), versioned.now())
        self.add_requests('t1', 0, 20)
        plan = self.plan()
        self.assertEqual((40 * MB, 0), (plan.move_wan_bytes,
                                        plan.move_lan_bytes))
        self.assertAlmostEqual(16.0, plan.fill_seconds)
        # Of 16 s for each request, 0.2 s are left, and no byte.
        daily = plan.cost_s / 0.2
        self.assertAlmostEqual(1.0, plan.saved_seconds / (daily * 15.8))
        self.assertAlmostEqual(
            1.0, plan.saved_wan_bytes / (daily * 40 * MB), places=4)
        kept = self.read(plans.current_plan, database.SITE)
        self.assertEqual(
            [getattr(plan, name) for name in objects.PLAN_FIGURES],
            [getattr(kept, name) for name in objects.PLAN_FIGURES])

    def test_fill_windows_and_rates_delay_it(self):
        self.add_images(1)
        self.conf.set_override('max_rate', 1000, 'fill')
        self.conf.set_override('windows', ['22:00-06:00'], 'fill')
        # 100,000 s at 1 kB/s: three windows of 28,800 s, and a part.
        self.assertAlmostEqual(3 * 86400 + 13600, self.plan().fill_seconds)

    def test_own_fill_windows_and_rates_of_a_host_delay_it(self):
        self.add_images(1)
        self.write(networks.put, 'h1', objects.HostNetwork(
            fill_rate=1000, fill_windows=['22:00-06:00']))
        # As with the conductor's own, which count for hosts without.
        self.assertAlmostEqual(3 * 86400 + 13600, self.plan().fill_seconds)

    def test_measured_bandwidths_count_if_options_say_so(self):
        self.add_images(1)
        self.write(networks.put, 'h1', objects.HostNetwork(
            repositories=[objects.RepositoryStanding(name='hub', mbps=2.0)]))
        seconds = self.plan().fill_seconds
        self.conf.set_override('measured_bandwidths', True, 'planner')
        state = self.read(site_state.read, database.SITE, self.conf)[2]
        bandwidths = model.build(state, self.conf.planner).instance.bandwidths
        self.assertEqual([2.0], list(bandwidths.repo))
        self.assertAlmostEqual(SIZE * 8 / 20e6, seconds)

    def test_objective_is_bytes_where_the_site_says_so(self):
        """There is room for one, fast to have, or many bytes of the WAN.

        The disk is slow: of a large image whose compressed form is small, a
        copy saves bytes, but less time than one of a smaller image does.
        """
        self.conf.set_override('local_bandwidth', 50.0, 'planner')
        self.conf.set_override('peer_bandwidth', 40.0, 'planner')
        self.conf.set_override('repository_bandwidth', 10.0, 'planner')
        self.write(catalogue.put_image, database.image(
            1, data_size=100 * MB, compressed_size=50 * MB),
            versioned.now())
        self.write(catalogue.put_image, database.image(
            2, data_size=40 * MB), versioned.now())
        self.add_requests('t1', 1, 20)
        self.add_requests('t2', 50, 20)
        fast = self.plan()
        self.assertEqual(('seconds', [database.content(2)]),
                         (fast.objective, self.held(fast)))
        self.conf.set_override(
            'site_objective', {database.SITE: 'wan_bytes'}, 'planner')
        lean = self.plan()
        self.assertEqual(('wan_bytes', [database.content(1)]),
                         (lean.objective, self.held(lean)))
        self.assertLess(lean.cost_wan_bytes, fast.cost_wan_bytes)
        self.assertGreater(lean.cost_s, fast.cost_s)
        self.assertLessEqual(lean.lower_bound_s, lean.cost_s)
        self.assertEqual(lean, self.read(plans.current_plan, database.SITE))
        self.conf.set_override(
            'site_objective', {'other': 'wan_bytes'}, 'planner')
        self.assertEqual([database.content(2)], self.held(self.plan()))

    def test_what_arrives_too_late_is_left_out(self):
        """100 MB at 1 kB/s take four windows of 8 h, until the fourth day."""
        self.add_images(1)
        self.conf.set_override('max_rate', 1000, 'fill')
        self.conf.set_override('windows', ['22:00-06:00'], 'fill')
        self.set_terms(horizon_s=3 * 86400)
        late = self.plan()
        self.assertEqual(([], 0.0), (late.items, late.fill_seconds))
        self.assertFalse(late.proved_optimal)
        self.set_terms(horizon_s=4 * 86400)
        self.assertEqual([database.content(1)], self.held(self.plan()))

    def test_plan_that_is_not_filled_before_the_next_one_says_so(self):
        self.add_images(1)
        log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        self.conf.set_override('interval', 40, 'planner')
        self.assertEqual(40.0, self.plan().fill_seconds)
        self.assertNotIn('to fill', log.output)
        self.conf.set_override('interval', 30, 'planner')
        self.add_images(2)
        self.add_requests('t2', 1, 50)
        self.plan()
        self.assertIn('40 s to fill', log.output)
        self.assertIn('due in 30 s', log.output)

    def test_chains_are_planned_if_allowed(self):
        self.add_images(1, 2, 3)
        links = [database.patch(1, 2, size=10 * MB, apply_seconds=0.1),
                 database.patch(2, 3, size=10 * MB, apply_seconds=0.1)]
        for link in links:
            self.write(catalogue.put_patch, link, versioned.now())
        for number in (1, 2, 3):
            self.add_requests(f't{number}', 10 * number, 5)
        single = self.plan()
        # One of the patches has no base here.
        self.assertEqual(2, len(single.items))
        self.conf.set_override('hops', 2, 'planner')
        chained = self.plan()
        self.assertEqual(
            {database.content(1), *(link.id for link in links)},
            set(self.held(chained)))
        self.assertLess(chained.cost_s, single.cost_s / 2)
        for item in chained.items:
            self.assertGreater(item.saved_seconds, 0)
        # The first patch leads to the second image and on to the third.
        saved = {item.id: item.saved_seconds for item in chained.items}
        self.assertGreater(saved[links[0].id], saved[links[1].id])
        self.assertEqual(chained, self.plan())

    def test_nothing_new_keeps_the_plan(self):
        self.add_images(1, 2)
        self.add_requests('t2', 1, 5)
        self.assertEqual(self.plan(), self.plan())

    def test_small_gain_keeps_the_plan(self):
        self.add_images(1, 2)
        self.add_requests('t2', 1, 5)
        first = self.plan()
        self.add_requests('t1', 10, 6)
        self.set_terms(least_saving=0.5)
        self.assertEqual(first, self.plan())
        self.set_terms(least_saving=0.01)
        self.assertEqual([database.content(1)], self.held(self.plan()))

    def test_new_host_is_planned_for_whatever_it_gains(self):
        self.add_images(1)
        first = self.plan()
        self.add_host('h2', capacity=0)
        second = self.plan()
        self.assertEqual(['h1', 'h2'], second.hosts)
        self.assertGreater(second.generation, first.generation)

    def test_removed_image_is_held_no_longer(self):
        self.add_images(1, 2)
        self.add_requests('t1', 1, 5)
        first = self.plan()
        self.assertEqual([database.content(1)], self.held(first))
        self.write(catalogue.remove_image, 't1')
        second = self.plan()
        self.assertEqual([database.content(2)], self.held(second))

    def test_deleted_image_leaves_the_plan_in_force_at_once(self):
        self.add_images(1, 2)
        self.add_requests('t1', 1, 5)
        first = self.plan()
        # The same content under another name: it is still to be had.
        self.write(catalogue.put_image, database.image(
            1, id='t3', data_size=SIZE), versioned.now())
        for name in ('t1', 't3'):
            self.assertEqual([database.content(1)], self.held(
                self.read(plans.current_plan, database.SITE)))
            self.write(catalogue.put_image, database.image(
                1, id=name, data_size=SIZE, status='deleted'),
                versioned.now())
        left = self.read(plans.current_plan, database.SITE)
        self.assertEqual(([], first.generation),
                         (left.items, left.generation))

    def test_shrunken_host_is_planned_anew(self):
        self.add_images(1)
        self.assertEqual([database.content(1)], self.held(self.plan()))
        self.add_host('h1', capacity=MB)
        self.assertEqual([], self.held(self.plan()))

    def test_dead_hosts_and_repositories_hold_nothing(self):
        self.add_images(1)
        self.add_host('h2')
        self.write(host_rows.expire_hosts, versioned.now())
        self.add_host('h1')
        self.add_host('hub', role=objects.REPOSITORY)
        self.assertEqual(['h1'], self.plan().hosts)

    def test_image_without_requests_fills_room_that_is_left(self):
        self.add_images(1)
        self.assertEqual([database.content(1)], self.held(self.plan()))

    def test_without_prior_only_history_counts(self):
        self.patch(model, 'PRIOR', 0.0)
        self.add_images(1)
        self.assertEqual([], self.held(self.plan()))


class TestRounds(PlannerTest):
    """Rounds that come because it is time, not because something changed."""

    def setUp(self):
        super().setUp()
        self.now = versioned.now().replace(hour=12)
        self.patch(versioned, 'now', lambda: self.now)
        self.add_host('h1')
        self.add_images(1, 2)
        self.add_requests('t2', 1, 5)
        # The first one stores a plan, and the next one keeps it.
        for _round in range(2):
            self.assertIsNotNone(self.round())

    def wait(self, **time):
        self.now += datetime.timedelta(**time)

    def round(self):
        self.wait(minutes=1)
        return self.planner.plan_if_changed(database.SITE)

    def test_nothing_is_planned_while_nothing_changes(self):
        self.patch(self.planner, 'solve', None)
        self.assertIsNone(self.round())
        due = self.read(plans.due_sites, self.now)
        self.assertEqual([], due)

    def test_what_a_plan_depends_on_is_planned_for(self):
        for change in (
                lambda: self.add_requests('t1', 10, 1),
                lambda: self.add_images(3),
                lambda: self.add_host('h2'),
                lambda: self.write(held_rows.put_holdings, 'h1',
                                   [database.holding(1)], self.now),
                lambda: self.conf.set_override('hops', 2, 'planner'),
                lambda: self.wait(days=1)):
            # What was new at first is stored by a round, and kept by another.
            self.assertIn(None, [self.round() for _round in range(4)])
            change()
            self.assertIsNotNone(self.round())

    def test_what_failed_is_planned_again(self):
        self.add_images(3)
        with mock.patch.object(self.planner, 'solve',
                               side_effect=exceptions.Busy('full')):
            self.assertRaises(exceptions.Busy, self.round)
        self.assertIsNotNone(self.round())


class TestMoves(PlannerTest):
    """What a plan has to bring to hosts has a cost."""

    def setUp(self):
        super().setUp()
        self.add_images(1, 2)
        self.set_terms(least_saving=0.0)
        self.add_requests('t2', 1, 5)

    def test_saving_below_the_transfers_moves_nothing(self):
        first = self.plan()
        self.add_requests('t1', 10, 6)
        self.set_terms(move_weight=100.0)
        self.assertEqual(first, self.plan())
        self.set_terms(move_weight=0.0)
        self.assertEqual([database.content(1)], self.held(self.plan()))

    def test_transfers_weigh_less_the_longer_a_plan_lasts(self):
        first = self.plan()
        self.add_requests('t1', 10, 6)
        self.set_terms(move_weight=1.0, horizon_s=3600)
        self.assertEqual(first, self.plan())
        self.set_terms(horizon_s=10 ** 8)
        self.assertEqual([database.content(1)], self.held(self.plan()))

    def test_noise_in_the_history_keeps_the_plan(self):
        self.set_terms(least_saving=0.02)
        self.add_requests('t1', 10, 5)
        first = self.plan()
        for n in range(6):
            self.add_requests(f't{1 + n % 2}', 100 + n, 1)
            self.assertEqual(first, self.plan())

    def test_held_object_is_preferred(self):
        self.set_terms(move_weight=20.0)
        self.write(held_rows.put_holdings, 'h1', [objects.Holding(
            kind=objects.IMAGES, id=database.content(1), bytes=SIZE)],
            versioned.now())
        self.add_requests('t1', 10, 4)
        self.assertEqual([database.content(1)], self.held(self.plan()))

    def test_drained_host_is_emptied_whatever_it_costs(self):
        self.add_host('h2')
        self.set_terms(move_weight=0.001)
        first = self.plan()
        self.assertTrue(self.held(first, 'h1'))
        self.conf.set_override('drained_hosts', ['h1'], 'planner')
        second = self.plan()
        self.assertEqual([], self.held(second, 'h1'))
        self.assertTrue(self.held(second, 'h2'))

    def test_other_solvers_are_held_to_it_too(self):
        self.conf.set_override('solver', 'ilp', 'planner')
        first = self.plan()
        self.add_requests('t1', 10, 6)
        self.set_terms(move_weight=100.0)
        self.assertEqual(first, self.plan())


class TestRefusals(PlannerTest):

    def test_empty_catalogue(self):
        error = self.assertRaises(exceptions.NotFound, self.plan)
        self.assertIn('catalogue is empty', str(error))

    def test_no_living_host(self):
        self.add_images(1)
        self.write(host_rows.expire_hosts, versioned.now())
        error = self.assertRaises(exceptions.NotFound, self.plan)
        self.assertIn(database.SITE, str(error))

    def test_unknown_solver_is_named(self):
        self.add_images(1)
        self.conf.set_override('solver', 'oracle', 'planner')
        error = self.assertRaises(exceptions.InvalidInput, self.plan)
        self.assertIn('oracle', str(error))

    def test_lease_is_given_back_after_a_failure(self):
        self.assertRaises(exceptions.NotFound, self.plan)
        self.add_images(1)
        self.assertEqual(['h1'], self.plan().hosts)


class TestSeveralConductors(PlannerTest):

    def setUp(self):
        super().setUp()
        self.add_images(1)

    def lease(self, seconds):
        now = versioned.now()
        self.write(plans.take_lease, f'plan:{database.SITE}', 'other', now,
                   now + database.datetime.timedelta(seconds=seconds))

    def test_other_one_is_planning(self):
        self.lease(60)
        error = self.assertRaises(exceptions.Busy, self.plan)
        self.assertIn('other', str(error))

    def test_other_one_died_while_planning(self):
        self.lease(-1)
        self.assertEqual(['h1'], self.plan().hosts)

    def test_wait_for_the_other_one(self):
        self.lease(60)
        threading.Timer(0.3, self.write, (
            plans.drop_lease, f'plan:{database.SITE}', 'other')).start()
        plan = self.planner.plan(database.SITE, wait_seconds=60)
        self.assertEqual(['h1'], plan.hosts)
