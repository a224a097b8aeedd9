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
"""Every entry point names something that can be loaded."""

import configparser
import importlib.metadata
import importlib.util
import inspect
import pathlib

from tests import base

TREE = pathlib.Path(__file__).parents[2]
PATHS = {'diffcache-openstack': 'setup.cfg',
         'diffcache-openstack-plugins': 'plugins/setup.cfg'}
# Groups whose entries import the project that the group belongs to.
FOREIGN = {'tempest.test_plugins'}


def declared() -> list[importlib.metadata.EntryPoint]:
    """Those of both distributions, whatever was installed before."""
    return [point for path in PATHS.values() for point in read(path)]


def read(path: str) -> list[importlib.metadata.EntryPoint]:
    """Those of a distribution's file."""
    parser = configparser.ConfigParser(delimiters=('=',))
    parser.optionxform = str
    parser.read(TREE / path)
    found = []
    for group, lines in parser['options.entry_points'].items():
        for line in lines.strip().splitlines():
            name, _, value = (part.strip() for part in line.partition('='))
            found.append(importlib.metadata.EntryPoint(name, value, group))
    return found


class TestEntryPoints(base.TestCase):

    def test_each_can_be_loaded(self):
        for point in declared():
            # Plugins of what need not be there, and is tested elsewhere.
            if not importlib.util.find_spec(point.group.partition('.')[0]
                                            if point.group in FOREIGN
                                            else 'diffcache_openstack'):
                continue
            with self.subTest(group=point.group, name=point.name):
                found = point.load()
                # The openstack client wants a module.
                self.assertTrue(callable(found) or inspect.ismodule(found))

    def test_services_and_tools_are_console_scripts(self):
        scripts = {point.name for point in declared()
                   if point.group == 'console_scripts'}
        self.assertLessEqual(
            {'diffcache', 'diffcache-agent', 'diffcache-conductor',
             'diffcache-manage', 'diffcache-status'}, scripts)

    def test_installed_are_those_declared(self):
        for name, path in PATHS.items():
            self.assertEqual(
                sorted((p.group, p.name, p.value) for p in read(path)),
                sorted((p.group, p.name, p.value) for p in
                       importlib.metadata.distribution(name).entry_points))
