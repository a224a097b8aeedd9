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

import importlib.metadata
import io
import json
from unittest import mock

from diffcache_openstack.cmd.toolbox import app as toolbox
from diffcache_openstack.cmd.toolbox import trace
from diffcache_openstack.ssdcache.sizing import base as sizing
from tests import base

# Two volumes of two blocks each, read twice.
TRACE = b''.join(b'%d,%s,r,0,8192\n' % (n * 1000000, b'ab'[n % 2:][:1])
                 for n in range(4))


class TraceTestCase(base.TestCase):

    command: str

    def setUp(self):
        super().setUp()
        self.trace = self.write_file('trace.csv', TRACE)

    def run_command(self, *words):
        """(exit code, stdout, stderr) of ``diffcache trace COMMAND``."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch('sys.stdout', out), mock.patch('sys.stderr', err):
            app = toolbox.Toolbox()
            app.stdout, app.stderr = out, err
            try:
                code = app.run(['trace', self.command, *map(str, words)])
            except SystemExit as ended:
                code = ended.code
        return code, out.getvalue(), err.getvalue()


class TestCurve(TraceTestCase):

    command = 'curve'

    def curve(self, *words):
        code, out, err = self.run_command(self.trace, '-f', 'json', *words)
        self.assertEqual(0, code, err)
        return json.loads(out)

    def test_json(self):
        found = self.curve('--sizes', '1,2,3')
        self.assertEqual(('exact', 8, ['a', 'b']), (
            found['method'], found['references'], list(found['volumes'])))
        self.assertEqual([[1, 0], [2, 2], [3, 2]],
                         found['volumes']['a']['hits'])

    def test_a_trace_without_requests_is_refused(self):
        path = self.write_file('empty.csv', b'')
        code, _, err = self.run_command(path)
        self.assertEqual(1, code)
        self.assertIn(f'{path} has no requests', err)

    def test_methods(self):
        for words in (('--rate', '1'), ('--samples', '2'), ()):
            found = self.curve('--method', 'shards', *words)
            self.assertEqual(('shards', [[2, 2]]), (
                found['method'], found['volumes']['b']['hits']))

    def test_a_sample_of_few_blocks_says_so(self):
        trace = self.write_file('many.csv', b''.join(
            b'%d,a,r,%d,4096\n' % (n, n % 500 * 4096) for n in range(1000)))
        for words, warns in ((('--rate', '0.001'), True), ((), False)):
            code, out, err = self.run_command(
                trace, '-f', 'json', '--method', 'shards', *words)
            self.assertEqual((0, warns), (code, 'says little' in err), err)

    def test_larger_blocks(self):
        found = self.curve('--block', '8192')
        self.assertEqual((8192, [[1, 1]]), (
            found['block'], found['volumes']['a']['hits']))

    def test_table(self):
        code, out, err = self.run_command(self.trace)
        self.assertEqual((0, ''), (code, err))
        self.assertIn('a: 4 references, 2 blocks', out)
        self.assertRegex(out, r'2 blocks +2 hits +50\.0%')

    def test_options_that_do_not_suit(self):
        for words, what in (
                (('--rate', '0.5'), '--method shards'),
                (('--method', 'shards', '--rate', 'nan'), 'not a number'),
                (('--method', 'shards', '--samples', '0'), 'whole number'),
                (('--sizes', '1,,2'), 'whole number'),
                (('--block', '0'), 'not a size')):
            code, out, err = self.run_command(self.trace, *words)
            self.assertEqual('', out)
            self.assertNotEqual(0, code)
            self.assertIn(what, err)

    def test_a_trace_that_cannot_be_read(self):
        bad = self.write_file('bad.csv', TRACE + b'5,a,r,0\n')
        code, out, err = self.run_command(bad, '-f', 'json')
        self.assertEqual((1, '', 1), (code, out, err.count('\n')))
        self.assertIn('line 5', err)


class TestPack(TraceTestCase):

    command = 'pack'

    def test_pack(self):
        packed = self.directory / 'trace.bin'
        self.assertEqual((0, f'4 requests in {packed}\n', ''),
                         self.run_command(self.trace, packed))
        self.assertEqual(b'DCTRACE1', packed.read_bytes()[:8])

    def test_files_that_cannot_be_used_are_named(self):
        for source, packed, wanted in (
                (self.trace, 'none/packed', 'none/packed does not exist'),
                (self.trace, '.', 'is a directory; name a file'),
                (self.trace, self.trace, 'is the trace itself'),
                (self.directory / 'none', 'packed',
                 'none: No such file or directory; name a file')):
            with self.subTest(packed=packed):
                code, _out, error = self.run_command(
                    source, self.directory / packed)
                self.assertEqual(1, code)
                self.assertIn(wanted, error)


class TestPartition(TraceTestCase):

    command = 'partition'

    def partition(self, *words):
        code, out, err = self.run_command(
            self.trace, '--capacity', '3', '-f', 'json', *words)
        self.assertEqual(0, code, err)
        return json.loads(out)

    def test_latency(self):
        found = self.partition('--policy', 'latency', '--weights', 'b=2')
        self.assertEqual({'a': 0, 'b': 2}, found['sizes'])
        self.assertEqual({'hits': 2, 'hit_ratio': 0.5, 'latency_us': 2550.0},
                         found['predicted']['b'])
        self.assertEqual((3, 'latency', 40400.0, True, []), (
            found['capacity'], found['policy'], found['objective'],
            found['optimal'], found['infeasible']))
        self.assertEqual(2, len(found['explain']))

    def test_every_policy(self):
        for policy in ('wss', 'priority', 'fairness', 'sla', 'static',
                       'pooled'):
            found = self.partition('--policy', policy, '--min', 'a=1',
                                   '--max', 'a=1')
            self.assertEqual(1, found['sizes']['a'])
            self.assertIn(found['sizes']['b'], (1, 2))

    def test_targets(self):
        found = self.partition('--policy', 'sla', '--sla',
                               'a=hit:0.5,b=latency:1', '--hit-us', '2')
        self.assertEqual((2, ['b']), (found['sizes']['a'],
                                      found['infeasible']))

    def test_latencies(self):
        found = self.partition('--policy', 'static', '--hit-us', '1',
                               '--miss-us', '2')
        self.assertEqual(2 * 8, found['objective'] + sum(
            each['hits'] for each in found['predicted'].values()))

    def test_larger_blocks(self):
        found = self.partition('--policy', 'latency', '--block', '8192')
        self.assertEqual({'a': 1, 'b': 1}, found['sizes'])

    def test_table(self):
        code, out, err = self.run_command(
            self.trace, '--capacity', '4', '--policy', 'fairness')
        self.assertEqual((0, ''), (code, err))
        self.assertIn('a: hits 2, hit_ratio 0.5', out)
        self.assertIn('the least hit ratio is 50.0%', out)

    def test_options_that_do_not_suit(self):
        for words, what in (
                (('--policy', 'latency', '--min', 'c=1'), 'no volume c'),
                (('--policy', 'latency', '--min', 'a=2', '--max', 'a=1'),
                 'exceeds its largest'),
                (('--policy', 'latency', '--min', 'a=2,b=2'), 'add up to 4'),
                (('--policy', 'latency', '--sla', 'a=hit=0.5'),
                 '--policy sla'),
                (('--policy', 'sla', '--sla', 'a=hit=2'), 'neither a hit'),
                (('--policy', 'sla', '--sla', 'a=0.5'), 'neither a hit'),
                (('--policy', 'best'), 'invalid choice'),
                (('--policy', 'wss', '--weights', 'a=nan'), 'above 0'),
                (('--policy', 'wss', '--weights', 'a=1,a=2'), 'twice'),
                (('--policy', 'wss', '--weights', 'a'), 'VOLUME=VALUE')):
            code, out, err = self.run_command(
                self.trace, '--capacity', '3', *words)
            self.assertEqual('', out)
            self.assertNotEqual(0, code)
            self.assertIn(what, err)

    def test_all_policies_can_be_chosen(self):
        installed = importlib.metadata.entry_points(group=sizing.NAMESPACE)
        self.assertEqual(set(installed.names), set(trace._POLICIES))


class TestSimulate(TraceTestCase):

    command = 'simulate'

    def simulate(self, *words):
        code, out, err = self.run_command(self.trace, '-f', 'json', *words)
        self.assertEqual(0, code, err)
        return json.loads(out)

    def test_unified(self):
        found = self.simulate('--capacity', 4, '--mode', 'unified')
        self.assertEqual((4, 'unified', 'lru'), (
            found['capacity'], found['mode'], found['evict']))
        self.assertEqual(
            {'references': 8, 'hits': 4, 'misses': 4, 'evictions': 0,
             'hit_ratio': 0.5, 'size': 4, 'written': 4}, found['total'])
        self.assertEqual({'a', 'b'}, set(found['volumes']))
        self.assertEqual([], found['occupancy'])
        self.assertEqual([[0.0, {'a': 4, 'b': 4}]], found['sizes'])

    def test_partitioned(self):
        found = self.simulate('--capacity', 4, '--mode', 'partitioned',
                              '--sizes', 'a=3,b=1', '--occupancy', '2')
        self.assertEqual([2, 0], [found['volumes'][name]['hits']
                                  for name in 'ab'])
        self.assertEqual([3, 1], [found['volumes'][name]['size']
                                  for name in 'ab'])
        self.assertEqual([[2.0, {'a': 2, 'b': 1}], [3.0, {'a': 2, 'b': 1}]],
                         found['occupancy'])

    def test_dynamic(self):
        found = self.simulate('--capacity', 2, '--mode', 'dynamic',
                              '--epoch', '2')
        self.assertEqual(('dynamic', [0.0, 1.0]), (
            found['mode'], [time for time, _sizes in found['sizes']]))
        [decision] = found['decisions']
        self.assertEqual((2.0, False), (decision['time_s'],
                                        decision['changed']))
        self.assertIn('sizes stay', decision['explain'][0])

    def test_dynamic_with_a_policy(self):
        found = self.simulate('--capacity', 2, '--mode', 'dynamic',
                              '--epoch', '1', '--policy', 'wss')
        self.assertEqual(3, len(found['decisions']))

    def test_epochs_that_end_early(self):
        self.trace = self.write_file('early.csv', ''.join(
            f'{n},{"ab"[n % 2]},r,{n % 4 * 4096},4096\n'
            for n in range(4000)).encode())
        found = self.simulate('--capacity', 4, '--mode', 'dynamic',
                              '--epoch', '0.003', '--shortest-epoch', '0.001')
        early, *others = found['decisions']
        self.assertEqual(0.0015, early['time_s'])
        self.assertIn('a: the epoch ended early, since 100.0% of its last 250'
                      ' references hit, and nothing was known of it',
                      early['explain'])
        self.assertEqual([0.003], [each['time_s'] for each in others])

    def test_options_of_other_modes(self):
        for words, what in (
                (('unified', '--shortest-epoch', '9'), '--shortest-epoch'),
                (('unified', '--policy', 'wss'), 'leave out --policy'),
                (('partitioned', '--sizes', 'a=1,b=1', '--epoch', '9'),
                 'leave out --policy'),
                (('dynamic', '--sizes', 'a=1'), 'leave out --sizes')):
            code, out, err = self.run_command(
                self.trace, '--capacity', 4, '--mode', *words)
            self.assertEqual((1, ''), (code, out))
            self.assertIn(what, err)

    def test_policies(self):
        for evict in ('lru', 'sieve', 's3fifo'):
            found = self.simulate('--capacity', 4, '--mode', 'unified',
                                  '--evict', evict)
            self.assertEqual(evict, found['evict'])
            self.assertEqual(4, found['total']['hits'])

    def test_writes(self):
        self.write_file('trace.csv', TRACE.replace(b'b,r', b'b,w'))
        found = self.simulate('--capacity', 4, '--mode', 'unified',
                              '--writes', 'ignore')
        self.assertEqual(['a'], list(found['volumes']))

    def test_table(self):
        code, out, err = self.run_command(
            self.trace, '--capacity', 4, '--mode', 'unified')
        self.assertEqual((0, ''), (code, err))
        self.assertIn('a: references 4, hits 2, misses 2', out)

    def test_errors_are_one_line(self):
        self.write_file('trace.csv', TRACE + b'garbage\n')
        for words, text in (
                (['--mode', 'unified'], 'trace.csv: line 5: '),
                (['--mode', 'partitioned'], '--sizes'),
                (['--mode', 'unified', '--sizes', 'a=1'], '--sizes'),
                (['--mode', 'partitioned', '--sizes', 'a=3,b=2'],
                 'add up to 5 blocks')):
            code, out, err = self.run_command(self.trace, '--capacity', 4,
                                              *words)
            self.assertEqual((1, '', 1), (code, out, err.count('\n')), err)
            self.assertIn(text, err)

    def test_options_that_cannot_be_understood(self):
        for words in (['--capacity', '0'], ['--sizes', 'a'],
                      ['--sizes', '=1'], ['--sizes', 'a=1,a=2'],
                      ['--sizes', 'a=-1'], ['--occupancy', 'nan'],
                      ['--occupancy', '0'], ['--admission', '0'],
                      ['--sequential', '-1'], ['--evict', 'mru']):
            code, _, err = self.run_command(
                self.trace, '--capacity', 4, '--mode', 'unified', *words)
            self.assertEqual(2, code, words)
            self.assertIn(words[0], err)
