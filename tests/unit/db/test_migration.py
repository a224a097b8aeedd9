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
from oslo_db.sqlalchemy import test_migrations
import sqlalchemy as sa

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


class TestSQLite(Migrations, MigrationTest):

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
