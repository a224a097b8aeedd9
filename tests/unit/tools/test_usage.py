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
"""Wrong command lines of tools/ are refused at once, and say what is wrong."""

import subprocess
import sys

from tests import base
from tests.unit.tools import loading


class TestWrongUsage(base.TestCase):

    def assert_refused(self, reason: str, *words: str, code: int = 2) -> None:
        """Check that a tool ends before it has done anything."""
        program = loading.TREE / words[0]
        done = subprocess.run(
            [program, *words[1:]], cwd=self.directory, text=True,
            capture_output=True, check=False, stdin=subprocess.DEVNULL)
        said = done.stderr.splitlines()
        self.assertEqual((code, ''), (done.returncode, done.stdout), done)
        self.assertIn(reason, said[0])
        self.assertNotIn('Traceback', done.stderr)

    def test_unknown_words(self):
        for tool in ('tools/quickstart', 'tools/test', 'tools/openstack',
                     'tools/debian-package'):
            with self.subTest(tool=tool):
                self.assert_refused('unknown', tool, 'bogus')
                self.assert_refused(f'{tool}: ', tool, '--bogus')

    def test_options_that_openstack_does_not_have(self):
        # It took minutes to install packages first.
        self.assert_refused('unknown option --bogus', 'tools/openstack',
                            'up', '--bogus')
        self.assert_refused('unknown argument bogus', 'tools/openstack',
                            'up', 'bogus')
        self.assert_refused('--wan needs a value', 'tools/openstack', 'up',
                            '--wan')

    def test_a_series_that_there_is_not(self):
        self.assert_refused('there is no series 2020.1', 'tools/test',
                            'series', '2020.1')

    def test_options_that_a_build_of_packages_does_not_have(self):
        tool = 'tools/debian-package'
        self.assert_refused('unknown option --bogus', tool, 'build',
                            '--bogus', 'dist')
        self.assert_refused('--version needs a value', tool, 'build',
                            '--version')
        self.assert_refused('give DIR', tool, 'build')
        self.assert_refused('give DIR and SUITE', tool, 'try', 'dist')

    def test_a_directory_without_packages(self):
        # It took minutes to make a Debian first.
        for command in ('try', 'plugins', 'follow'):
            self.assert_refused(f'no packages in {self.directory}',
                                'tools/debian-package', command,
                                str(self.directory), 'trixie', code=1)
        self.assert_refused('no packages in', 'tools/debian-package',
                            'upgrade', 'old', 'new', 'trixie', code=1)

    def test_benchmarks_without_their_environment(self):
        done = subprocess.run(
            [sys.executable, '-S', loading.TREE / 'bench/run', '--list'],
            text=True, capture_output=True, check=False)
        self.assertEqual(1, done.returncode)
        self.assertIn('tools/test', done.stderr)
        self.assertNotIn('Traceback', done.stderr)
