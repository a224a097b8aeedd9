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
"""bindep.txt: what the commands of tools/ install."""

import os
import re
import subprocess

from tests import base
from tests.unit.tools import loading

LIBRARY = loading.TREE / 'tools' / 'lib' / 'install.sh'


class TestScripts(base.TestCase):

    def test_none_has_a_list_of_packages_of_its_own(self):
        for path in [LIBRARY, LIBRARY.with_name('bare.sh'),
                     *(loading.TREE / 'tools' / name for name in (
                         'bare', 'debian-package', 'openstack', 'quickstart',
                         'test'))]:
            with self.subTest(script=path.name):
                calls = re.findall(r'^ *apt_install (.*)', path.read_text(),
                                   re.MULTILINE)
                self.assertEqual([], [
                    call for call in calls if call != '"${wanted[@]}"'])


class TestPackages(base.TestCase):
    """The packages that a system gets."""

    def setUp(self):
        super().setUp()
        tools = self.directory / 'tools' / 'lib'
        tools.mkdir(parents=True)
        (tools / 'install.sh').write_bytes(LIBRARY.read_bytes())

    def packages(self, bindep: str, *profiles: str, system: str) -> list[str]:
        (self.directory / 'bindep.txt').write_text(bindep)
        name, _, version = system.partition('-')
        release = self.write_file(
            'os-release', f'ID={name}\nVERSION_ID="{version}"\n'.encode())
        library = self.directory / 'tools' / 'lib' / 'install.sh'
        return subprocess.run(
            ['bash', '-euc', '. "$1"; packages "${@:2}"', 'bash', library,
             *profiles], check=True, capture_output=True, text=True,
            env=os.environ | {'OS_RELEASE': str(release)}).stdout.split()

    def test_profiles(self):
        bindep = ('# comment\nalways\none [first]\ntwo [first second]\n'
                  'three [third]\n')
        for profiles, expected in (((), ['always']),
                                   (('first',), ['always', 'one', 'two']),
                                   (('second', 'third'),
                                    ['always', 'three', 'two'])):
            self.assertEqual(expected, self.packages(
                bindep, *profiles, system='debian-12'))

    def test_platforms(self):
        bindep = ('a [platform:dpkg]\nb [platform:rpm]\n'
                  'c [platform:debian-12 build]\n'
                  'd [platform:dpkg !platform:debian-12 build]\n'
                  'e [!platform:ubuntu-24.04]\n')
        for system, expected in (('debian-12', ['a', 'c', 'e']),
                                 ('debian-13', ['a', 'd', 'e']),
                                 ('ubuntu-24.04', ['a', 'd'])):
            self.assertEqual(expected, self.packages(
                bindep, 'build', system=system))

    def test_each_debian_has_a_compiler_and_its_linters(self):
        bindep = (loading.TREE / 'bindep.txt').read_text()
        for system, expected in (
                ('debian-12', {'cargo-web', 'rustc-web', 'rustfmt-web',
                               'rust-web-clippy'}),
                ('debian-13', {'cargo', 'rustc', 'rustfmt', 'rust-clippy'})):
            found = set(self.packages(bindep, 'rust', 'lint', system=system))
            self.assertEqual(expected, {
                name for name in found if name.startswith(('cargo', 'rust'))})
