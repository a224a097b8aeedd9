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
"""Chunk groups: the CloudVS paper's figures 3 to 6, and the automatic way."""

import dataclasses

import hypothesis
from hypothesis import strategies as st
import numpy as np

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import alpha
from tests import base

# Of figure 3: the differential delta of version 2 has the chunks 3, 5, 6 and
# 7, which lie in the versions 1, 2, 1 and 2.
FIGURE_3 = np.array([1, 2, 1, 2])
# Of figure 5: chunks 3 to 6 of VM C. The third is VM A's, the rest its own.
FIGURE_5_C = np.array([1, 3, 3, 3])


class TestPaper(base.TestCase):

    def test_figure_3_restoring_in_one_group_jumps_three_times(self):
        counts = alpha.non_sequential_reads(FIGURE_3, 4)
        self.assertEqual([3], counts.tolist())

    def test_figure_4_groups_of_two_jump_once_each(self):
        counts = alpha.non_sequential_reads(FIGURE_3, 2)
        self.assertEqual([1, 1], counts.tolist())

    def test_figure_4_stores_the_first_group_as_differential(self):
        self.assertEqual([0], alpha.select(FIGURE_3, 2, 0.5))

    def test_figure_6_stores_chunks_3_and_4_of_vm_c_as_differential(self):
        counts = alpha.non_sequential_reads(FIGURE_5_C, 2)
        self.assertEqual([1, 0], counts.tolist())
        self.assertEqual([0], alpha.select(FIGURE_5_C, 2, 0.5))

    def test_the_extremes_are_incremental_and_differential(self):
        self.assertEqual([], alpha.select(FIGURE_3, 2, 0))
        self.assertEqual([0, 1], alpha.select(FIGURE_3, 2, 1))

    def test_the_most_fragmented_groups_come_first(self):
        owners = np.array([1, 1, 1, 1, 2, 1, 2, 2, 1, 2, 1, 2])
        self.assertEqual([2], alpha.select(owners, 4, 0.3))
        self.assertEqual([1, 2], alpha.select(owners, 4, 0.6))

    def test_the_last_group_may_be_shorter(self):
        owners = np.array([1, 1, 2, 3, 4])
        counts = alpha.non_sequential_reads(owners, 2)
        self.assertEqual([0, 1, 0], counts.tolist())

    def test_nothing_to_restore_has_no_groups(self):
        self.assertEqual([], alpha.select(np.array([], dtype=int), 500, 1))

    def test_what_is_out_of_range_is_refused(self):
        for size, value in ((2, 1.1), (2, -0.1), (0, 0.5)):
            self.assertRaises(exceptions.InvalidInput, alpha.select,
                              FIGURE_3, size, value)

    @hypothesis.given(st.lists(st.integers(0, 3), max_size=60),
                      st.integers(1, 9), st.floats(0, 1))
    def test_counts_are_those_of_reading_chunk_by_chunk(
            self, owners, size, value):
        counts = []
        for start in range(0, len(owners), size):
            group = owners[start:start + size]
            counts.append(sum(one != other for one, other
                              in zip(group, group[1:])))
        found = alpha.non_sequential_reads(np.array(owners, dtype=int), size)
        self.assertEqual(counts, found.tolist())
        chosen = alpha.select(np.array(owners, dtype=int), size, value)
        left = set(range(len(counts))) - set(chosen)
        if chosen and left:
            self.assertGreaterEqual(min(counts[i] for i in chosen),
                                    max(counts[i] for i in left))


class TestAutomatic(base.TestCase):

    def test_what_is_fast_enough_stays(self):
        costs = alpha.Costs(np.array([10.0, 11.0]), np.array([10.0, 10.0]),
                            np.array([5.0, 5.0]))
        self.assertEqual([], alpha.automatic(costs, 1.1))

    def test_what_a_restore_costs_anyway_counts(self):
        costs = alpha.Costs(np.array([40.0, 10.0]), np.array([10.0, 10.0]),
                            np.array([30.0, 1.0]))
        self.assertEqual([0], alpha.automatic(costs, 1.2))
        besides = dataclasses.replace(costs, common=130.0)
        self.assertEqual([], alpha.automatic(besides, 1.2))

    def test_the_best_gain_for_its_bytes_is_stored(self):
        costs = alpha.Costs(np.array([40.0, 40.0, 10.0]),
                            np.array([10.0, 10.0, 10.0]),
                            np.array([30.0, 3.0, 1.0]))
        self.assertEqual([1], alpha.automatic(costs, 2.0))

    def test_a_factor_below_one_is_refused(self):
        costs = alpha.Costs(np.ones(1), np.ones(1), np.ones(1))
        self.assertRaises(exceptions.InvalidInput, alpha.automatic, costs,
                          0.9)

    @hypothesis.given(
        st.lists(st.tuples(st.floats(1, 100), st.floats(0, 100),
                           st.floats(0, 100)), max_size=30),
        st.floats(1, 3))
    def test_the_goal_is_reached_and_no_group_is_in_vain(
            self, groups, factor):
        contiguous = np.array([group[0] for group in groups])
        now = contiguous + np.array([group[1] for group in groups])
        costs = alpha.Costs(now, contiguous,
                            np.array([group[2] for group in groups]))
        chosen = alpha.automatic(costs, factor)
        goal = factor * contiguous.sum()

        def cost(stored):
            return sum(contiguous[i] if i in stored else now[i]
                       for i in range(len(groups)))

        self.assertLessEqual(cost(chosen), goal + 1e-6)
        for group in chosen:
            self.assertGreater(cost(set(chosen) - {group}), goal - 1e-6)
