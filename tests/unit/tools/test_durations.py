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
"""Durations of tests that a fresh clone gives stestr."""

import datetime
import io
import os
import re

from stestr.repository import util
from stestr import scheduler
import subunit

from tests import base
from tests.unit.tools import loading

durations = loading.load('lib/durations')
results = loading.load('lib/results')

SLOW, QUICK = 'tests.functional.one.Slow', 'tests.functional.one.Quick'
# Dealt out in turn, two workers would not have one slow test each.
TESTS = [f'{SLOW}.test_0', f'{QUICK}.test_0', f'{SLOW}.test_1'] + [
    f'{QUICK}.test_{number}' for number in range(1, 10)]


class TestSeed(base.TestCase):

    def setUp(self):
        super().setUp()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.directory)
        self.repository = util.get_repo_initialise()

    def test_workers_are_balanced(self):
        durations.seed(TESTS, {SLOW: 10.0, QUICK: 2.0})
        workers = scheduler.partition_tests(TESTS, 2, self.repository, None)
        for worker in workers:
            self.assertEqual(
                [1, 5], [sum(durations.class_of(test) == name
                             for test in worker) for name in (SLOW, QUICK)])

    def test_a_class_that_is_not_listed(self):
        durations.seed(TESTS, {SLOW: 10.0})
        known = self.repository.get_test_times(TESTS)['known']
        self.assertEqual(durations.DEFAULT, known[f'{QUICK}.test_0'])

    def test_measured_durations_are_kept(self):
        durations.seed(TESTS[:1], {SLOW: 7.0})
        durations.seed(TESTS, {SLOW: 10.0, QUICK: 2.0})
        self.assertEqual({TESTS[0]: 7.0},
                         self.repository.get_test_times(TESTS)['known'])

    def test_they_count_for_no_success(self):
        durations.seed(TESTS, {})
        stream = self.repository.get_latest_run().get_subunit_stream()
        self.write_file('results/unit.subunit', stream.read())
        self.assertEqual({results.SKIPPED: len(TESTS)},
                         results.read(self.directory / 'results').counts)


class TestMeasure(base.TestCase):

    def test_mean_of_the_classes_that_take_long(self):
        output = io.BytesIO()
        stream = subunit.StreamResultToBytes(output)
        start = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
        for name, seconds, status in (
                (f'{SLOW}.test_0', 4, 'success'),
                (f'{SLOW}.test_1', 9, 'success'),
                (f'{SLOW}.test_2', 600, 'fail'),
                (f'{QUICK}.test_0', 1, 'success')):
            stream.status(name, 'inprogress', timestamp=start)
            stream.status(
                name, status,
                timestamp=start + datetime.timedelta(seconds=seconds))
        path = self.write_file('functional.subunit', output.getvalue())
        lines = durations.measure([path])
        self.assertEqual([f'6.5 {SLOW}'], lines)
        self.assertEqual({SLOW: 6.5}, durations.parse('\n'.join(lines)))


class TestFile(base.TestCase):

    def test_each_class_exists(self):
        listed = durations.parse(durations.DURATIONS.read_text())
        self.assertNotEqual({}, listed)
        for name in listed:
            module, _, class_name = name.rpartition('.')
            path = loading.TREE / f'{module.replace(".", "/")}.py'
            with self.subTest(name=name):
                self.assertRegex(path.read_text(), re.compile(
                    rf'^class {class_name}\b', re.M))
