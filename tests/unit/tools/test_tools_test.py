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
"""tools/test counts what its stages print."""

import subprocess

from tests import base
from tests.unit.tools import loading

SCRIPT = loading.TREE / 'tools' / 'test'


class TestCountResults(base.TestCase):

    def count(self, text: str) -> str:
        log = self.write_file('log', text.encode())
        result = subprocess.run(
            ['bash', '-c', '. "$1"; count_results "$2"', 'bash', SCRIPT,
             log],
            check=True, capture_output=True, text=True)
        return result.stdout.strip()

    def test_nothing(self):
        self.assertEqual('0 0 0', self.count('no test here\n'))

    def test_stestr(self):
        self.assertEqual('12 3 1', self.count(
            ' - Passed: 12\n - Skipped: 1\n - Expected Fail: 0\n'
            ' - Unexpected Success: 1\n - Failed: 2\n'))

    def test_cargo(self):
        self.assertEqual('7 1 2', self.count(
            'test result: ok. 4 passed; 0 failed; 2 ignored; 0 measured\n'
            'test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured\n'
        ))

    def test_hooks_and_checks(self):
        self.assertEqual('2 2 1', self.count(
            'style.................................................Passed\n'
            'types.................................................Failed\n'
            'shell.............................(no files to check)Skipped\n'
            'check documentation: passed\ncheck release notes: failed\n'))


class TestArguments(base.TestCase):

    def test_wrong_usage(self):
        for arguments in (['--slow'], ['nonsense'], ['--state']):
            with self.subTest(arguments=arguments):
                result = subprocess.run(
                    [SCRIPT, *arguments], capture_output=True, text=True)
                self.assertEqual(2, result.returncode)
                self.assertEqual('', result.stdout)
                self.assertIn('usage: tools/test', result.stderr)
