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
"""Policies that are rules."""

from diffcache_openstack.ssdcache.sizing import base
from tests.unit.ssdcache.sizing import conformance

volume = conformance.volume


class StaticTest(conformance.PolicyConformance):

    policy = 'static'

    def sizes(self, *volumes, capacity, step=1):
        return list(self.size(volumes, base.Cache(capacity, step))
                    .sizes.values())

    def test_shares_follow_weights(self):
        self.assertEqual([25, 75], self.sizes(
            volume('a', 1), volume('b', 1, weight=3.0), capacity=100))

    def test_what_one_may_not_have_is_for_the_others(self):
        self.assertEqual([10, 45, 45], self.sizes(
            volume('a', 1, max=10), volume('b', 1), volume('c', 1),
            capacity=100))

    def test_steps(self):
        self.assertEqual([8, 4], self.sizes(
            volume('a', 1), volume('b', 1), capacity=12, step=4))


class WorkingSetTest(conformance.PolicyConformance):

    policy = 'wss'

    def sizes(self, *volumes, capacity, step=1):
        return list(self.size(volumes, base.Cache(capacity, step))
                    .sizes.values())

    def test_in_proportion_to_blocks(self):
        found = self.sizes(volume('a', *[1] * 30), volume('b', *[0] * 10),
                           capacity=20)
        self.assertEqual([15, 5], found)

    def test_none_above_its_own(self):
        found = self.sizes(volume('a', *[1] * 30), volume('b', *[0] * 10),
                           capacity=200)
        self.assertEqual([30, 10], found)

    def test_least_sizes(self):
        found = self.sizes(volume('a', *[1] * 30),
                           volume('b', *[0] * 10, min=10), capacity=20)
        self.assertEqual([10, 10], found)


class PriorityTest(conformance.PolicyConformance):

    policy = 'priority'

    def test_the_highest_first(self):
        found = self.size([volume('a', 9, 9), volume('b', 0, 0, weight=2.0),
                           volume('c', 9, weight=3.0)], base.Cache(4))
        self.assertEqual({'a': 1, 'b': 2, 'c': 1}, found.sizes)

    def test_least_sizes_come_before_all(self):
        found = self.size([volume('a', 9, 9, min=1),
                           volume('b', 9, 9, 9, weight=2.0)], base.Cache(3))
        self.assertEqual({'a': 1, 'b': 2}, found.sizes)


class PooledTest(conformance.PolicyConformance):

    policy = 'pooled'

    def test_volumes_with_more_misses_have_more(self):
        found = self.size([volume('a', *[0] * 300), volume('b', *[0] * 100)],
                          base.Cache(200))
        self.assertEqual({'a': 150, 'b': 50}, found.sizes)

    def test_what_is_reserved(self):
        found = self.size([volume('a', *[0] * 300),
                           volume('b', *[0] * 100, min=80)], base.Cache(200))
        self.assertEqual({'a': 120, 'b': 80}, found.sizes)
