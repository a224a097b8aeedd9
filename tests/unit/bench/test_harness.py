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
"""What bench/run does with options, samples and programs."""

import contextlib
import io
import json

from bench.harness import cases
from bench.harness import errors
from bench.harness import main
from bench.harness import processes
from bench.harness import runs
from bench.harness import tables
from tests import base

CASE = cases.Case(
    'one', 'A case.', 'module:one', ('page',), (
        cases.Option('size', 100, 'of it', quick=2),
        cases.Option('only', ('a', 'b'), 'parts', many=True, selects=True)),
    suite='made')


class TestOptions(base.TestCase):

    def test_quick_ones_give_way_to_those_that_are_named(self):
        self.assertEqual({'size': 100, 'only': ('a', 'b')},
                         main.values(CASE, {}, False))
        self.assertEqual(2, main.values(CASE, {}, True)['size'])
        self.assertEqual(7, main.values(CASE, {'size': 7}, True)['size'])

    def test_cases_precede_options(self):
        self.assertEqual((['lazy', 'boots'], ['--speed', '3']),
                         main.split(['lazy', 'boots', '--speed', '3']))

    def test_every_level_has_help(self):
        for words in ([], *([suite] for suite in cases.SUITES),
                      *([case.suite, case.name]
                        for case in cases.everything())):
            output = io.StringIO()
            with self.subTest(words=words), \
                    contextlib.redirect_stdout(output):
                self.assertRaises(SystemExit, main.main, [*words, '--help'])
                self.assertIn('--quick', output.getvalue())

    def test_unknown_cases_are_answered_with_those_that_there_are(self):
        error = self.assertRaises(errors.BenchError, cases.find, 'lazy',
                                  ['boot'])
        self.assertIn('boots', str(error))
        error = self.assertRaises(errors.BenchError, cases.find, 'nova', [])
        self.assertIn('openstack', str(error))

    def test_list_names_pages(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            self.assertEqual(0, main.main(['lazy', '--list', '-f', 'json']))
        found = json.loads(output.getvalue())
        self.assertEqual(['reference/lazy-boot-benchmark'],
                         found[0]['pages'])


class TestSamples(base.TestCase):

    def run_with(self, again: bool = False, **options) -> runs.Run:
        return runs.Run(CASE, {'size': 1, 'only': ['a']} | options,
                        self.directory, self.directory, again=again)

    def setUp(self):
        super().setUp()
        self.patch(runs, 'say', lambda text: None)
        self.run_with().keep('a', lambda: 1)

    def test_an_interrupted_run_is_continued(self):
        run = self.run_with(only=['a', 'b'])
        self.assertEqual(1, run.keep('a', lambda: 2))
        self.assertEqual(3, run.keep('b', lambda: 3))
        self.assertEqual(3, self.run_with().kept('b'))

    def test_other_sizes_are_measured_anew(self):
        self.assertEqual(2, self.run_with(size=2).keep('a', lambda: 2))

    def test_again(self):
        run = self.run_with(again=True)
        self.assertEqual(2, run.keep('a', lambda: 2))
        self.assertEqual(2, run.keep('a', lambda: 3))

    def test_rounds_are_in_turns(self):
        order = []

        def way(name: str, value: int):
            order.append(name)
            return {'s': value + order.count(name)}
        found = self.run_with().rounds({
            name: lambda name=name, value=value: way(name, value)
            for name, value in (('x', 0), ('y', 10))}, 3)
        self.assertEqual(['x', 'y'] * 3, order)
        self.assertEqual({'x': {'s': 2}, 'y': {'s': 12}}, found)

    def test_result(self):
        run = self.run_with()
        run.table('Title', ('Name', 'MB'), [('x', 1), ('', '12.5')])
        run.finish()
        document = json.loads((self.directory / 'made-one.json').read_text())
        self.assertIn('load average', document['machine'])
        self.assertEqual([['x', 1], ['', '12.5']],
                         document['tables'][0]['rows'])
        self.assertIn(r'\-   12.5',
                      (self.directory / 'made-one.inc').read_text())


class TestTables(base.TestCase):

    def test_numbers_are_to_the_right(self):
        table = tables.Table('Title', ('Name', 'MB'), [('x', 1), ('y', 100)])
        self.assertEqual('Title\nName  MB\nx       1\ny     100\n',
                         table.text())


class TestPrograms(base.TestCase):

    def test_missing_ones_are_named_with_their_packages(self):
        self.patch(processes.shutil, 'which', lambda name: None)
        error = self.assertRaises(errors.BenchError, processes.require,
                                  ['fio', 'mkfs.xfs'])
        self.assertEqual('not installed: fio, mkfs.xfs; run: apt install fio'
                         ' xfsprogs', str(error))

    def test_those_that_fail_end_the_case(self):
        self.assertRaises(errors.BenchError, processes.measured, ['false'])
        self.assertRaises(errors.BenchError, processes.run, 'false')
