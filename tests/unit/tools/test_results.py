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
"""Results of stages are counted from their files."""

import io
import unittest

import subunit
import testtools

from tests import base
from tests.unit.tools import loading

results = loading.load('lib/results')


class ResultsTest(base.TestCase):

    def count(self) -> tuple[int, ...]:
        counts = results.read(self.directory).counts
        return tuple(counts[name] for name in (
            results.PASSED, results.FAILED, results.SKIPPED))

    def failures(self) -> list[str]:
        return results.read(self.directory).failures

    def write_stream(self, name, statuses):
        output = io.BytesIO()
        stream = subunit.StreamResultToBytes(output)
        stream.startTestRun()
        for number, status in enumerate(statuses):
            stream.status(f'test_{number}', 'inprogress')
            if status is not None:
                stream.status(f'test_{number}', status)
        # A worker's own output is no test.
        stream.status(file_name='stdout', file_bytes=b' - Passed: 7\n')
        stream.stopTestRun()
        self.write_file(name, output.getvalue())

    def test_nothing(self):
        self.write_file('log', b' - Passed: 12\n')
        self.assertEqual((0, 0, 0), self.count())

    def test_subunit(self):
        self.write_stream('unit.subunit', [
            'success', 'success', 'fail', 'uxsuccess', 'skip', 'xfail'])
        self.assertEqual((2, 2, 2), self.count())
        self.assertEqual(['test_2', 'test_3'], self.failures())

    def test_a_test_that_did_not_end_failed(self):
        self.write_stream('unit.subunit', ['success', None])
        self.assertEqual((1, 1, 0), self.count())

    def test_a_class_that_could_not_be_set_up_failed(self):
        class Broken(testtools.TestCase):

            @classmethod
            def setUpClass(cls):
                raise ValueError('no server')

            def test_one(self):
                pass

        output = io.BytesIO()
        result = testtools.ExtendedToStreamDecorator(
            subunit.StreamResultToBytes(output))
        result.startTestRun()
        unittest.TestLoader().loadTestsFromTestCase(Broken).run(result)
        result.stopTestRun()
        self.write_file('unit.subunit', output.getvalue())
        self.assertEqual((0, 1, 0), self.count())

    def test_cargo(self):
        self.write_file('cargo.libtest', (
            b'test a::b ... FAILED\ntest a::c - should panic ... FAILED\n'
            b'test a::d ... ok\n'
            b'test result: ok. 4 passed; 0 failed; 2 ignored; 0 measured\n'
            b'test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured\n'
        ))
        self.assertEqual((7, 1, 2), self.count())
        self.assertEqual(['a::b', 'a::c'], self.failures())

    def test_checks(self):
        self.write_file('stage.checks', b'passed\tdocs\nfailed\tnotes\n')
        self.assertEqual((1, 1, 0), self.count())
        self.assertEqual(['notes'], self.failures())

    def test_all_files_of_a_stage(self):
        self.write_stream('nova.subunit', ['success'])
        self.write_stream('glance.subunit', ['fail'])
        self.write_file('stage.checks', b'passed\tup\n')
        self.assertEqual((2, 1, 0), self.count())
