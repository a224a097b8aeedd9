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
"""The contracts on imports hold, and are broken by what they forbid."""

import os
import pathlib
import shutil
import subprocess
import sys
import tomllib

from tests import base

TREE = pathlib.Path(__file__).parents[2]
PACKAGE = 'diffcache_openstack'


def lint(directory: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run the linter with the project's contracts on a tree of its own."""
    program = 'from importlinter import cli; cli.lint_imports_command()'
    return subprocess.run(
        [sys.executable, '-c', program, '--no-cache', '--no-logo'],
        cwd=directory, capture_output=True, text=True,
        env=dict(os.environ, PYTHONPATH=str(directory), NO_COLOR='1'))


class TestContracts(base.TestCase):
    """The contracts, on packages that hold nothing but one import."""

    def setUp(self):
        super().setUp()
        shutil.copy(TREE / 'pyproject.toml', self.directory)
        self.write_file(f'{PACKAGE}/__init__.py',
                        (TREE / PACKAGE / '__init__.py').read_bytes())
        for path in (TREE / PACKAGE).glob('*/__init__.py'):
            self.write_file(f'{PACKAGE}/{path.parent.name}/__init__.py', b'')
        self.write_file(f'{PACKAGE}/versions/store/__init__.py', b'')

    def add(self, module: str, statement: str) -> None:
        name = module.replace('.', '/')
        self.write_file(f'{PACKAGE}/{name}.py', statement.encode())

    def assert_broken(self, *names: str) -> None:
        """Exactly the contracts with these identities are reported."""
        document = tomllib.loads((TREE / 'pyproject.toml').read_text())
        result = lint(self.directory)
        self.assertEqual('', result.stderr)
        for contract in document['tool']['importlinter']['contracts']:
            word = 'BROKEN' if contract['id'] in names else 'KEPT'
            self.assertIn(f'{contract["name"]} {word}', result.stdout)
        self.assertEqual(bool(names), bool(result.returncode))

    def test_down_the_layers_is_kept(self):
        self.add('cmd.x', f'import {PACKAGE}.agent.x')
        self.add('agent.x', f'import {PACKAGE}.rpc.x')
        self.add('conductor.x', f'import {PACKAGE}.rpc.x')
        self.add('rpc.x', f'import {PACKAGE}.placement.x')
        self.add('placement.x', f'import {PACKAGE}.common')
        self.assert_broken()

    def test_up_the_layers_is_broken(self):
        self.add('common.x', f'import {PACKAGE}.objects')
        self.assert_broken('layers')

    def test_between_pure_packages_is_broken(self):
        self.add('blocks.x', f'import {PACKAGE}.placement')
        self.assert_broken('layers')

    def test_service_library_in_pure_package_is_broken(self):
        self.add('placement.x', f'import {PACKAGE}.common.x')
        self.add('common.x', 'import oslo_messaging')
        self.assert_broken('pure')

    def test_agent_reaching_database_is_broken(self):
        self.add('agent.x', f'import {PACKAGE}.rpc.x')
        self.add('rpc.x', f'import {PACKAGE}.db')
        self.assert_broken('database')

    def test_services_reaching_into_each_other_are_broken(self):
        self.add('agent.x', f'import {PACKAGE}.conductor.y')
        self.add('conductor.x', f'import {PACKAGE}.agent.y')
        self.add('agent.y', '')
        self.add('conductor.y', '')
        self.assert_broken('calls', 'calls-back')

    def test_versions_that_know_a_key_manager_are_broken(self):
        self.add('versions.version_store', 'import castellan')
        self.assert_broken('pure')

    def test_up_the_layers_of_versions_is_broken(self):
        for name in ('save', 'restore'):
            self.write_file(f'{PACKAGE}/versions/{name}/__init__.py', b'')
        self.add('versions.restore.x', f'import {PACKAGE}.versions.save')
        self.assert_broken()
        self.add('versions.save.x', f'import {PACKAGE}.versions.restore')
        self.assert_broken('versions')

    def test_up_the_layers_of_a_version_store_is_broken(self):
        for name in ('commits', 'copies'):
            self.write_file(f'{PACKAGE}/versions/store/{name}/__init__.py',
                            b'')
        self.add('versions.store.commits.x',
                 f'import {PACKAGE}.versions.store.copies')
        self.assert_broken('version-store')

    def test_the_api_that_calls_the_conductor_directly_is_broken(self):
        self.add('api.x', f'import {PACKAGE}.planning.x')
        self.assert_broken()
        self.add('api.y', f'import {PACKAGE}.conductor.x')
        self.assert_broken('calls-of-users')

    def test_services_that_load_cloud_clients_themselves_are_broken(self):
        self.add('cloud.x', 'import novaclient')
        self.add('client.x', 'import openstack')
        self.add('conductor.x', f'import {PACKAGE}.cloud.x')
        self.assert_broken()
        self.add('agent.x', 'import glanceclient')
        self.assert_broken('openstack')

    def test_package_in_no_layer_is_broken(self):
        self.write_file(f'{PACKAGE}/newcomer/__init__.py', b'')
        self.assert_broken('layers')
