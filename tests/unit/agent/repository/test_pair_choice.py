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
import itertools

from diffcache_openstack.agent.repository import pair_choice
from tests import base

SIZES = {'a': 100, 'b': 110, 'c': 200, 'far': 1000}


class ChooseTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.compared = []
        self.estimates = pair_choice.Estimates(SIZES.get, self.compare)

    def compare(self, one, two):
        self.compared.append((one, two))
        return abs(two - one)

    def choose(self, ratio=10.0, nearest=9, made=()):
        wanted = set(itertools.permutations(SIZES, 2)) - set(made)
        return pair_choice.choose(wanted, self.estimates, SIZES, made,
                                  pair_choice.Limits(ratio, nearest))

    def test_all_if_nothing_forbids_it_smallest_first(self):
        chosen = self.choose()
        self.assertEqual(12, len(chosen))
        self.assertEqual([('a', 'b'), ('b', 'a')], chosen[:2])

    def test_nearest_bases_of_each_target(self):
        self.assertEqual(
            [('a', 'b'), ('b', 'a'), ('b', 'c'), ('c', 'far')],
            self.choose(nearest=1))

    def test_what_is_made_counts_among_the_nearest(self):
        self.assertEqual([('a', 'b'), ('b', 'c'), ('c', 'far')],
                         self.choose(nearest=1, made=[('b', 'a')]))

    def test_patches_surely_too_large_are_left_out(self):
        self.assertNotIn(('far', 'a'), self.choose(ratio=1.0))
        self.assertIn(('c', 'a'), self.choose(ratio=1.0))

    def test_a_doubtful_estimate_is_given_a_chance(self):
        self.assertIn(('c', 'a'), self.choose(ratio=0.7))

    def test_each_pair_is_compared_once(self):
        self.choose()
        self.choose()
        self.assertEqual(12, len(self.compared))

    def test_nothing_is_compared_for_what_is_complete(self):
        made = list(itertools.permutations(SIZES, 2))
        self.assertEqual([], self.choose(made=made))
        self.assertEqual([], self.compared)
