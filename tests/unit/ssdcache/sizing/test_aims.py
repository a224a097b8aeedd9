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
"""Policies with an aim, against all possible sizes."""

import dataclasses

from hypothesis import given

from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.ssdcache.sizing import base
from tests.unit.ssdcache.sizing import conformance

volume = conformance.volume


class LatencyTest(conformance.PolicyConformance):

    policy = 'latency'

    @given(conformance.instances())
    def test_no_sizes_do_better(self, instance):
        volumes, cache = instance
        volumes = [dataclasses.replace(each, target=None) for each in volumes]

        def cost(sizes):
            return sum(each.weight * cache.latency_us(each, size)
                       for each, size in zip(volumes, sizes))

        found = self.size(volumes, cache)
        self.assertTrue(found.optimal)
        best = min(map(cost, conformance.possible(volumes, cache)))
        self.assertAlmostEqual(best, cost(found.sizes.values()), delta=1e-6
                               * max(1.0, best))

    def test_a_cliff_is_reached(self):
        found = self.size([volume('a', 10, 9, 8, 7),
                           volume('b', 0, 0, 0, 100)], base.Cache(5))
        self.assertEqual({'a': 1, 'b': 4}, found.sizes)

    def test_hits_that_are_no_faster_gain_nothing(self):
        found = self.size([volume('a', 9, 9, min=1)],
                          base.Cache(5, hit_us=10.0, miss_us=10.0))
        self.assertEqual(({'a': 1}, True), (found.sizes, found.optimal))

    def test_targets_first_then_latency(self):
        found = self.size([
            volume('a', 1, 1, 1, 1, target=choices.Target(hit_ratio=0.5)),
            volume('b', 9, 9, 9)], base.Cache(5))
        # 8 references, of which 4 hit in 4 blocks.
        self.assertEqual(({'a': 4, 'b': 1}, [], True), (
            found.sizes, found.infeasible, found.optimal))

    def test_targets_of_latency(self):
        # Of 8 references 4 have to hit.
        target = choices.Target(latency_us=2550.0)
        found = self.size([volume('a', 1, 1, 1, 1, target=target),
                           volume('b', 99)], base.Cache(4))
        self.assertEqual(({'a': 4, 'b': 0}, []),
                         (found.sizes, found.infeasible))

    def test_a_target_beyond_all_sizes(self):
        for target in (choices.Target(hit_ratio=0.9),
                       choices.Target(latency_us=99.0)):
            found = self.size([volume('a', 1, 1, target=target)],
                              base.Cache(9))
            self.assertEqual(['a'], found.infeasible)

    def test_a_target_that_is_always_met(self):
        found = self.size(
            [volume('a', 0, 0, target=choices.Target(latency_us=5000.0))],
            base.Cache(9))
        self.assertEqual(({'a': 0}, []), (found.sizes, found.infeasible))

    def test_of_too_many_targets_the_heavier_are_met(self):
        target = choices.Target(hit_ratio=0.5)
        found = self.size([
            volume('a', 1, 1, 1, target=target),
            volume('b', 1, 1, 1, target=target, weight=2.0)], base.Cache(4))
        self.assertEqual(['a'], found.infeasible)
        self.assertEqual(3, found.sizes['b'])

    def test_ratios_are_not_rounded_up(self):
        # 0.1 times 30 references is above 3 in binary fractions.
        hits = [1] * 15
        found = self.size([volume('a', *hits, target=choices.Target(0.1))],
                          base.Cache(3))
        self.assertEqual([], found.infeasible)


class FairnessTest(conformance.PolicyConformance):

    policy = 'fairness'

    @given(conformance.instances())
    def test_the_least_ratio_is_the_largest_possible(self, instance):
        volumes, cache = instance

        def least(sizes):
            return min(base.hit_ratio(each, size)
                       for each, size in zip(volumes, sizes))

        found = self.size(volumes, cache)
        best = max(map(least, conformance.possible(volumes, cache)))
        self.assertAlmostEqual(best, least(found.sizes.values()))

    def test_what_is_left_goes_where_it_brings_most(self):
        # Both hit half; one block more brings 6 hits to the second.
        found = self.size([volume('a', 5, 1, 1), volume('b', 0, 9, 6)],
                          base.Cache(4))
        self.assertEqual({'a': 1, 'b': 3}, found.sizes)

    def test_one_without_hits_takes_nothing_from_the_others(self):
        found = self.size([volume('a', 0, 0, 0), volume('b', 3, 3, 3)],
                          base.Cache(3))
        self.assertEqual({'a': 0, 'b': 3}, found.sizes)
