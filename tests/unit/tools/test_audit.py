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
"""Audits of pinned packages say plainly when they did not run."""

import contextlib
import io
import os
import subprocess
from unittest import mock

from tests import base
from tests.unit.tools import loading

audit = loading.load('lib/audit')

_CLEAN = {'name': 'a', 'version': '1', 'vulns': []}
_VULNERABLE = {'name': 'b', 'version': '2', 'vulns': [
    {'id': 'PYSEC-1', 'fix_versions': ['3']}]}
_UNKNOWN = {'name': 'c', 'skip_reason': 'not found'}


class AuditTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.output = io.StringIO()
        context = contextlib.redirect_stdout(self.output)
        context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)

    def test_a_known_vulnerability_fails(self):
        self.assertEqual(audit.FAILED,
                         audit.report([_CLEAN, _VULNERABLE, _UNKNOWN]))
        self.assertIn('b 2: PYSEC-1, fixed in 3', self.output.getvalue())

    def test_packages_without_one_pass(self):
        self.assertEqual(audit.PASSED, audit.report([_CLEAN, _UNKNOWN]))
        self.assertIn('1 of 2 packages', self.output.getvalue())

    def test_without_any_answer_it_did_not_run(self):
        for done in (
                subprocess.CompletedProcess((), 1, '', 'no route to host'),
                subprocess.CompletedProcess(
                    (), 0, '{"dependencies": [{"name": "c", '
                    '"skip_reason": "not found"}]}', '')):
            with mock.patch.object(audit.subprocess, 'run',
                                   return_value=done):
                self.assertEqual(audit.NOT_RUN, audit.main(['pip-audit']))
        self.assertEqual(2, self.output.getvalue().count('did not run'))
        self.assertIn('no route to host', self.output.getvalue())

    def test_without_the_program_it_did_not_run(self):
        with mock.patch.dict(os.environ, {'PATH': str(self.directory)}):
            for name in audit.AUDITS:
                self.assertEqual(audit.NOT_RUN, audit.main([name]))
        self.assertIn('is not installed', self.output.getvalue())

    def test_crates_are_checked_without_a_network(self):
        calls = []

        def run(command, directory, **options):
            calls.append(command)
            failed = 'fetch' in command or 'licenses' in command
            return subprocess.CompletedProcess(command, int(failed), '',
                                               'no such host')
        with mock.patch.object(audit, '_run', run):
            self.assertEqual(audit.FAILED, audit.main(['cargo-deny']))
            self.assertEqual(audit.NOT_RUN, audit.main(['cargo-advisories']))
        self.assertIn('licenses', calls[1])
        self.assertIn('cargo-advisories did not run: no such host',
                      self.output.getvalue())

    def test_what_did_not_run_is_counted_as_skipped_and_fails_nothing(self):
        script = ('RESULTS=$1; . tools/lib/checks.sh; check ran true; '
                  'check audit sh -c "exit 77"; finish_checks')
        subprocess.run(['bash', '-euc', script, 'bash', str(self.directory)],
                       check=True, capture_output=True, cwd=loading.TREE)
        self.assertEqual(
            ['passed\tran', 'skipped\taudit'],
            (self.directory / 'stage.checks').read_text().splitlines())
