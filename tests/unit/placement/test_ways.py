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
"""The finders of ways: that of services, that of solvers, and every way."""

import itertools

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies
import numpy as np

from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import lookup
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import ways
from tests import base
from tests.unit.placement import evaluator
from tests.unit.placement import shapes


class TestConformance(base.TestCase):
    """Both finders find what trying every chain finds."""

    @settings(max_examples=40)
    @given(seed=strategies.integers(0, 10**6), hops=strategies.integers(0, 4))
    def test_both_find_the_cheapest_of_all_ways(self, seed, hops):
        self.assert_both_find_the_cheapest(*self.case(seed), hops)

    @settings(max_examples=20)
    @given(seed=strategies.integers(0, 10**6), hops=strategies.integers(0, 4))
    def test_both_count_compressed_templates_from_the_repository(
            self, seed, hops):
        instance = instances.from_dict(shapes.compressed(seed, hosts=2))
        self.assert_both_find_the_cheapest(
            instance, shapes.any_placement(instance, seed), hops)

    def assert_both_find_the_cheapest(self, instance, placement, hops):
        table = lookup.LookupTable(instance, placement)
        solvers = cost.service_seconds(instance, placement, hops)
        for j, r in itertools.product(
                range(instance.template_count), range(instance.host_count)):
            expected = evaluator.service_seconds(
                instance, placement, j, r + 1, hops)
            best = table.ways(j, r + 1, hops)[0]
            only = table.ways(j, r + 1, hops, limit=1)[0]
            for found in (solvers[j, r], best.seconds, only.seconds):
                self.assertAlmostEqual(1.0, found / expected, places=12)

    def test_compressed_or_not_the_repository_is_no_nearer_than_a_peer(self):
        document = shapes.compressed(1, hosts=2)
        document['bandwidths'] = {'local': 100, 'peer': 50, 'repo': 40}
        instance = instances.from_dict(document)
        priced = instance.wire_sizes_priced()
        self.assertTrue((priced >= instance.sizes * 0.8).all())
        self.assertTrue((priced <= instance.sizes).all())

    @settings(max_examples=20)
    @given(seed=strategies.integers(0, 10**6), hops=strategies.integers(0, 4))
    def test_the_order_of_patches_changes_nothing(self, seed, hops):
        instance, placement = self.case(seed)
        shuffled = shapes.with_patches_shuffled(instance, seed)
        first, second = (
            cost.service_seconds(one, placement, hops)
            for one in (instance, shuffled))
        np.testing.assert_allclose(first, second, rtol=1e-12)

    @settings(max_examples=20)
    @given(seed=strategies.integers(0, 10**6), hops=strategies.integers(0, 3))
    def test_ways_are_what_they_claim(self, seed, hops):
        instance, placement = self.case(seed)
        table = lookup.LookupTable(instance, placement)
        for j in range(instance.template_count):
            found = table.ways(j, 1, hops)
            self.assertEqual(len(found), len(set(found)))
            seconds = [way.seconds for way in found]
            self.assertEqual(sorted(seconds), seconds)
            for way in found:
                self.check(instance, placement, way, j)
                self.assertLessEqual(len(way.patches), hops)

    def case(self, seed):
        """A random instance, two sites, unlike links; any placement."""
        document = shapes.small(seed, hosts=3)
        document['sites'] = [0, 0, seed % 2]
        document['bandwidths'] = {
            'local': 400, 'peer': [200, 20, 400], 'repo': [10, 300, 20]}
        instance = instances.from_dict(document)
        return instance, shapes.any_placement(instance, seed)

    def check(self, instance, placement, way, target):
        """The way leads from its template to the target at host 1."""
        number = instance.patch_index()
        at = way.template
        total = self.seconds_from(
            instance, placement, (at,), instance.sizes[at], way.source)
        for patch, source in zip(way.patches, way.patch_sources):
            self.assertEqual(at, patch.base)
            at = patch.target
            e = number[patch.base, at]
            total += instance.patch_seconds[e] + self.seconds_from(
                instance, placement, (patch.base, at),
                instance.patch_sizes[e], source)
        self.assertEqual(target, at)
        self.assertAlmostEqual(total, way.seconds, places=6)

    def seconds_from(self, instance, placement, key, size, source):
        if not source:
            return 8 * size / instance.bandwidths.repo[0]
        self.assertIn((*key, source),
                      placement.templates | placement.patches)
        links = instance.bandwidths
        return 8 * size / (links.local if source == 1 else links.peer)[0]


class _Line:
    """Templates 0..n, each built from the one before in a second.

    The seconds to fetch each template, and those of more than one source.
    """

    def __init__(self, seconds, sources=()):
        self.seconds = seconds
        self.sources = dict(sources)

    def steps_into(self, template, within):
        if not template:
            return []
        patch = lookup.Patch(template - 1, template, 0.0, 1.0)
        return [ways.Step(1.0, patch.base, patch)]

    def template_seconds(self, template):
        return self.seconds[template]

    def template_sources(self, template):
        return self.sources.get(
            template, [ways.Source(self.seconds[template], 'first')])

    def patch_sources(self, patch):
        return [ways.Source(0.0, 'here')]


class TestRank(base.TestCase):
    def test_no_source_no_way(self):
        nowhere = _Line([np.inf, np.inf])
        self.assertEqual([], ways.rank(nowhere, 1, 4))
        self.assertEqual(np.inf, ways.cheapest_seconds(nowhere, 1, 4))

    def test_limits(self):
        line = _Line([3.0, 50.0, 5.0, 9.0])
        self.assertEqual(
            [(6.0, 1), (6.0, 3), (9.0, 0)],
            [(way.seconds, len(way.patches))
             for way in ways.rank(line, 3, 3, limit=3)])
        self.assertEqual([6.0], [way.seconds for way in ways.rank(
            line, 3, 2, most_seconds=8.0)])
        self.assertEqual([], ways.rank(line, 3, 0, most_seconds=8.0))

    def test_other_sources_follow_by_seconds(self):
        sources = [ways.Source(seconds, host) for seconds, host in (
            (2.0, 'a'), (2.0, 'b'), (7.0, 'c'))]
        found = ways.rank(_Line([2.0, 5.0], {0: sources}), 1, 1)
        self.assertEqual(
            [(3.0, 'a'), (3.0, 'b'), (5.0, 'first'), (8.0, 'c')],
            [(way.seconds, way.source) for way in found])


class TestLookupTable(base.TestCase):
    def setUp(self):
        super().setUp()
        self.instance = shapes.stored('testbed_s0')
        self.placement = placements.Placement.of([(0, 2), (0, 3)],
                                                 [(0, 1, 3), (0, 1, 1)])

    def ways(self, template, host):
        return lookup.LookupTable(self.instance, self.placement).ways(
            template, host)

    def test_repository_is_the_last_resort(self):
        for template in range(5):
            last = self.ways(template, 1)[-1]
            self.assertEqual((template, 0), (last.template, last.source))
            self.assertEqual(0, len(last.patches))
            self.assertAlmostEqual(2800.0, last.seconds)

    def test_every_holder_is_a_way_of_its_own(self):
        whole = [w.source for w in self.ways(0, 1)]
        self.assertEqual([2, 3, 0], whole)

    def test_own_disk_first(self):
        best = self.ways(1, 3)[0]
        self.assertEqual((0, 3, (3,)), (
            best.template, best.source, best.patch_sources))
        self.assertEqual([(0, 1)], [
            (patch.base, patch.target) for patch in best.patches])

    def test_patch_from_the_repository(self):
        best = self.ways(4, 2)[0]
        self.assertEqual((0,), best.patch_sources)
        self.assertEqual(589.0, best.patches[0].size)
