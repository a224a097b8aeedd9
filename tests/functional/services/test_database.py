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

import sqlalchemy as sa

from diffcache_openstack.conf import opts
from diffcache_openstack.db import engine
from diffcache_openstack.db import listing
from diffcache_openstack.db import migration
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.views import image_views
from diffcache_openstack.db.views import request_views
from testing import mariadb
from tests import base
from tests.unit.db import database
from tests.unit.db.lazy import test_carried_profiles
from tests.unit.db.patches import test_pairs
from tests.unit.db.patches import test_sketches
from tests.unit.db.planning import test_history
from tests.unit.db.planning import test_plans
from tests.unit.db.planning import test_proposals
from tests.unit.db.sites import test_fills
from tests.unit.db.sites import test_held_rows
from tests.unit.db.sites import test_map_changes
from tests.unit.db import test_engine
from tests.unit.db import test_listing
from tests.unit.db import test_migration
from tests.unit.db import test_volume_caches
from tests.unit.db.views import test_host_views


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


class TestProposals(OnMariaDB, test_proposals.TestProposals):

    def prepare(self):
        self.begin()


class TestHoldings(OnMariaDB, test_held_rows.TestHoldings):

    def prepare(self):
        self.add_hosts()


class TestHosts(OnMariaDB, test_held_rows.TestHosts):

    def prepare(self):
        self.add_hosts()


class TestHistory(OnMariaDB, test_history.TestHistory):

    def prepare(self):
        self.add_images()


class TestEntries(OnMariaDB, test_listing.TestEntries):
    pass


class TestFills(OnMariaDB, test_fills.TestFills):

    def prepare(self):
        self.write(host_rows.put_host, database.host('h1'), database.at(0))


class TestCarriedProfiles(OnMariaDB, test_carried_profiles.TestProjects):

    def prepare(self):
        self.add_images()


class TestDemands(OnMariaDB, test_volume_caches.TestDemands):

    def prepare(self):
        test_volume_caches.TestDemands.prepare(self)


class TestSketches(OnMariaDB, test_sketches.TestRelations):
    """The search for similar images."""

    def prepare(self):
        self.add_host()

    def test_similar_images(self):
        for number in (1, 2):
            self.add(number, range(144))
        self.add(3, range(144, 288))
        self.assertEqual({1}, set(self.similar(2)))


class TestPatchPairs(OnMariaDB, test_pairs.TestAssignment):
    """Pairs of images, and the host that has each."""

    def prepare(self):
        self.add_hosts()
        self.add_pair()


class TestMapChanges(OnMariaDB, test_map_changes.TestEachChange):
    """Differences between generations of site maps."""

    def prepare(self):
        self.add_hosts()


class TestHoldingsOfManyHosts(OnMariaDB, test_host_views.TestManyRows):
    """Listings of what many hosts hold, with a plan."""

    def prepare(self):
        self.put_all()


class TestPartsOfHoldings(OnMariaDB, test_host_views.TestParts):
    """Names of hosts are compared byte by byte."""


class TestPaging(OnMariaDB, database.DatabaseTest):
    """Parts of listings are found by an index, wherever they are."""

    ROWS = 3000

    def prepare(self):
        when = database.at(0)
        with self.database.engine.begin() as connection:
            connection.execute(sa.insert(models.Image), [
                {'id': f't{n:05d}', 'name': 'x', 'size': 1, 'data_size': 1,
                 'content_id': database.content(n), 'created_at': when,
                 'disk_format': 'raw', 'file_size': 1, 'form_size': 0,
                 'visibility': 'public', 'status': 'active',
                 'family': f't{n - n % 10:05d}'}
                for n in range(self.ROWS)])
            connection.execute(sa.insert(models.Request), [
                {'id': f'r{n:05d}', 'image_id': 't00001', 'host': 'h1',
                 'site': 'edge', 'mode': 'on_the_fly', 'way': 'local',
                 'detail': '', 'seconds': 1.0, 'wan_bytes': 0,
                 'lan_bytes': 0, 'fallbacks': 0, 'apply_seconds': 0.0,
                 'started_at': database.at(n)} for n in range(self.ROWS)])
            connection.execute(sa.text(
                'ANALYZE TABLE images, requests')).all()

    def plans(self, function, *args):
        """What the server says of how it does a listing's queries."""
        sent = []

        def note(_connection, _cursor, statement, parameters, *_rest):
            sent.append((statement, parameters))

        engine_used = self.database.engine
        sa.event.listen(engine_used, 'before_cursor_execute', note)
        self.database.look(function, *args)
        sa.event.remove(engine_used, 'before_cursor_execute', note)
        with engine_used.connect() as connection:
            return [row for statement, parameters in sent
                    for row in connection.exec_driver_sql(
                        f'EXPLAIN {statement}', parameters).mappings()]

    def test_images(self):
        everybody = listing.Viewer(None, True)
        first, *_rest = self.plans(
            image_views.list_images, everybody, {},
            listing.Page(100, 't02000'))
        self.assertEqual(('range', 'PRIMARY'), (first['type'], first['key']))
        self.assertNotIn('filesort', first['Extra'] or '')

    def test_counts_of_images(self):
        found = self.plans(
            image_views.list_images, listing.Viewer(None, True), {},
            listing.Page(100, 't02000'))
        self.assertNotIn('ALL', {row['type'] for row in found
                                 if row['table'] != 'hosts'}, found)

    def test_requests_of_an_hour(self):
        hour = {'since': database.at(1000), 'until': database.at(1060)}
        first, *_rest = self.plans(request_views.list_requests, hour,
                                   listing.Page(100))
        self.assertEqual('ix_requests_started_at', first['key'], first)


class TestManage(base.TestCase):

    def manage(self, connection, *words):
        config = self.write_file(
            'x.conf', f'[database]\nconnection = {connection}\n'
                      f'max_retries = 0\n'.encode())
        return subprocess.run(
            [sys.executable, '-c',
             'import sys; from diffcache_openstack.cmd.manage import app;'
             ' sys.exit(app.main())', '--config-file', str(config),
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
