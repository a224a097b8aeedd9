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
"""Profiles carried to other images."""

from hypothesis import given
from hypothesis import strategies as st

from diffcache_openstack.prefetch import carry
from diffcache_openstack.prefetch import profiles
from tests import base

_ROWS = st.dictionaries(st.integers(0, 9), st.tuples(
    st.integers(1, 40), st.integers(0, 10 ** 6)), max_size=8)
_SIZES = st.dictionaries(st.integers(0, 9), st.integers(0, 64))
_COMMON = st.dictionaries(
    st.tuples(st.integers(20, 29), st.integers(0, 9)), st.integers(0, 64))


def listed(common):
    return [carry.Common(target, source, amount)
            for (target, source), amount in common.items()]


class CarryTest(base.TestCase):

    @given(_ROWS, st.integers(1, 64))
    def test_a_profile_carried_to_its_own_image_stays(self, rows, size):
        sizes = dict.fromkeys(rows, size)
        common = [carry.Common(chunk, chunk, size) for chunk in rows]
        self.assertEqual(rows, carry.carry(rows, sizes, common))

    @given(_ROWS, _SIZES, _COMMON)
    def test_rows_are_those_of_the_source_and_chunks_of_the_target(
            self, rows, sizes, common):
        carried = carry.carry(rows, sizes, listed(common))
        for chunk, row in carried.items():
            sources = [source for (target, source), amount in common.items()
                       if target == chunk and amount > 0]
            self.assertIn(row, [rows.get(source) for source in sources])
        self.assertLessEqual(profiles.instances(carried),
                             profiles.instances(rows))
        self.assertLessEqual(len(carried), carry.MOST_TARGETS * len(rows))

    @given(_ROWS, _SIZES, _COMMON, st.randoms())
    def test_the_order_changes_nothing(self, rows, sizes, common, chance):
        mixed = listed(common)
        chance.shuffle(mixed)
        self.assertEqual(carry.carry(rows, sizes, listed(common)),
                         carry.carry(rows, sizes, mixed))

    def test_content_that_moved_takes_its_row_along(self):
        rows = {3: (7, 70), 5: (2, 10)}
        common = [carry.Common(8, 3, 40), carry.Common(9, 3, 24),
                  carry.Common(5, 5, 15)]
        # Of chunk 5 less than a quarter is left.
        self.assertEqual({8: (7, 70), 9: (7, 70)},
                         carry.carry(rows, {3: 64, 5: 64}, common))

    def test_of_several_rows_the_most_urgent_counts(self):
        rows = {1: (5, 500), 2: (9, 9000), 3: (9, 900), 4: (1, 0)}
        sizes = dict.fromkeys(rows, 64)
        common = [carry.Common(0, source, 64) for source in rows]
        self.assertEqual({0: (9, 900)}, carry.carry(rows, sizes, common))

    def test_content_that_is_everywhere_goes_to_few_places(self):
        common = [carry.Common(target, 0, 64 if target > 6 else 32)
                  for target in range(10)]
        carried = carry.carry({0: (1, 1)}, {0: 64}, common)
        self.assertEqual({7, 8, 9, 0}, set(carried))
