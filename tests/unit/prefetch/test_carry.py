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

from diffcache_openstack.prefetch import by_file
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


def files_of(names, lengths, image_bytes):
    """Return files one behind the other, and what is named nothing."""
    extents, at = [], 0
    for number, length in enumerate(lengths):
        extents.append((at, at + length, number, 0))
        at += length
    extents.append((at, image_bytes, len(names), 0))
    return by_file.Files([*names, ''], extents)


_LENGTHS = st.lists(st.integers(1, 9).map(lambda blocks: blocks * 512),
                    min_size=1, max_size=8)


class CarryByPathTest(base.TestCase):

    @given(_LENGTHS, st.integers(0, 3))
    def test_all_of_a_chunk_is_found_in_its_own_image(self, lengths, offset):
        files = files_of([f'/{n}' for n in range(len(lengths))], lengths,
                         50_000)
        chunks = range(offset, 50)
        sizes, common = carry.common_files(files, files, chunks, 1000)
        named = sum(lengths)
        for chunk in chunks:
            start = chunk * 1000
            self.assertEqual(min(max(named - start, 0), 1000), sizes[chunk])
        self.assertEqual([(chunk, chunk, sizes[chunk]) for chunk in chunks
                          if sizes[chunk]], common)

    @given(_LENGTHS, _LENGTHS, st.sets(st.integers(0, 60)))
    def test_what_is_found_is_of_both_images(self, here, there, chunks):
        source = files_of([f'/{n}' for n in range(len(here))], here, 50_000)
        target = files_of([f'/{n}' for n in range(len(there))], there,
                          40_000)
        sizes, common = carry.common_files(source, target, chunks, 1000)
        self.assertEqual(set(chunks), set(sizes))
        for each in common:
            self.assertIn(each.source, chunks)
            self.assertLess(each.target * 1000, sum(there))
        rows = {chunk: (3, 30) for chunk in chunks}
        carried = carry.carry(rows, sizes, common)
        self.assertLessEqual(set(carried), {c.target for c in common})

    def test_a_file_is_found_by_its_path_and_relative_position(self):
        source = by_file.Files(
            ['/old', '/a', ''],
            [(0, 4000, 0, 0), (4000, 8000, 1, 0), (8000, 9000, 2, 0)])
        # Twice as long, in two pieces, the second one in front.
        target = by_file.Files(
            ['/a', '[metadata]'],
            [(0, 4000, 0, 4000), (4000, 6000, 1, 0), (6000, 10_000, 0, 0)])
        sizes, common = carry.common_files(source, target, [1, 5, 6, 8],
                                           1000)
        self.assertEqual({1: 1000, 5: 1000, 6: 1000, 8: 0}, sizes)
        self.assertEqual([(0, 6, 500), (1, 6, 500), (8, 5, 500),
                          (9, 5, 500)], common)

    def test_metadata_is_found_at_its_position(self):
        source = by_file.Files(['[metadata]'], [(1000, 2000, 0, 1000)])
        target = by_file.Files(['[metadata]', '/a'], [
            (0, 500, 0, 0), (500, 1200, 1, 0), (1200, 9000, 0, 1200)])
        self.assertEqual(
            ({1: 1000}, [(1, 1, 800)]),
            carry.common_files(source, target, [1], 1000))


class CarryInTurnTest(base.TestCase):

    def test_a_way_carries_what_those_before_did_not_find(self):
        rows = {0: (1, 5), 1: (2, 5), 2: (3, 5)}
        sizes = dict.fromkeys(rows, 64)
        blocks = sizes, [carry.Common(10, 0, 64), carry.Common(11, 1, 20)]
        paths = sizes, [carry.Common(20, 0, 64), carry.Common(21, 1, 64),
                        carry.Common(10, 2, 64), carry.Common(22, 2, 64)]
        self.assertEqual(
            {10: (1, 5), 11: (2, 5), 21: (2, 5), 22: (3, 5)},
            carry.carry_in_turn(rows, [blocks, paths]))
        self.assertEqual({}, carry.carry_in_turn(rows, []))

    @given(_ROWS, _SIZES, _COMMON, _COMMON)
    def test_no_count_grows(self, rows, sizes, one, other):
        carried = carry.carry_in_turn(
            rows, [(sizes, listed(one)), (sizes, listed(other))])
        self.assertLessEqual(profiles.instances(carried),
                             profiles.instances(rows))
        self.assertLessEqual(
            set(carried), {target for target, _ in one.keys() | other.keys()})
