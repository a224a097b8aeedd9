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
from hypothesis import settings
from hypothesis import strategies
import numpy as np

from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instance as instances
from diffcache_openstack.placement import lookup
from diffcache_openstack.placement import placement as placements
from tests import base
from tests.unit.placement import shapes


def by_definition(instance, placement, hops):
    """Equation 5 term by term, with rounds as they are documented."""
    links = instance.bandwidths
    patches = list(instance.patch_index())

    def fetch(megabytes, holders, host):
        rates = [links.repo[host - 1]]
        for holder in holders:
            if instance.sites[holder - 1] == instance.sites[host - 1]:
                link = links.local if holder == host else links.peer
                rates.append(link[host - 1])
        return 8 * megabytes / max(rates)

    total = 0.0
    for host in range(1, instance.host_count + 1):
        whole = [
            fetch(size, [h for i, h in placement.templates if i == t], host)
            for t, size in enumerate(instance.sizes)
        ]
        step = [
            fetch(size, [h for *p, h in placement.patches if p == [i, j]],
                  host) + apply_s
            for (i, j), size, apply_s in zip(
                patches, instance.patch_sizes, instance.patch_seconds)
        ]
        best = list(whole)
        for round_number in range(hops):
            source = whole if round_number == 0 else best
            for (i, j), seconds in zip(patches, step):
                best[j] = min(best[j], source[i] + seconds)
        total += sum(
            instance.rates[t, host - 1] * seconds
            for t, seconds in enumerate(best)
        )
    return total


def random_placement(instance, seed):
    """Any placement; capacities do not matter to the cost."""
    rng = np.random.default_rng(seed)
    hosts = range(1, instance.host_count + 1)
    return placements.Placement.of(
        (
            (i, h)
            for i in range(instance.template_count)
            for h in hosts
            if rng.random() < 0.3
        ),
        (
            (i, j, h)
            for i, j in instance.patch_index()
            for h in hosts
            if rng.random() < 0.3
        ),
    )


class TestCost(base.TestCase):
    @settings(deadline=None, derandomize=True, max_examples=20)
    @given(seed=strategies.integers(0, 10**6), hops=strategies.integers(0, 3))
    def test_agrees_with_the_definition(self, seed, hops):
        document = shapes.small(seed, templates=4, hosts=3)
        document['sites'] = [0, 0, seed % 2]
        document['bandwidths']['repo'] = [10, 300, 20]
        instance = instances.from_dict(document)
        placement = random_placement(instance, seed)
        expected = by_definition(instance, placement, hops)
        self.assertAlmostEqual(
            1.0,
            cost.total_cost(instance, placement, hops) / expected,
            places=12,
        )

    @settings(deadline=None, derandomize=True, max_examples=20)
    @given(seed=strategies.integers(0, 10**6), hops=strategies.integers(0, 3))
    def test_lookup_finds_the_cheapest_way(self, seed, hops):
        instance = instances.from_dict(shapes.small(seed, hosts=3))
        placement = random_placement(instance, seed)
        seconds = cost.service_seconds(instance, placement, hops)
        table = lookup.LookupTable(instance, placement)
        for j in range(instance.template_count):
            for r in range(instance.host_count):
                best = table.ways(j, r + 1, hops)[0]
                self.assertAlmostEqual(seconds[j, r], best.cost_s)

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
        for bad in (
            placements.Placement.of([(5, 1)]),
            placements.Placement.of([(0, 0)]),
            placements.Placement.of([], [(0, 0, 1)]),
            placements.Placement.of([], [(0, 1, 4)]),
        ):
            self.assertRaises(
                placements.PlacementError, cost.evaluate, instance, bad
            )


class TestLookup(base.TestCase):
    def setUp(self):
        super().setUp()
        self.instance = shapes.stored('testbed_s0')
        self.placement = placements.Placement.of(
            [(0, 2), (0, 3)], [(0, 1, 3), (0, 1, 1)]
        )

    def ways(self, template, host):
        return lookup.ranked_ways(
            self.instance, self.placement, template, host
        )

    def test_repository_is_the_last_resort(self):
        for template in range(5):
            last = self.ways(template, 1)[-1]
            self.assertEqual((0, None), (last.template_source, last.base))
            self.assertEqual(7000.0, last.wan_mb)

    def test_every_holder_is_a_way_of_its_own(self):
        whole = [w.template_source for w in self.ways(0, 1)]
        self.assertEqual([2, 3, 0], whole)

    def test_own_disk_first(self):
        best = self.ways(1, 3)[0]
        self.assertEqual((3, 0, 3), (
            best.template_source, best.base, best.patch_source))
        self.assertEqual(0.0, best.wan_mb)
        self.assertEqual((lookup.Step(0, 1, 3),), best.chain)

    def test_costs_never_fall_along_the_list(self):
        costs = [w.cost_s for w in self.ways(1, 1)]
        self.assertEqual(sorted(costs), costs)

    def test_patch_from_repository_counts_as_wan(self):
        best = self.ways(4, 2)[0]
        self.assertEqual(0, best.patch_source)
        self.assertEqual(589.0, best.wan_mb)
