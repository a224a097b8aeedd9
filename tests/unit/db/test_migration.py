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
from diffcache_openstack.db import senders
from diffcache_openstack.objects import base as objects_base
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
    # The first whose code works on schemas of later ones.
    FIRST = 22

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
            if number > self.FIRST and number % migration._SERIES:
                self.assertEqual(set(), removed_by(path), path.name)

    def test_what_removes_is_seen(self):
        self.assertIn('alter_column', removed_by(
            self.VERSIONS / '0002_image_files.py'))


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

    def test_revocations_of_before_are_numbered_in_their_order(self):
        migration.upgrade(self.conf, '0010')
        database = engine.Database(self.conf)
        self.addCleanup(database.close)
        with database.engine.begin() as connection:
            for host, day in (('a', 2), ('b', 1)):
                connection.execute(sa.text(
                    'INSERT INTO revoked_keys VALUES (:host, :at)'),
                    {'host': host, 'at': f'2026-11-0{day} 00:00:00.000000'})
        migration.upgrade(self.conf)
        found = database.read(senders.newer_list, 0)
        self.assertEqual((2, {'a', 'b'}), (found.number, set(found.hosts)))
        database.write(senders.revoke, 'a', objects_base.now())
        self.assertIsNone(database.read(senders.newer_list, 3))

    def test_sums_of_what_hosts_hold_are_computed(self):
        migration.upgrade(self.conf, '0018')
        database = engine.Database(self.conf)
        self.addCleanup(database.close)
        with database.engine.begin() as connection:
            for statement in (
                    "INSERT INTO sites (name, map_generation, plan_generation)"
                    " VALUES ('edge', 1, 0)",
                    "INSERT INTO hosts (id, name, site, role, capacity, alive,"
                    " plan_generation, seen_at) VALUES"
                    " (1, 'a', 'edge', 'compute', 1, 1, 0, '2026-11-01'),"
                    " (2, 'b', 'edge', 'compute', 1, 1, 0, '2026-11-01')",
                    "INSERT INTO holdings (host_id, kind, object_id, bytes)"
                    " VALUES (1, 'templates', 'x', 5), (1, 'patches', 'y', 2)"
            ):
                connection.execute(sa.text(statement))
        migration.upgrade(self.conf)
        with database.engine.begin() as connection:
            self.assertEqual([('a', 2, 7), ('b', 0, 0)], connection.execute(
                sa.text('SELECT name, held_objects, held_bytes FROM hosts'
                        ' ORDER BY name')).all())
