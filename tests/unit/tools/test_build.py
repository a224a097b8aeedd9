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
"""The portable wheel keeps what its tag promises."""

import pathlib
import sys
from unittest import mock

from tests import base
from tests.unit.tools import loading

FOLDER = loading.TREE / 'tools' / 'release'

# The program imports its neighbours.
with mock.patch.object(sys, 'path', [str(FOLDER), *sys.path]):
    build = loading.load('release/build')

WHEEL = pathlib.Path('thing-1.0-cp311-abi3-manylinux_2_28_x86_64.whl')
SHOWN = """
thing-1.0-cp311-abi3-manylinux_2_28_x86_64.whl
is consistent with the following platform tag:
"%s".
"""


class CheckSymbolsTest(base.TestCase):

    def _check(self, found: str):
        with mock.patch.object(build, '_output', return_value=SHOWN % found):
            build.check_symbols(WHEEL, 'manylinux_2_28_x86_64')

    def test_its_glibc_and_older_ones_are_accepted(self):
        self._check('manylinux_2_28_x86_64')
        self._check('manylinux_2_17_x86_64')

    def test_newer_ones_and_others_are_refused(self):
        for found in 'manylinux_2_34_x86_64', 'linux_x86_64':
            error = self.assertRaises(build.BuildError, self._check, found)
            self.assertIn(found, str(error))


class BuildEnvironmentTest(base.TestCase):

    def test_the_variables_hide_each_path_of_the_build(self):
        tree, target = self.directory / 'tree', self.directory / 'target'
        crates = self.directory / 'cargo' / 'registry' / 'src'
        (crates / 'index-1').mkdir(parents=True)
        with mock.patch.dict('os.environ', CARGO_HOME=str(
                self.directory / 'cargo')), mock.patch.object(
                build, '_run'), mock.patch.object(
                build, '_output', return_value='commit-hash: 5980'):
            variables = build._remapping(tree, target)
        for flags, option in (
                (variables['CARGO_ENCODED_RUSTFLAGS'].split('\x1f'),
                 '--remap-path-prefix'),
                (variables['CFLAGS'].split(), '-ffile-prefix-map')):
            for path, name in ((tree, '/diffcache'),
                               (target, '/diffcache/target'),
                               (crates / 'index-1', '/crates')):
                self.assertIn(f'{option}={path}={name}', flags)

    def test_a_missing_tool_is_named_with_the_way_to_install_it(self):
        with mock.patch('shutil.which', return_value=None):
            error = self.assertRaises(build.BuildError, build._zig)
        self.assertIn('pip install', str(error))
