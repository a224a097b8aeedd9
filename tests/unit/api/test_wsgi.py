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
"""Where the WSGI module finds its configuration."""

import importlib
import sys

import fixtures

from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from diffcache_openstack.db import migration
from tests.unit.db import database

MODULE = 'diffcache_openstack.api.wsgi'


class TestModule(database.DatabaseTest):

    def load(self, environ):
        """The module, made anew."""
        for name in ('OS_DIFFCACHE_CONFIG_FILES', 'OS_DIFFCACHE_CONFIG_DIR'):
            self.useFixture(fixtures.EnvironmentVariable(
                name, environ.get(name)))
        sys.modules.pop(MODULE, None)
        return importlib.import_module(MODULE)

    def write_config(self, url):
        return self.write_file('diffcache.conf', (
            f'[DEFAULT]\ntransport_url = fake:/\nuse_stderr = false\n'
            f'[database]\nconnection = {url}\n').encode())

    def test_files(self):
        path = self.write_config(self.conf.database.connection)
        module = self.load({'OS_DIFFCACHE_CONFIG_FILES': str(path)})
        self.assertTrue(callable(module.application))
        self.assertEqual(
            ['--config-file', 'a', '--config-file', 'b'],
            module.config_arguments({'OS_DIFFCACHE_CONFIG_FILES': 'a;b'}))

    def test_folder(self):
        self.write_config(self.conf.database.connection)
        module = self.load({'OS_DIFFCACHE_CONFIG_DIR': str(self.directory)})
        self.assertTrue(callable(module.application))

    def test_database_without_schema_is_refused(self):
        path = self.write_config(f'sqlite:///{self.directory}/none.sqlite')
        error = self.assertRaises(
            exceptions.PermanentError, self.load,
            {'OS_DIFFCACHE_CONFIG_FILES': str(path)})
        self.assertIn('diffcache-manage db sync', str(error))
        self.assertEqual(migration.head(), migration.current(self.conf))
        self.assertTrue(opts.list_opts())
