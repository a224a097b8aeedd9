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
"""Cases with tiny sizes, by the command."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

from bench.harness import cases
from tests import base

TREE = pathlib.Path(__file__).parents[3]
# Of each suite those that show most of what it shares.
CHOSEN = {
    'patch': ('family', 'upgrades', 'apply'),
    'placement': ('chains',),
    'versions': ('programs', 'servers', 'hundred', 'alpha', 'redundancy'),
    'lazy': ('boots', 'hydrate', 'fuse'),
    'ssdcache': ('paper', 'mix', 'sizing', 'decisions', 'correctness', 'pair',
                 'large', 'curves'),
    'site': ('hard', 'wan'),
    'scale': ('api', 'hosts'),
}


class TestQuick(base.TestCase):

    def check(self, suite: str) -> None:
        """Run cases of a suite that this machine can; check their results."""
        path = f'{os.environ["PATH"]}:/usr/sbin:/sbin'
        names = [case.name for case in cases.find(suite, CHOSEN[suite])
                 if all(shutil.which(program, path=path)
                        for program in case.needs)
                 and not (case.root and os.geteuid())]
        if not names:
            self.skipTest('programs are missing')
        done = subprocess.run(
            [sys.executable, TREE / 'bench/run', suite, *names, '--quick',
             '--output', self.directory], capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stderr)
        for name in names:
            document = json.loads(
                (self.directory / f'{suite}-{name}.json').read_text())
            self.assertTrue(document['tables'], name)

    def test_patch(self):
        self.check('patch')

    def test_placement(self):
        self.check('placement')

    def test_versions(self):
        self.check('versions')

    def test_lazy(self):
        self.check('lazy')

    def test_ssd_cache(self):
        self.check('ssdcache')

    def test_site(self):
        self.check('site')

    def test_scale(self):
        self.check('scale')
