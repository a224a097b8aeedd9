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
"""What boots read, and what hosts lack of it."""

import hypothesis
from hypothesis import strategies as st

from diffcache_openstack.prefetch import boots
from diffcache_openstack.prefetch import profiles
from tests import base

GROUP = profiles.GROUP_CHUNKS * profiles.CHUNK
IMAGE = 10 * GROUP
_CHUNKS = st.frozensets(st.integers(0, 39), max_size=12)


def rows(*chunks):
    return dict.fromkeys(chunks, (1, 10))


def whole(*chunks):
    return boots.HeldSet(frozenset(chunks), 1.0)


def at(read, hosts, sets, image_bytes=IMAGE):
    """Total, absent and at peers by host, in groups."""
    found = boots.at_hosts(rows(*read), image_bytes, hosts, sets)
    return {host: tuple(each / GROUP for each in reads)
            for host, reads in found.items()}


class TestReads(base.TestCase):

    def test_without_sets_all_is_absent(self):
        self.assertEqual({'h1': (2, 2, 0)}, at([0, 1, 8], ['h1'], {}))

    def test_a_host_lacks_what_its_set_has_not(self):
        # The profile has grown since the set was planned.
        self.assertEqual(
            {'h1': (3, 1, 0)}, at([0, 4, 8], ['h1'], {'h1': whole(0, 4, 20)}))
        self.assertEqual(
            {'h1': (3, 0, 0)}, at([0, 4, 8], ['h1'], {'h1': whole(0, 4, 8)}))

    def test_peers_have_what_their_sets_have(self):
        self.assertEqual(
            {'h1': (4, 2, 1), 'h2': (4, 3, 2), 'h3': (4, 4, 3)},
            at([0, 4, 8, 12], ['h1', 'h2', 'h3'],
               {'h1': whole(0, 4), 'h2': whole(8)}))

    def test_a_group_is_there_with_all_that_boots_read_of_it(self):
        self.assertEqual({'h1': (1, 1, 0)},
                         at([0, 3], ['h1'], {'h1': whole(0, 1, 2)}))
        self.assertEqual({'h1': (1, 0, 0)},
                         at([0, 3], ['h1'], {'h1': whole(0, 3)}))

    def test_a_set_that_arrives_counts_by_its_share(self):
        half = boots.HeldSet(frozenset([0, 4]), 0.5)
        # Peers cannot count on it, and it is filled from a whole one.
        self.assertEqual(
            {'h1': (3, 2, 0), 'h2': (3, 3, 0)},
            at([0, 4, 8], ['h1', 'h2'], {'h1': half}))
        self.assertEqual(
            {'h1': (3, 2, 2)},
            at([0, 4, 8], ['h1'], {'h1': half, 'h2': whole(0, 4, 8)}))

    def test_the_last_group_of_an_image_may_be_short(self):
        self.assertEqual(
            {'h1': boots.Reads(GROUP + 5, GROUP + 5, 0)},
            boots.at_hosts(rows(0, 4), GROUP + 5, ['h1'], {}))

    @hypothesis.given(_CHUNKS, st.dictionaries(
        st.sampled_from(['h1', 'h2', 'h3']),
        st.builds(boots.HeldSet, _CHUNKS, st.floats(0.0, 1.0))))
    def test_bounds(self, read, sets):
        found = boots.at_hosts(rows(*read), IMAGE, ['h1', 'h2', 'h3'], sets)
        total = profiles.size_of(rows(*read), IMAGE)
        for reads in found.values():
            self.assertEqual(total, reads.total)
            self.assertTrue(0 <= reads.at_peers <= reads.absent <= total)
