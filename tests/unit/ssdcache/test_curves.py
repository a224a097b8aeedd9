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
"""Curves of traces, as documents."""

import collections

from hypothesis import given
from hypothesis import strategies as st

from diffcache_openstack.ssdcache import curves
from tests import base

# The example of the paper.
EXAMPLE = 'dacbccebadac'
REQUESTS = st.lists(st.tuples(
    st.sampled_from('ab'), st.sampled_from('rw'), st.integers(0, 9 * 4096),
    st.integers(0, 3 * 4096)), max_size=60)


def text(requests):
    """A trace of (volume, op, offset, length)."""
    return ''.join(
        f'{number},{",".join(map(str, each))}\n'
        for number, each in enumerate(requests)).encode()


def hits_by_definition(requests, writes, size):
    """Play requests to an LRU cache of each volume."""
    caches = collections.defaultdict(collections.OrderedDict)
    hits = collections.Counter()
    for volume, op, offset, length in requests:
        if not length or op == 'w' and not writes:
            continue
        cache = caches[volume]
        for block in range(offset // 4096, (offset + length + 4095) // 4096):
            hits[volume] += cache.pop(block, False)
            cache[block] = True
            if len(cache) > size:
                cache.popitem(last=False)
    return hits


class CurvesTest(base.TestCase):

    def analyse(self, requests, sizes=None, **options):
        trace = self.write_file('trace.csv', text(requests))
        return curves.analyse(trace, curves.Analysis(**options), sizes)

    def example(self, **options):
        return self.analyse([('web', 'r', ord(name) * 4096, 4096)
                             for name in EXAMPLE], **options)

    def test_the_example_of_the_paper(self):
        found = self.example(sizes=[1, 2, 3, 4, 5, 6])
        self.assertEqual((4096, 'exact', 12), (
            found['block'], found['method'], found['references']))
        self.assertEqual({
            'references': 12, 'distinct': 5, 'cold': 5, 'sampled': 1.0,
            'hits': [[1, 1], [2, 3], [3, 4], [4, 5], [5, 7], [6, 7]],
        }, found['volumes']['web'])
        self.assertGreater(found['references_per_second'], 0)
        self.assertGreater(found['peak_rss_bytes'], 1 << 20)

    def test_a_sample_of_all_blocks_has_the_same_hits(self):
        exact = self.example()['volumes']
        for options in ({'rate': 1.0}, {'samples': 5}):
            found = self.example(**options)
            self.assertEqual(('shards', exact),
                             (found['method'], found['volumes']))

    def test_sizes_are_those_where_hits_change(self):
        self.assertEqual(
            [[1, 1], [2, 3], [3, 4], [4, 5], [5, 7]],
            self.example()['volumes']['web']['hits'])
        self.patch(curves, 'SHOWN', 2)
        self.assertEqual([[3, 4], [5, 7]],
                         self.example()['volumes']['web']['hits'])

    def test_no_request(self):
        found = self.analyse([])
        self.assertEqual((0, {}), (found['references'], found['volumes']))

    def test_errors_name_file_and_line(self):
        trace = self.write_file('bad.csv', b'1,a,r,0,1\n2,a,r,0\n')
        error = self.assertRaises(curves.TraceError, curves.analyse, trace,
                                  curves.Analysis())
        self.assertEqual(
            f'{trace}: line 2: a request is time_us,volume,op,offset,length',
            str(error))
        for missing in (self.directory / 'none', self.directory):
            error = self.assertRaises(curves.TraceError, curves.analyse,
                                      missing, curves.Analysis())
            self.assertIn(str(missing), str(error))

    def test_progress_can_stop_it(self):
        class Stop(Exception):
            pass

        def stop(done, total):
            raise Stop

        trace = self.write_file('trace.csv', text([('a', 'r', 0, 1)]))
        self.assertRaises(Stop, curves.analyse, trace, curves.Analysis(),
                          None, stop)

    def test_packed_traces_have_the_same_curves(self):
        requests = [('a', 'r', 0, 8192), ('b', 'w', 4096, 1)] * 3
        trace = self.write_file('trace.csv', text(requests))
        packed = self.directory / 'trace.bin'
        self.assertEqual(6, curves.pack(trace, packed))
        self.assertEqual(
            self.analyse(requests)['volumes'],
            curves.analyse(packed, curves.Analysis())['volumes'])

    def test_a_trace_that_cannot_be_packed_leaves_nothing(self):
        trace = self.write_file('bad.csv', b'x\n')
        packed = self.directory / 'trace.bin'
        self.assertRaises(curves.TraceError, curves.pack, trace, packed)
        self.assertEqual([trace], list(self.directory.iterdir()))
        self.assertRaises(curves.TraceError, curves.pack, trace,
                          self.directory / 'none' / 'trace.bin')

    @given(REQUESTS, st.booleans())
    def test_hits_are_those_of_caches(self, requests, writes):
        found = self.analyse(requests, writes=writes,
                             sizes=list(range(12)))['volumes']
        for size in range(12):
            expected = hits_by_definition(requests, writes, size)
            for name, curve in found.items():
                self.assertEqual([size, expected[name]], curve['hits'][size])
