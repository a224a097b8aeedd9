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
import contextlib
import datetime
import threading

from oslo_messaging import conffixture
import sqlalchemy as sa

from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor import heartbeats
from diffcache_openstack.db import engine
from diffcache_openstack.db import models
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db import senders
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from tests.unit.conductor.endpoints import test_agents
from tests.unit.conductor import test_trust
from tests.unit.db import database

HOSTS = 20


@contextlib.contextmanager
def statements(*databases):
    """Collect what all threads send to databases to answer messages."""
    sent = []

    def note(_connection, _cursor, statement, *_rest):
        # By these, SQLite alone starts a transaction that writes.
        if statement not in ('BEGIN', str(engine._BECOME_WRITER)) \
                and threading.current_thread().name != 'notifier':
            sent.append(statement)

    for each in databases:
        sa.event.listen(each.engine, 'before_cursor_execute', note)
    try:
        yield sent
    finally:
        for each in databases:
            sa.event.remove(each.engine, 'before_cursor_execute', note)


class HeartbeatTest(test_trust.TrustTest):
    """Signed heartbeats of many hosts."""

    CHECK_INTERVAL = 3600

    def setUp(self):
        super().setUp()
        self.clients = {f'h{number}': self.client('compute', f'h{number}')
                        for number in range(HOSTS)}
        for name in self.clients:
            self.beat(name)

    def beat(self, name):
        return self.clients[name].register_host(self.ctxt,
                                                database.host(name))

    def sent(self):
        return statements(self.conductor._heartbeat_database)


class TestCosts(HeartbeatTest):

    def test_statements_of_one(self):
        with self.sent() as sent:
            self.beat('h1')
        self.assertLessEqual(len(sent), 3, sent)

    def test_statements_of_many(self):
        with concurrent.futures.ThreadPoolExecutor(HOSTS) as pool, \
                self.sent() as sent:
            list(pool.map(self.beat, self.clients))
        # One of each is that the message was not accepted before.
        self.assertLess(len(sent), 2 * HOSTS, sent)


class TestQueue(test_agents.ConductorTest):
    """Heartbeats while other calls have all threads that there are."""

    CHECK_INTERVAL = 3600
    THREADS = 2

    def prepare(self):
        self.useFixture(conffixture.ConfFixture(self.conf))
        self.conf.set_override('executor_thread_pool_size', self.THREADS)

    def setUp(self):
        super().setUp()
        self.api.register_host(self.ctxt, database.host('h1'))
        self.block()

    def block(self):
        """Have calls wait for a map."""
        started, ended = threading.Semaphore(0), threading.Event()
        update = self.conductor._maps.update

        def wait(*arguments):
            started.release()
            ended.wait()
            return update(*arguments)

        self.patch(self.conductor._maps, 'update', wait)
        pool = concurrent.futures.ThreadPoolExecutor(self.THREADS)
        self.addCleanup(pool.shutdown)
        self.addCleanup(ended.set)
        for _number in range(self.THREADS):
            pool.submit(self.api.update_site_map, self.ctxt, database.SITE)
        for _number in range(self.THREADS):
            started.acquire()

    def host(self):
        return self.database.read(database.holding_host, 'h1')

    def test_heartbeats_do_not_wait_for_maps(self):
        before = self.host().seen_at
        self.api.register_host(self.ctxt, database.host('h1'))
        self.assertGreater(self.host().seen_at, before)

    def test_hosts_that_are_silent_meanwhile_are_declared_dead(self):
        long_ago = versioned.now() - datetime.timedelta(days=1)
        self.database.write(lambda session: session.execute(
            sa.update(models.Host).values(seen_at=long_ago)))
        self.conductor._liveness._listens_since = long_ago
        self.conductor._check_hosts()
        self.assertFalse(self.host().alive)


class TestHeartbeats(test_agents.ConductorTest):

    CHECK_INTERVAL = 3600

    def beat(self, **values):
        return self.api.register_host(self.ctxt,
                                      database.host('h1', **values))

    def row(self):
        return self.database.read(lambda session: session.scalar(
            sa.select(models.Host).where(models.Host.name == 'h1')))

    def test_answers_name_what_the_host_may_lack(self):
        first = self.beat()
        self.assertEqual(0, first.revoked_number)
        self.assertEqual(first, self.beat())
        self.database.write(senders.revoke, 'h2', versioned.now())
        self.api.report_holdings(self.ctxt, 'h1', [database.holding(1)])
        later = self.beat()
        self.assertEqual(1, later.revoked_number)
        self.assertGreater(later.map_generation, first.map_generation)
        self.assertEqual(
            later.map_generation, self.api.update_site_map(
                self.ctxt, database.SITE).generation)

    def test_the_time_is_noted_and_changes_are_stored(self):
        self.beat()
        database.silence(self.database, 'h1')
        self.assertFalse(self.row().alive)
        dead = self.beat()
        self.assertTrue(self.row().alive)
        before = self.row().seen_at
        self.assertEqual(dead, self.beat())
        self.assertLess(before, self.row().seen_at)
        self.beat(capacity=7)
        self.assertEqual(7, self.row().capacity)

    def test_one_host_of_a_batch_that_fails_fails_alone(self):
        put_host = host_rows.put_host

        def put(session, host, when):
            if host.name == 'h2':
                raise exceptions.Conflict('refused')
            return put_host(session, host, when)

        self.beat()
        self.patch(host_rows, 'put_host', put)
        found = heartbeats.Heartbeats(
            self.database, self.conductor._notifier)._put(
            [database.host(name) for name in ('h1', 'h2', 'h3')])
        for answered in (found[0], found[2]):
            self.assertIsInstance(answered[0], objects.HeartbeatAnswer)
        self.assertIsInstance(found[1], exceptions.Conflict)

    def test_a_host_that_is_in_a_batch_twice_and_changed_is_put(self):
        self.beat()
        hosts = [database.host('h1'), database.host('h1', capacity=9)]
        self.assertEqual({}, self.database.write(
            host_rows.renew_hosts, hosts, versioned.now()))

    def test_a_host_beside_the_plan_is_sent_none(self):
        self.register(1)
        self.api.plan_now(self.ctxt, database.SITE)
        there = database.host('h1', capacity=150 * test_agents.MB)
        self.assertIsNotNone(self.database.read(plans.lacked_by, there))
        self.assertIsNone(self.database.read(plans.lacked_by,
                                             database.host('h9')))
        there.plan_generation = self.api.get_plan(
            self.ctxt, database.SITE).generation
        self.assertIsNone(self.database.read(plans.lacked_by, there))
