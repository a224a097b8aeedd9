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

from hypothesis import given
from hypothesis import strategies

from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import lookup
from diffcache_openstack.placement import placements
from tests import base
from tests.unit.placement import evaluator
from tests.unit.placement import shapes


class TestCost(base.TestCase):
    @given(seed=strategies.integers(0, 10**6), hops=strategies.integers(0, 3))
    def test_agrees_with_the_definition(self, seed, hops):
        document = shapes.small(seed, templates=4, hosts=3)
        document['sites'] = [0, 0, seed % 2]
        document['bandwidths']['repo'] = [10, 300, 20]
        instance = instances.from_dict(document)
        placement = shapes.any_placement(instance, seed)
        expected = evaluator.total_cost(instance, placement, hops)
        self.assertAlmostEqual(
            1.0,
            cost.total_cost(instance, placement, hops) / expected,
            places=12,
        )

    @given(seed=strategies.integers(0, 10**6), hops=strategies.integers(1, 3))
    def test_megabytes_over_the_wan_are_those_of_the_cheapest_ways(
            self, seed, hops):
        instance = instances.from_dict(shapes.compressed(seed))
        placement = shapes.any_placement(instance, seed)
        number = instance.patch_index()
        expected = 0.0
        for j in range(instance.template_count):
            for r in range(instance.host_count):
                way = lookup.LookupTable(instance, placement).ways(
                    j, r + 1, hops)[0]
                far = [instance.patch_sizes[number[patch.base, patch.target]]
                       for patch, source in zip(way.patches,
                                                way.patch_sources)
                       if not source]
                if not way.source:
                    far.append(instance.wire_sizes[way.template])
                expected += instance.rates[j, r] * sum(far)
        self.assertAlmostEqual(
            expected, cost.wan_megabytes(instance, placement, hops),
            delta=1e-3 + 1e-4 * expected)

    def test_two_hops_are_two_patches_in_any_order_of_rows(self):
        document = shapes.document('adv_chain_s0')
        hosts = range(1, len(document['capacities']) + 1)
        placement = placements.Placement.of(
            [(0, 1)],
            ((i, j, h) for i, j, *_ in document['patch_sizes']
             for h in hosts))
        rows = sorted(document['patch_sizes'])
        for ordered in (rows, rows[::-1], document['patch_sizes']):
            instance = instances.from_dict(
                {**document, 'patch_sizes': ordered})
            self.assertAlmostEqual(
                1.0, cost.total_cost(instance, placement, 2)
                / evaluator.total_cost(instance, placement, 2), places=12)

    def test_evaluation_lists_what_is_wrong(self):
        instance = shapes.stored('testbed_s0')
        full = placements.Placement.of([(0, 1), (1, 2)])
        result = cost.evaluate(instance, full)
        self.assertFalse(result.feasible)
        self.assertEqual(1, len(result.errors))
        self.assertIn('host 1', result.errors[0])

    def test_mean_is_per_request(self):
        instance = shapes.stored('testbed_s0')
        result = cost.evaluate(instance, placements.Placement())
        self.assertAlmostEqual(2800.0, result.mean_service_s)

    def test_unknown_names_are_refused(self):
        instance = shapes.stored('testbed_s0')
        for bad in (placements.Placement.of([(5, 1)]),
                    placements.Placement.of([(0, 0)]),
                    placements.Placement.of([], [(0, 0, 1)]),
                    placements.Placement.of([], [(0, 1, 4)])):
            self.assertRaises(placements.PlacementError, cost.evaluate,
                              instance, bad)
