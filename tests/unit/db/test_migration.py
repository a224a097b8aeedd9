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
import ast
import pathlib

import fixtures
from oslo_db.sqlalchemy import test_migrations
import sqlalchemy as sa

from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from diffcache_openstack.db import engine
from diffcache_openstack.db import migration
from diffcache_openstack.db import models
from tests import base


class MigrationTest(base.TestCase):
    """Runs on an empty database in a file; others may come with their own."""

    def new_connection(self) -> str:
        return f'sqlite:///{self.directory}/db.sqlite'

    def setUp(self):
        super().setUp()
        self.conf = opts.new_config()
        self.conf.set_override('connection', self.new_connection(),
                               'database')


class Migrations(test_migrations.ModelsMigrationsSync):
    """What holds on every engine."""

    def get_engine(self):
        self.database = engine.Database(self.conf)
        self.addCleanup(self.database.close)
        return self.database.engine

    def db_sync(self, engine):
        migration.upgrade(self.conf)

    def get_metadata(self):
        return models.Base.metadata

    def include_object(self, object_, name, type_, reflected, compare_to):
        return name != 'alembic_version'

    def test_revision_is_known(self):
        self.assertIsNone(migration.current(self.conf))
        migration.upgrade(self.conf)
        self.assertEqual(migration.head(), migration.current(self.conf))

    def test_upgrade_twice(self):
        migration.upgrade(self.conf)
        migration.upgrade(self.conf)
        self.assertEqual(migration.head(), migration.current(self.conf))


def removed_by(path):
    """Names of operations that code of before may not work after."""
    calls = [node for node in ast.walk(ast.parse(path.read_text()))
             if isinstance(node, ast.Call)
             and isinstance(node.func, ast.Attribute)]
    return {call.func.attr for call in calls if call.func.attr.startswith(
        ('drop_', 'alter_', 'rename_'))}


class TestSeries(base.TestCase):
    """What lets services be upgraded one after the other."""

    VERSIONS = pathlib.Path(migration.__file__).parent / 'migrations/versions'

    def test_later_schemas_of_the_series_are_accepted(self):
        self.useFixture(fixtures.MockPatchObject(
            migration, 'head', lambda: '0021'))
        self.useFixture(fixtures.MockPatchObject(
            migration, 'is_known', lambda revision: revision <= '0021'))
        for revision, accepted in (
                (None, False), ('0001', False), ('0020', False),
                ('0021', True), ('0022', True), ('0999', True),
                ('1000', False), ('9999', False), ('somebody', False)):
            self.assertIs(accepted, migration.accepts(revision), revision)

    def test_migrations_of_a_series_only_add(self):
        for path in sorted(self.VERSIONS.glob('[0-9]*.py')):
            number = int(path.name.split('_')[0])
            if number > 1 and number % migration._SERIES:
                self.assertEqual(set(), removed_by(path), path.name)

    def test_only_a_lone_migration_follows_the_models(self):
        paths = sorted(self.VERSIONS.glob('[0-9]*.py'))
        following = [path.name for path in paths
                     if 'models' in path.read_text()]
        self.assertIn(following, ([], [path.name for path in paths]))

    def test_what_removes_is_seen(self):
        path = self.directory / '0002_of_a_neighbour.py'
        path.write_text("op.add_column('hosts', 'a')\n"
                        "table.alter_column('hosts', nullable=False)\n")
        self.assertEqual({'alter_column'}, removed_by(path))


class TestSQLite(Migrations, MigrationTest):

    def test_a_service_starts_on_a_later_schema_of_its_series(self):
        migration.upgrade(self.conf)
        database = engine.Database(self.conf)
        self.addCleanup(database.close)
        for revision in ('0999', '1000'):
            with database.engine.begin() as connection:
                connection.execute(
                    sa.text('UPDATE alembic_version SET version_num = :number'
                            ), {'number': revision})
            if revision == '0999':
                migration.wait_for_schema(self.conf)
            else:
                self.assertRaises(exceptions.PermanentError,
                                  migration.wait_for_schema, self.conf)
