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
"""Sizes that follow what volumes do."""

from hypothesis import given
from hypothesis import strategies as st

from diffcache_openstack.ssdcache import epochs
from diffcache_openstack.ssdcache.sizing import base
from tests import base as test_base
from tests.unit.ssdcache.sizing import conformance

volume = conformance.volume


class SizerTest(test_base.TestCase):

    # One volume gains from each block of the cache, the other from none.
    VOLUMES = [volume('a', *[9] * 100), volume('b', *[0] * 100)]
    EQUAL = {'a': 50, 'b': 50}

    def sizer(self, policy='latency', capacity=100, **rules):
        return epochs.Sizer(base.load(policy), base.Cache(capacity),
                            epochs.Rules(**rules))

    def test_sizes_follow_the_policy(self):
        decision = self.sizer(largest=1.0).decide(self.VOLUMES, self.EQUAL)
        self.assertTrue(decision.changed)
        self.assertEqual({'a': 100, 'b': 0}, decision.sizes)
        self.assertEqual('50 blocks move to other volumes',
                         decision.explain[0])

    def test_the_largest_step(self):
        sizer, sizes = self.sizer(largest=0.2), self.EQUAL
        seen = []
        for _epoch in range(4):
            sizes = sizer.decide(self.VOLUMES, sizes).sizes
            seen.append(sizes['a'])
        self.assertEqual([70, 90, 100, 100], seen)

    def test_warm_up(self):
        sizer = self.sizer(warm_up=2)
        idle = [volume('a'), volume('b')]
        for volumes, changed in ((self.VOLUMES, False), (idle, False),
                                 (self.VOLUMES, True)):
            decision = sizer.decide(volumes, self.EQUAL)
            self.assertEqual(changed, decision.changed)

    def test_cool_down(self):
        sizer = self.sizer(cool_down=2, largest=0.1)
        changed = [sizer.decide(self.VOLUMES, self.EQUAL).changed
                   for _epoch in range(6)]
        self.assertEqual([True, False, False, True, False, False], changed)

    def test_small_changes_are_left_out(self):
        sizer = self.sizer(hysteresis=0.6)
        decision = sizer.decide(self.VOLUMES, self.EQUAL)
        self.assertEqual((self.EQUAL, False), (decision.sizes,
                                               decision.changed))
        self.assertEqual(['sizes stay: 50 blocks would move, fewer than 60'],
                         decision.explain)

    def test_changes_that_save_too_little_are_left_out(self):
        # One hit of 1,000 references for 50 blocks.
        volumes = [volume('a', *[0] * 99, 1), volume('b', *[0] * 900)]
        decision = self.sizer().decide(volumes, self.EQUAL)
        self.assertFalse(decision.changed)
        self.assertIn('of the latency, less than 1.00%', decision.explain[0])

    def test_policies_without_that_aim_change_all_the_same(self):
        volumes = [volume('a', *[0] * 99, 1), volume('b', *[0] * 900)]
        decision = self.sizer('wss').decide(volumes, self.EQUAL)
        self.assertEqual({'a': 10, 'b': 90}, decision.sizes)

    def test_blocks_that_gain_nothing_now_are_not_left_unused(self):
        volumes = [volume('a', 9, 9), volume('b', *[0] * 10)]
        decision = self.sizer('wss').decide(volumes, self.EQUAL)
        self.assertEqual({'a': 2, 'b': 98}, decision.sizes)

    def test_no_request(self):
        decision = self.sizer().decide([volume('a'), volume('b')], self.EQUAL)
        self.assertEqual((self.EQUAL, False), (decision.sizes,
                                               decision.changed))

    @given(st.lists(conformance.instances(), min_size=1, max_size=4),
           st.floats(0.01, 1))
    def test_sizes_stay_within_the_capacity(self, instances, largest):
        names = [each.name for each in instances[0][0]]
        cache = base.Cache(40)
        sizer = epochs.Sizer(base.load('latency'), cache,
                             epochs.Rules(largest=largest, hysteresis=0.0))
        sizes = {name: cache.capacity // len(names) for name in names}
        for found, _cache in instances:
            curves = {each.name: each.curve for each in found}
            volumes = [base.Volume(name, curves.get(name, conformance.curve(
                []))) for name in names]
            before, sizes = sizes, sizer.decide(volumes, sizes).sizes
            self.assertTrue(base.fits(sizes.values(), cache))
            self.assertTrue(all(size >= 0 for size in sizes.values()))
            most = max(1, int(largest * cache.capacity))
            for name in names:
                self.assertLessEqual(abs(sizes[name] - before[name]), most)
