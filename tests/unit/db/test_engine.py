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
import concurrent.futures

from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy.engine import default

from diffcache_openstack.db import catalogue
from diffcache_openstack.db import engine
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.sites import generations
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from tests.unit.db import database


class TestRetries(database.DatabaseTest):

    def failing(self, times, error):
        calls = []

        def function(session, value):
            calls.append(value)
            if len(calls) <= times:
                raise error
            return len(calls)
        return function

    def test_deadlock_is_run_again(self):
        for run in (self.write, self.read, self.database.look):
            self.assertEqual(3, run(
                self.failing(2, db_exception.DBDeadlock()), 'x'))

    def test_lost_insert_is_run_again(self):
        self.assertEqual(2, self.write(
            self.failing(1, db_exception.DBDuplicateEntry()), 'x'))

    def test_other_errors_are_not(self):
        self.assertRaises(
            db_exception.DBError, self.write,
            self.failing(1, db_exception.DBError()), 'x')

    def test_error_leaves_nothing_behind(self):
        def function(session):
            host_rows.put_host(session, database.host('h1'), database.at(0))
            raise ValueError

        self.assertRaises(ValueError, self.write, function)
        self.assertEqual([], self.read(host_rows.list_hosts))


class TestEnds(database.DatabaseTest):
    """The ends of transactions, as the server is told of them."""

    def setUp(self):
        super().setUp()
        self.ends = []
        for name in ('do_commit', 'do_rollback'):
            self.patch(default.DefaultDialect, name,
                       self.noting(name, getattr(default.DefaultDialect,
                                                 name)))
        self.database = engine.Database(self.conf)
        self.addCleanup(self.database.close)
        self.database.look(lambda connection: None)
        self.ends.clear()

    def noting(self, name, method):
        def note(dialect, connection):
            self.ends.append(name)
            method(dialect, connection)

        return note

    def put(self, session):
        host_rows.put_host(session, database.host('h1'), database.at(0))

    def test_each_ends_once(self):
        self.write(self.put)
        self.assertEqual(['do_commit'], self.ends)
        self.ends.clear()
        self.read(host_rows.list_hosts)
        self.assertEqual(['do_rollback'], self.ends)

    def test_one_that_fails_is_rolled_back(self):
        self.write(self.put)
        self.ends.clear()
        self.assertRaises(ZeroDivisionError, self.write,
                          lambda session: self.put(session) or 1 / 0)
        self.assertEqual(['do_rollback'], self.ends)

    def test_so_is_what_the_driver_alone_began(self):
        with self.database.engine.connect() as connection:
            connection.execute(sa.text('SELECT 1'))
            connection.commit()
        self.ends.clear()
        driver = self.database.engine.raw_connection()
        driver.cursor().execute('UPDATE sites SET name = 1')
        driver.close()
        self.assertEqual(['do_rollback'], self.ends)


class TestConcurrency(database.DatabaseTest):
    """Many threads on one database; they share no Python state."""

    THREADS = 8

    def run_all(self, function, count):
        with concurrent.futures.ThreadPoolExecutor(self.THREADS) as pool:
            futures = [pool.submit(function, n) for n in range(count)]
            return [future.exception() or future.result()
                    for future in futures]

    def test_one_host_registered_by_many(self):
        self.run_all(lambda n: self.write(
            host_rows.put_host, database.host('h1', capacity=n),
            database.at(n)),
            24)
        self.assertEqual(1, len(self.read(host_rows.list_hosts)))

    def test_each_change_counts(self):
        self.write(host_rows.put_host, database.host('h1'), database.at(0))
        before = self.read(generations.map_generation, database.SITE)
        results = self.run_all(lambda n: self.write(
            catalogue.put_image, database.image(n), database.at(n)), 24)
        self.assertEqual([], [r for r in results if isinstance(r, Exception)])
        self.assertEqual(before + 24,
                         self.read(generations.map_generation, database.SITE))

    def test_lease_has_one_owner(self):
        holders = self.run_all(lambda n: self.write(
            plans.take_lease, 'x', f'owner{n}', database.at(0),
            database.at(60)), 24)
        winners = [n for n, holder in enumerate(holders) if holder is None]
        self.assertEqual(1, len(winners))
        self.assertEqual({None, f'owner{winners[0]}'}, set(holders))

    def test_one_plan_per_generation(self):
        self.write(host_rows.put_host, database.host('h1'), database.at(0))
        results = self.run_all(lambda n: self.write(
            plans.put_plan, new_plan(n), 0), 12)
        self.assertEqual(
            1, len([r for r in results if isinstance(r, objects.Plan)]))


def new_plan(number: int, **values) -> objects.Plan:
    """A plan that is told by its cost."""
    return objects.Plan(**{
        'site': database.SITE, 'generation': 0, 'solver': 'greedy',
        'cost_s': float(number), 'lower_bound_s': 0.0,
        'proved_optimal': False, 'solver_seconds': 0.1,
        'created_at': database.at(number), **values})
