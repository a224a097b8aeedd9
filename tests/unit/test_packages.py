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
"""The wheel has every module of the package, and what it requires."""

import pathlib

from packaging import requirements
import setuptools

from tests import base

TREE = pathlib.Path(__file__).parents[2]
PACKAGE = 'diffcache_openstack'


class TestPackages(base.TestCase):

    def test_each_folder_with_modules_is_installed(self):
        """Regression: the wheel had no nova.virt.diffcache."""
        installed = set(setuptools.find_packages(
            str(TREE), include=[f'{PACKAGE}*']))
        folders = {path.parent.relative_to(TREE)
                   for path in (TREE / PACKAGE).rglob('*.py')}
        self.assertEqual(
            set(), {'.'.join(folder.parts) for folder in folders} - installed)


class TestLowerBounds(base.TestCase):

    def test_those_of_our_services_admit_no_release_with_a_known_hole(self):
        """doc/source/contributor/dependencies.rst has the advisories."""
        bounds = {}
        for line in (TREE / 'requirements.txt').read_text().splitlines():
            found = requirements.Requirement(line.partition('#')[0]) \
                if line.partition('#')[0].strip() else None
            if found is not None:
                bounds[found.name] = found.specifier
        for name, holed in (('PyMySQL', '1.1.0'), ('Werkzeug', '3.0.5')):
            self.assertNotIn(holed, bounds[name])
