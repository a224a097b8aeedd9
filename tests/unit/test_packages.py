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
"""Both distributions have all modules, and what these require."""

import configparser
import importlib.metadata
import pathlib
import subprocess
import sys
import tomllib

from packaging import requirements
from packaging import utils
import setuptools

from tests import base

TREE = pathlib.Path(__file__).parents[2]
PACKAGE = 'diffcache_openstack'


def find_packages(directory: pathlib.Path) -> set[str]:
    """Return the packages that a directory's distribution has."""
    config = configparser.ConfigParser()
    config.read(directory / 'setup.cfg')
    find = config['options.packages.find']
    return set(setuptools.find_packages(
        str(directory), include=find['include'].split(),
        exclude=find.get('exclude', '').split()))


def required(path: str) -> dict[str, requirements.Requirement]:
    """Return what a file requires, by canonical names."""
    found = {}
    for line in (TREE / path).read_text().splitlines():
        wanted = line.partition('#')[0].strip()
        if wanted:
            requirement = requirements.Requirement(wanted)
            found[utils.canonicalize_name(requirement.name)] = requirement
    return found


def closure(names: set[str]) -> set[str]:
    """Return distributions with all that they require in turn."""
    found, left = set(), set(names)
    while left:
        name = left.pop()
        found.add(name)
        try:
            lines = importlib.metadata.requires(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        for requirement in map(requirements.Requirement, lines):
            if not requirement.marker or requirement.marker.evaluate(
                    {'extra': ''}):
                left.add(utils.canonicalize_name(requirement.name))
        left -= found
    return found


class TestPackages(base.TestCase):

    def test_each_folder_with_modules_is_installed(self):
        """Regression: the wheel had no nova.virt.diffcache."""
        installed = find_packages(TREE) | find_packages(TREE / 'plugins')
        folders = {path.parent.relative_to(TREE)
                   for path in (TREE / PACKAGE).rglob('*.py')}
        self.assertEqual(
            set(), {'.'.join(folder.parts) for folder in folders} - installed)

    def test_no_package_is_in_both_distributions(self):
        self.assertEqual(
            set(), find_packages(TREE) & find_packages(TREE / 'plugins'))


class TestPlugins(base.TestCase):
    """What runs in other people's processes needs nothing of the services."""

    def test_contract_on_imports_names_all_packages(self):
        """The contract "plugins" of import-linter."""
        [contract] = [each for each in tomllib.loads(
            (TREE / 'pyproject.toml').read_text())['tool']['importlinter'][
                'contracts'] if each['id'] == 'plugins']
        for key, directory in (('source_modules', TREE / 'plugins'),
                               ('forbidden_modules', TREE)):
            self.assertEqual(
                {name for name in find_packages(directory)
                 if name.count('.') == 1},
                {name for name in contract[key] if name.startswith(PACKAGE)})

    def test_modules_load_without_what_the_services_have(self):
        lacking = closure(set(required('requirements.txt'))) - closure(
            set(required('plugins/requirements.txt')))
        hidden = {name for name, owners
                  in importlib.metadata.packages_distributions().items()
                  if {*map(utils.canonicalize_name, owners)} <= lacking}
        self.assertLess({'matplotlib', 'numpy', 'sqlalchemy'}, hidden)
        hidden |= {name for name in find_packages(TREE)
                   if name.count('.') == 1} | {f'{PACKAGE}._native'}
        done = subprocess.run(
            [sys.executable, '-c', f'''
import runpy, sys
sys.modules.update(dict.fromkeys({hidden!r}))
sys.argv[1:] = ['cliff', 'openstack']
runpy.run_path('tools/lib/import_modules.py', run_name='__main__')
'''], cwd=TREE, capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertGreater(int(done.stdout.split()[0]), 80, done.stdout)


class TestLowerBounds(base.TestCase):

    def test_those_of_our_services_admit_no_release_with_a_known_hole(self):
        """doc/source/contributor/dependencies.rst has the advisories."""
        bounds = required('requirements.txt')
        for name, holed in (('pymysql', '1.1.0'), ('werkzeug', '3.0.5')):
            self.assertNotIn(holed, bounds[name].specifier)

    def test_those_of_the_plugins_admit_the_oldest_openstack(self):
        """Upper constraints of 2025.1, and what Debian 13 has less of."""
        bounds = required('plugins/requirements.txt')
        oldest = {'cliff': '4.9.1', 'cryptography': '43.0.0',
                  'keystoneauth1': '5.10.0', 'openstacksdk': '4.4.0',
                  'osc-lib': '3.2.0', 'oslo-concurrency': '7.1.0',
                  'oslo-config': '9.7.1', 'oslo-context': '5.7.1',
                  'oslo-log': '7.1.0', 'oslo-messaging': '16.1.0',
                  'oslo-serialization': '5.7.0', 'oslo-utils': '8.2.0',
                  'oslo-versionedobjects': '3.6.0', 'requests': '2.32.3'}
        self.assertEqual(oldest, {
            name: version for name, version in oldest.items()
            if version in bounds[name].specifier})
        self.assertEqual(set(oldest), set(bounds))
