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
"""What boots read, by file."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from diffcache_openstack.prefetch import by_file
from diffcache_openstack.prefetch import scenarios
from tests import base

# A file of two pieces, another between them, and something behind.
FILES = by_file.Files(['/a', '/b', ''], [
    (0, 1000, 0, 0), (1000, 1500, 1, 0), (1500, 3000, 0, 1000),
    (3000, 5000, 2, 0)])


def scenario(*instances):
    return scenarios.from_dict({
        'image_bytes': 5000, 'chunk': 1000, 'threshold': 1,
        'striped': False, 'links': {
            'wan_mbps': 1, 'wan_rtt_ms': 1, 'lan_mbps': 1, 'lan_rtt_ms': 1},
        'instances': [{'start_us': 7, 'reads': reads}
                      for reads in instances]})


def shares(found):
    return {share.file: dataclasses.astuple(share)[1:] for share in found}


class ByFileTest(base.TestCase):

    def test_reads_count_for_the_files_they_touch(self):
        found = by_file.of_scenario(scenario(
            [[5, 900, 200], [10, 950, 100], [5, 2000, 100]],
            [[1, 1400, 100]]), FILES)
        # Chunks 0 to 2 were read.
        self.assertEqual({0: (200, 2500, 1, 5.0), 1: (200, 500, 2, 1.0)},
                         shares(found))

    def test_a_profile_counts_chunks(self):
        rows = {1: (4, 40), 3: (2, 6)}
        self.assertEqual(
            {0: (None, 500, 4, 10.0), 1: (None, 500, 4, 10.0),
             2: (None, 1000, 2, 3.0)},
            shares(by_file.of_profile(rows, 1000, FILES)))

    def test_another_image_is_refused(self):
        other = by_file.Files(['/a'], [(0, 6000, 0, 0)])
        error = self.assertRaises(scenarios.ScenarioError,
                                  by_file.of_scenario, scenario([]), other)
        self.assertIn('name the image that booted', str(error))
        error = self.assertRaises(scenarios.ScenarioError,
                                  by_file.of_profile, {5: (1, 1)}, 1000,
                                  FILES)
        self.assertIn('chunk 5 is behind the end', str(error))

    @given(st.lists(st.tuples(st.integers(0, 4999), st.integers(1, 2000)),
                    max_size=12))
    def test_every_byte_that_is_read_counts_once(self, reads):
        reads = [[1, offset, min(length, 5000 - offset)]
                 for offset, length in reads]
        found = by_file.of_scenario(scenario(reads), FILES)
        touched = {byte for _, offset, length in reads
                   for byte in range(offset, offset + length)}
        self.assertEqual(len(touched), sum(share.read for share in found))
        for share in found:
            self.assertLessEqual(share.read, share.chunks)
