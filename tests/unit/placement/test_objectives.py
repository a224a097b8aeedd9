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

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies

from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import objectives
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import replan
from diffcache_openstack.placement import solving
from tests import base
from tests.unit.placement import shapes

SECONDS = objectives.OBJECTIVES['seconds']
WAN_BYTES = objectives.OBJECTIVES['wan_bytes']


def exactly(instance, terms, time_limit):
    return solving.load('ilp').solve(instance, time_limit=time_limit)


def solve(objective, instance):
    terms = replan.Terms(horizon_s=10 * 86400.0)
    return objective.solve(instance, terms, exactly).placement


def slow_patch():
    """A base of 100 MB in reach, and a patch that takes longer than the WAN.

    The second template is 100 MB and takes 80 s from the repository; with
    the patch of 1 MB it takes 200 s.
    """
    return instances.from_dict({
        'sizes': [100, 100],
        'patch_sizes': [[0, 1, 1, 200.0]],
        'capacities': [100],
        'rates': [[1], [1]],
        'bandwidths': {'local': 800, 'peer': 400, 'repo': 10},
    })


class TestProofs(base.TestCase):

    def test_a_second_counts_as_a_kilobyte_in_proofs_of_bytes(self):
        # The second host waits longer for slightly fewer bytes.
        instance = instances.from_dict({
            'sizes': [10.0, 9.95], 'patch_sizes': [], 'capacities': [10, 0],
            'rates': [[1, 0], [0, 1]],
            'bandwidths': {'local': 1e6, 'peer': 1e5, 'repo': [10, 1]}})
        solution = WAN_BYTES.solve_afresh(
            instance, lambda priced, _seconds: exactly(priced, None, None))
        self.assertTrue(solution.proved_optimal)

        def counted(placement):
            return (WAN_BYTES.measure(instance, placement)
                    + 0.001 * SECONDS.measure(instance, placement))
        fewer_bytes = placements.Placement.of([(0, 1)])
        self.assertLess(WAN_BYTES.measure(instance, fewer_bytes),
                        WAN_BYTES.measure(instance, solution.placement))
        self.assertLess(counted(solution.placement), counted(fewer_bytes))


class TestObjectives(base.TestCase):

    @settings(max_examples=12)
    @given(seed=strategies.integers(0, 10**6),
           slowness=strategies.sampled_from([0.1, 1.0, 30.0]))
    def test_none_is_worse_by_its_own_measure_than_the_other(
            self, seed, slowness):
        instance = instances.from_dict(shapes.compressed(seed))
        instance = dataclasses.replace(
            instance, patch_seconds=instance.patch_seconds * slowness)
        fast, lean = solve(SECONDS, instance), solve(WAN_BYTES, instance)
        for objective, own, other in (
                (SECONDS, fast, lean), (WAN_BYTES, lean, fast)):
            reached = objective.measure(instance, own)
            self.assertLessEqual(
                reached,
                objective.measure(instance, other) * (1 + 1e-6) + 1e-6)
            self.assertEqual([], placements.errors(instance, own))

    @given(seed=strategies.integers(0, 10**6))
    def test_priced_seconds_are_the_fewest_bytes(self, seed):
        instance = instances.from_dict(shapes.compressed(seed))
        placement = shapes.any_placement(instance, seed)
        priced = cost.total_cost(WAN_BYTES.priced(instance), placement)
        most = 1e-3 * cost.total_cost(instance, placement)
        taken = WAN_BYTES.measure(instance, placement)
        # Fastest ways take no fewer bytes than the leanest.
        self.assertLessEqual(priced, taken + most + 1e-3 * (1 + taken))

    def test_objectives_disagree(self):
        """There is room for one; the first saves 24 s, the second 25.6."""
        instance = instances.from_dict({
            'sizes': [100, 40], 'wire_sizes': [50, 40],
            'patch_sizes': [], 'capacities': [100],
            'rates': [[1.0], [1.0]],
            'bandwidths': {'local': 50, 'peer': 40, 'repo': 10},
        })
        fast, lean = solve(SECONDS, instance), solve(WAN_BYTES, instance)
        self.assertEqual({(1, 1)}, set(fast.templates))
        self.assertEqual({(0, 1)}, set(lean.templates))
        self.assertAlmostEqual(46.4, SECONDS.measure(instance, fast))
        self.assertAlmostEqual(48.0, SECONDS.measure(instance, lean))
        self.assertEqual(50.0, round(WAN_BYTES.measure(instance, fast), 3))
        self.assertEqual(40.0, round(WAN_BYTES.measure(instance, lean), 3))

    def test_bytes_are_those_of_the_ways_that_hosts_take(self):
        """The patch is near, but the whole image is faster."""
        instance = slow_patch()
        placement = placements.Placement.of([(0, 1)], [])
        self.assertEqual(
            100.0, round(WAN_BYTES.measure(instance, placement), 3))

    def test_moved_bytes_count_as_fetched_ones(self):
        """One request a day of 100 MB does not pay 100 MB moved daily."""
        instance = instances.from_dict({
            'sizes': [100], 'patch_sizes': [], 'capacities': [100],
            'rates': [[1.0]],
            'bandwidths': {'local': 800, 'peer': 400, 'repo': 10},
        })
        empty = placements.Placement()
        solution = WAN_BYTES.solve(instance, replan.Terms(), exactly)
        self.assertTrue(solution.placement.templates)
        for days, pays in ((0.9, False), (2.0, True)):
            terms = replan.Terms(horizon_s=days * 86400.0, move_weight=0.0)
            self.assertEqual(pays, WAN_BYTES.worth(
                instance, empty, solution, terms))
            self.assertTrue(SECONDS.worth(instance, empty, solution, terms))

    def test_costs_and_bound_are_seconds(self):
        instance = shapes.stored('rand_s3_N8_K2')
        solution = WAN_BYTES.solve(instance, replan.Terms(), exactly)
        self.assertAlmostEqual(
            cost.total_cost(instance, solution.placement), solution.cost_s)
        self.assertLessEqual(solution.lower_bound_s, solution.cost_s)
        self.assertAlmostEqual(
            1.0, solution.lower_bound_s / shapes.OPTIMA['rand_s3_N8_K2'],
            places=4)
