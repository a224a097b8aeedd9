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
"""tools/lib/preflight.sh: what is known before anything is installed."""

import os
import subprocess

from tests import base
from tests.unit.tools import loading

LIB = loading.TREE / 'tools' / 'lib'
# What a machine is asked that has all; a test replaces some of it.
MACHINE = {
    'apt_get': 'echo trixie http://here/; echo trixie-updates http://here/',
    'apt_cache': 'echo "  Candidate: 1.85.0+dfsg"',
    'df': 'echo Avail; echo 40000',
    'rustc': 'exit 127',
    'sudo': '[ "$1" = --validate ] || { shift 2; exec "$@"; }',
    'uname': 'echo x86_64',
    'unshare': 'exit 0',
}


class TestPreflight(base.TestCase):

    def setUp(self):
        super().setUp()
        self.commands = self.directory / 'commands'
        self.commands.mkdir()

    def run_preflight(self, after: str = 'echo "release $RELEASE"',
                      wheel: str = '', **machine: str,
                      ) -> subprocess.CompletedProcess:
        for name, script in (MACHINE | machine).items():
            path = self.commands / name.replace('_', '-')
            path.write_text(f'#!/bin/sh\n{script}\n')
            path.chmod(0o755)
        release = self.write_file(
            'os-release', b'ID=debian\nVERSION_ID="13"\nPRETTY_NAME=Debian\n'
                          b'VERSION_CODENAME=trixie\n')
        return subprocess.run(
            ['bash', '-euo', 'pipefail', '-c',
             '. "$1/install.sh"; . "$1/preflight.sh"; STATE=$2\n'
             'WHEELS=(${3:+"$3"})\n'
             f'preflight; {after}', 'quickstart', LIB, self.directory, wheel],
            capture_output=True, text=True, env=os.environ | {
                'PATH': f'{self.commands}:{os.environ["PATH"]}',
                'HOME': str(self.directory), 'OS_RELEASE': str(release)})

    def assert_stops(self, expected: str, **machine: str) -> str:
        result = self.run_preflight(**machine)
        self.assertEqual(1, result.returncode)
        self.assertIn(expected, result.stderr)
        self.assertNotIn('release', result.stdout)
        return result.stderr

    def test_a_machine_that_has_all(self):
        result = self.run_preflight()
        self.assertEqual((0, ''), (result.returncode, result.stderr))
        self.assertIn('images of Debian trixie', result.stdout)
        self.assertIn('release trixie', result.stdout)

    def test_images_are_of_a_release_that_the_sources_have(self):
        result = self.run_preflight(apt_get='echo bookworm https://archive/')
        self.assertIn('release bookworm', result.stdout)

    def test_no_release(self):
        for sources in 'exit 0', 'echo trixie cdrom://disk/', 'exit 100':
            self.assert_stops(
                'apt has no network source of Debian',
                apt_get=f'[ "$1" = update ] || {{ {sources}; }}')

    def test_all_that_is_missing_is_said_at_once(self):
        said = self.assert_stops('100 MB are free', uname='echo aarch64',
                                 df='echo Avail; echo 100')
        self.assertIn('this is aarch64', said)

    def test_no_mounts(self):
        self.assert_stops(
            'cannot mount images (losetup: failed)',
            unshare='echo "losetup: failed" >&2; exit 1')

    def test_an_old_rust(self):
        old = 'echo "  Candidate: 0.66.0+ds1-1"'
        self.assert_stops("apt's cargo is 0.66.0", apt_cache=old)
        result = self.run_preflight(wheel='a.whl', apt_cache=old)
        self.assertEqual((0, ''), (result.returncode, result.stderr))
