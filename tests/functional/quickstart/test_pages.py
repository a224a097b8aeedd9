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
"""The commands of pages that need no service, as a reader runs them."""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from tests import base

_PAGES = pathlib.Path(__file__).parents[3] / 'doc' / 'source'
_PROMPT, _CONTINUED = '   $ ', '   > '
_SECONDS = 300


def commands(page):
    """Return the commands of a page, in order."""
    found = []
    for line in (_PAGES / page).read_text(encoding='utf-8').splitlines():
        if line.startswith(_PROMPT):
            found.append(line.removeprefix(_PROMPT))
        elif line.startswith(_CONTINUED):
            found[-1] += '\n' + line.removeprefix(_CONTINUED)
    return found


class PageTest(base.TestCase):

    def run_page(self, page):
        """Run all commands in one shell, which ends at the first failure."""
        # What a failed command leaves running ends with the shell.
        lines = ['set -e', 'trap \'kill $(jobs -p) 2>/dev/null || :\' EXIT']
        for command in commands(page):
            lines += [f"cat <<'SHOWN'\n$ {command}\nSHOWN", command]
        path = f'{pathlib.Path(sys.executable).parent}:{os.environ["PATH"]}'
        done = subprocess.run(
            ['bash', '-c', '\n'.join(lines)], cwd=self.directory, text=True,
            env={**os.environ, 'PATH': path}, timeout=_SECONDS,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(0, done.returncode, done.stdout)
        return done.stdout


class TestSizing(PageTest):

    def test_every_command_succeeds(self):
        shown = self.run_page('admin/sizing.rst')
        self.assertEqual(3, shown.count('cost_before_s'))


@unittest.skipUnless(os.geteuid() == 0 and pathlib.Path('/dev/fuse').exists(),
                     'mounting needs root and /dev/fuse')
class TestTutorial(PageTest):

    def setUp(self):
        super().setUp()
        missing = [name for name in ('mke2fs', 'qemu-img', 'qemu-io')
                   if not shutil.which(name)]
        if missing:
            self.skipTest(f'{", ".join(missing)} not installed')

    def test_every_command_succeeds(self):
        shown = self.run_page('user/tutorial.rst')
        for text in ('identical', '1024 hits'):
            self.assertIn(text, shown)
        patch = self.directory / 'next.patch'
        self.assertLess(patch.stat().st_size, 2 * 10 ** 6)
