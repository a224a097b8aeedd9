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
"""The database's tests again, on a real MariaDB."""

import subprocess
import sys

from diffcache_openstack.conf import opts
from diffcache_openstack.db import engine
from diffcache_openstack.db import migration
from tests import base
from tests.functional.fixtures import mariadb
from tests.unit.db import test_engine
from tests.unit.db import test_history
from tests.unit.db import test_migration
from tests.unit.db import test_plans
from tests.unit.db import test_sites


class OnMariaDB:
    """Puts a database on the server in place of a file."""

    def setUp(self):
        # Not the parent's, which makes its database in a file.
        base.TestCase.setUp(self)
        self.conf = opts.new_config()
        self.conf.set_override(
            'connection', mariadb.MariaDB.shared().connection(), 'database')
        migration.upgrade(self.conf)
        self.database = engine.Database(self.conf)
        self.addCleanup(self.database.close)
        self.prepare()

    def prepare(self):
        """What the parent's test has in its database at first."""


class TestMigrations(test_migration.Migrations,
                     test_migration.MigrationTest):

    def new_connection(self) -> str:
        return mariadb.MariaDB.shared().connection()


class TestConcurrency(OnMariaDB, test_engine.TestConcurrency):
    pass


class TestLeases(OnMariaDB, test_plans.TestLeases):
    pass


class TestPlans(OnMariaDB, test_plans.TestPlans):

    def prepare(self):
        self.add_host()


class TestHoldings(OnMariaDB, test_sites.TestHoldings):

    def prepare(self):
        self.add_hosts()


class TestHosts(OnMariaDB, test_sites.TestHosts):

    def prepare(self):
        self.add_hosts()


class TestHistory(OnMariaDB, test_history.TestHistory):

    def prepare(self):
        self.add_templates()


class TestManage(base.TestCase):

    def manage(self, connection, *words):
        config = self.write_file(
            'x.conf', f'[database]\nconnection = {connection}\n'
                      f'max_retries = 0\n'.encode())
        return subprocess.run(
            [sys.executable, '-c',
             'import sys; from diffcache_openstack.cmd import manage;'
             ' sys.exit(manage.main())', '--config-file', str(config),
             *words], capture_output=True, text=True)

    def test_sync_then_version(self):
        connection = mariadb.MariaDB.shared().connection()
        self.assertEqual(1, self.manage(connection, 'db', 'version')
                         .returncode)
        done = self.manage(connection, 'db', 'sync')
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        done = self.manage(connection, 'db', 'version')
        self.assertEqual((0, migration.head()),
                         (done.returncode, done.stdout.strip()))

    def test_wrong_password_is_one_line_without_it(self):
        connection = mariadb.MariaDB.shared().connection().replace(
            ':diffcache@', ':hunter2@')
        done = self.manage(connection, 'db', 'sync')
        self.assertEqual(1, done.returncode)
        lines = done.stderr.splitlines()
        self.assertEqual(lines[-1:], lines)
        self.assertIn('[database] connection', lines[0])
        self.assertNotIn('hunter2', done.stderr)
