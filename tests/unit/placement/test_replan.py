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

import numpy as np

from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import replan
from diffcache_openstack.placement import solving
from tests import base
from tests.unit.placement import shapes


def placed(instance, placement):
    held = instances.Held(tuple(sorted(placement.templates)),
                          tuple(sorted(placement.patches)))
    return dataclasses.replace(instance, placed=held)


class TestLate(base.TestCase):
    """Two images of 100 MB take a host 80 s each; windows are of 100 s."""

    def left(self, days, hosts=1, **values):
        instance = instances.from_dict({
            'sizes': [100, 100], 'patch_sizes': [],
            'capacities': [200] * hosts, 'rates': [[1] * hosts, [3] * hosts],
            'bandwidths': {'local': 800, 'peer': 400, 'repo': 10}, **values})
        both = placements.Placement.of(
            [(n, host) for n in (0, 1) for host in range(1, hosts + 1)])
        terms = replan.Terms(horizon_s=days * 86400.0,
                             fill=replan.FillLimits(window_s=100.0))
        worth = {(n, host): float(instance.rates[n, host - 1])
                 for n, host in both.templates}
        return set(replan.leave_out_late(
            instance, both, worth, terms).templates)

    def test_what_saves_most_is_fetched_first(self):
        # The second one ends after 20 s + 80 s, in the window of the next
        # day: 86400 s + 60 s.
        self.assertEqual({(1, 1)}, self.left(1.0))
        self.assertEqual({(0, 1), (1, 1)}, self.left(1.001))

    def test_nothing_arrives_that_takes_longer_than_the_plan_lasts(self):
        self.assertEqual(set(), self.left(79 / 86400))
        self.assertEqual({(1, 1)}, self.left(80 / 86400))

    def test_pinned_and_held_objects_stay(self):
        for field in ('pinned', 'placed'):
            held = {'templates': [[0, 1]], 'patches': []}
            self.assertIn((0, 1), self.left(79 / 86400, **{field: held}))

    def test_copy_from_a_late_peer_is_late_too(self):
        """Hosts read an image from one another in 2 s.

        Host 2 holds the first one, and reads the second from host 1, which
        has both after 82 s.
        """
        self.assertEqual({(0, 1), (0, 2), (1, 1), (1, 2)}, self.left(
            82 / 86400, hosts=2,
            placed={'templates': [[0, 2]], 'patches': []}))
        self.assertEqual(set(), self.left(79 / 86400, hosts=2))


class TestReplan(base.TestCase):
    def setUp(self):
        super().setUp()
        self.instance = shapes.stored('testbed_s0')
        self.best = solving.load('auto').solve(self.instance).placement

    def test_first_plan_fills_from_the_repository_once(self):
        plan = replan.replan(self.instance)
        self.assertTrue(plan.changed)
        from_far = [m.key for m in plan.moves if not m.source]
        self.assertEqual(len(set(from_far)), len(from_far))
        self.assertAlmostEqual(
            plan.wan_mb,
            sum(m.megabytes for m in plan.moves if not m.source),
        )
        self.assertGreater(plan.saving_per_hour_s, 0)
        self.assertEqual(840000.0, plan.cost_before_s)

    def test_noise_moves_nothing(self):
        rng = np.random.default_rng(3)
        for _ in range(4):
            noisy = self.instance.rates + rng.normal(0, 2, (5, 3))
            now = placed(
                dataclasses.replace(self.instance, rates=np.maximum(noisy, 0)),
                self.best,
            )
            plan = replan.replan(now)
            self.assertFalse(plan.changed)
            self.assertEqual(self.best, plan.placement)

    def test_a_plan_not_worth_its_transfers_is_not_made(self):
        terms = replan.Terms(move_weight=1000.0, horizon_s=3600.0)
        plan = replan.replan(self.instance, terms)
        self.assertFalse(plan.changed)
        self.assertEqual(plan.cost_before_s, plan.cost_after_s)

    def test_draining_a_host_moves_what_it_had_to_others(self):
        now = dataclasses.replace(placed(self.instance, self.best),
                                  excluded=frozenset([2]))
        plan = replan.replan(now)
        self.assertEqual((), tuple(placements.errors(now, plan.placement)))
        self.assertFalse([e for e in plan.placement.templates if e[1] == 2])
        self.assertTrue([d for d in plan.drops if d[1] == 2])

    def test_a_drained_host_is_still_read_from(self):
        now = instances.from_dict(
            {'sizes': [1000], 'patch_sizes': [], 'capacities': [1500, 1500],
             'rates': [[5, 5]],
             'bandwidths': {'local': 400, 'peer': 200, 'repo': 10},
             'placed': {'templates': [[0, 1]]}, 'excluded': [1]}
        )
        plan = replan.replan(now)
        self.assertEqual([((0,), 2, 1)],
                         [(m.key, m.host, m.source) for m in plan.moves])
        self.assertEqual(0, plan.wan_mb)

    def test_an_added_host_is_used(self):
        bigger = dataclasses.replace(
            placed(self.instance, self.best),
            capacities=np.append(self.instance.capacities, 15000.0),
            rates=np.column_stack([self.instance.rates, [20.0] * 5]),
            bandwidths=instances.Bandwidths.uniform(4, 400, 200, 20),
            sites=np.zeros(4, dtype=int),
        )
        plan = replan.replan(bigger)
        self.assertTrue([m for m in plan.moves if m.host == 4])
        self.assertLess(plan.cost_after_s, plan.cost_before_s)

    def test_fill_keeps_rate_and_window(self):
        quick = replan.compare(self.instance, self.best)
        slow = replan.compare(
            self.instance,
            self.best,
            replan.Terms(fill=replan.FillLimits(10.0, 3600.0)),
        )
        self.assertGreater(slow.fill_s[2], 86400.0)
        busy = sum(m.seconds for m in quick.moves if m.host == 2)
        self.assertAlmostEqual(busy, quick.fill_s[2])

    def test_copies_between_hosts_wait_for_no_window(self):
        """2 s over the LAN do not wait for windows of 1 s, 80 s do."""
        terms = replan.Terms(fill=replan.FillLimits(window_s=1.0))
        instance = instances.from_dict({
            'sizes': [100], 'patch_sizes': [], 'capacities': [100, 100],
            'rates': [[1, 1]],
            'bandwidths': {'local': 800, 'peer': 400, 'repo': 10}})
        both = placements.Placement.of([(0, 1), (0, 2)])
        found = replan.compare(instance, both, terms).fill_s
        self.assertAlmostEqual(79 * 86400 + 1, found[1])
        # There is nothing to copy before.
        self.assertAlmostEqual(79 * 86400 + 3, found[2])
        there = placed(instance, placements.Placement.of([(0, 1)]))
        found = replan.compare(there, both, terms).fill_s
        self.assertEqual({2}, set(found))
        self.assertAlmostEqual(2, found[2])

    def test_limits_of_one_host(self):
        limits = replan.FillLimits(10.0, 3600.0)
        alike = replan.compare(
            self.instance, self.best, replan.Terms(fill=limits))
        own = replan.compare(
            self.instance, self.best, replan.Terms(fills={2: limits}))
        quick = replan.compare(self.instance, self.best)
        self.assertEqual({**quick.fill_s, 2: alike.fill_s[2]}, own.fill_s)

    def test_drops_are_named(self):
        plan = replan.compare(placed(self.instance, self.best),
                              placements.Placement())
        self.assertEqual(len(self.best.templates) + len(self.best.patches),
                         len(plan.drops))
