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

import collections

import hypothesis
from hypothesis import strategies

from diffcache_openstack.ssdcache import simulation
from tests import base

# The worked example of "Differentiated SSD caching", and its hits by size.
EXAMPLE = 'dacbccebadac'
HITS = {1: 1, 2: 3, 3: 4, 4: 5, 5: 7, 6: 7}


def lines(references):
    """A trace of (volume, block)."""
    return ''.join(f'{n},{volume},r,{block * 4096},4096\n'
                   for n, (volume, block) in enumerate(references)).encode()


class TestSimulate(base.TestCase):

    def simulate(self, trace, **options):
        path = self.write_file('trace.csv', trace)
        return simulation.simulate(path, simulation.Scenario(**options))

    def test_worked_example(self):
        trace = lines([('v', ord(name)) for name in EXAMPLE])
        for size, hits in HITS.items():
            for sizes in (None, [('v', size)]):
                found = self.simulate(trace, capacity=size, sizes=sizes)
                numbers = found['volumes']['v']
                self.assertEqual(
                    (12, hits, 12 - hits, hits / 12, size),
                    tuple(numbers[field] for field in (
                        'references', 'hits', 'misses', 'hit_ratio',
                        'size')), size)

    def test_correctness_without_evictions(self):
        """The paper's table: 2 GB of cache, a file of 512 MB read twice."""
        trace = b'0,c,r,0,536870912\n1,c,r,0,536870912\n'
        for first, hits in ((True, 0), (False, 131072)):
            found = self.simulate(trace[:18] if first else trace,
                                  capacity=524288)['total']
            self.assertEqual((hits, 131072, 0), (
                found['hits'], found['misses'], found['evictions']))

    def test_correctness_with_evictions(self):
        """The paper's table: 500 MB of cache, a file of 512 MB read twice."""
        trace = b'0,c,r,0,536870912\n1,c,r,0,536870912\n'
        for first, misses, evictions in ((True, 131072, 3072),
                                         (False, 262144, 3072 + 131072)):
            found = self.simulate(trace[:18] if first else trace,
                                  capacity=128000)['total']
            self.assertEqual((0, misses, evictions), (
                found['hits'], found['misses'], found['evictions']))

    def test_one_volume_washes_out_another_unless_it_has_a_partition(self):
        loop = [('a', n % 8) for n in range(64)]
        scan = [('b', n) for n in range(64)]
        trace = lines([pair for both in zip(loop, scan) for pair in both])
        unified = self.simulate(trace, capacity=10)
        self.assertEqual(0, unified['volumes']['a']['hits'])
        self.assertEqual(10, unified['total']['size'])
        own = self.simulate(trace, capacity=10, sizes=[('a', 8), ('b', 2)])
        self.assertEqual(56, own['volumes']['a']['hits'])
        self.assertEqual(62, own['volumes']['b']['evictions'])
        self.assertEqual([[0.0, {'a': 8, 'b': 2}]], own['sizes'])

    def test_occupancy(self):
        trace = (b'5000000,a,r,0,8192\n'
                 b'6500000,b,r,0,4096\n'
                 b'7100000,b,r,0,4096\n')
        found = self.simulate(trace, capacity=2, occupancy_us=1000000)
        self.assertEqual([[1.0, {'a': 2, 'b': 0}], [2.0, {'a': 1, 'b': 1}],
                          [2.1, {'a': 1, 'b': 1}]], found['occupancy'])

    def test_blocks_are_admitted_at_the_second_reference(self):
        trace = lines([('v', n) for n in (1, 2, 1, 1, 3)])
        found = self.simulate(trace, capacity=8, admission=2)['total']
        self.assertEqual((1, 1), (found['hits'], found['written']))

    def test_no_references(self):
        found = self.simulate(b'0,v,w,0,4096\n', capacity=2,
                              ignore_writes=True)
        self.assertEqual({}, found['volumes'])
        self.assertEqual(0.0, found['total']['hit_ratio'])

    @hypothesis.given(
        strategies.lists(strategies.tuples(
            strategies.sampled_from('ab'), strategies.integers(0, 15))),
        strategies.integers(1, 12))
    def test_unified_is_lru_over_all_blocks(self, references, capacity):
        cache = collections.OrderedDict()
        hits = 0
        for reference in references:
            hits += cache.pop(reference, 0)
            cache[reference] = 1
            if len(cache) > capacity:
                cache.popitem(last=False)
        found = self.simulate(lines(references), capacity=capacity)
        self.assertEqual(hits, found['total']['hits'])


class TestBadInput(base.TestCase):

    def refused(self, trace, **options):
        path = self.write_file('trace.csv', trace)
        scenario = simulation.Scenario(**{'capacity': 8} | options)
        error = self.assertRaises(simulation.SimulationError,
                                  simulation.simulate, path, scenario)
        self.assertNotIn('\n', str(error))
        return str(error)

    def test_lines(self):
        good = b'1,v,r,0,4096\n'
        for bad in (b'x', b'1,v,r,0', b'1,v,q,0,4096', b'-1,v,r,0,4096',
                    b'1,v,r,0,99999999999999999999', b'\xff\x00'):
            text = self.refused(good * 2 + bad + b'\n')
            self.assertIn('trace.csv: line 3: ', text)

    def test_missing_file(self):
        error = self.assertRaises(
            simulation.SimulationError, simulation.simulate, '/nonexistent',
            simulation.Scenario(capacity=1))
        self.assertEqual('/nonexistent: No such file or directory; name a'
                         ' file with a trace', str(error))

    def test_volume_without_a_size(self):
        self.assertEqual('volume w has no size; add it to --sizes',
                         self.refused(b'1,w,r,0,1\n', sizes=[('v', 8)]))

    def test_sizes_beyond_the_capacity(self):
        text = self.refused(b'', sizes=[('v', 5), ('w', 4)])
        self.assertIn('add up to 9 blocks', text)

    def test_ranges(self):
        for options in ({'capacity': 0}, {'capacity': 1 << 32},
                        {'admission': 0}, {'admission': 16},
                        {'sequential': -1}, {'sizes': [('v', -1)]}):
            self.assertIn(': expected ', self.refused(b'', **options))

    def test_volume_beyond_the_largest(self):
        text = self.refused(b'1,v,r,9000000000000000,4096\n')
        self.assertIn('volume v: block ', text)
