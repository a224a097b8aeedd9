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
"""Two years of a conductor's timers, under a clock that the test moves.

The conductor's own code runs with a database; agents and Nova are simulated.
Hosts die for days and come back, tasks fail, servers are made and deleted, and
nothing may grow from one year to the next.
"""

import datetime
import types
import uuid

from oslo_db.sqlalchemy import engines
import sqlalchemy as sa

from diffcache_openstack.cloud import servers as nova
from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor import ledger
from diffcache_openstack.conductor import liveness
from diffcache_openstack.conductor import precache
from diffcache_openstack.conductor import proposals
from diffcache_openstack.conductor import service as conductor
from diffcache_openstack.conductor.versions import dispatch
from diffcache_openstack.conductor.versions import policy_servers
from diffcache_openstack.conductor.versions import service
from diffcache_openstack.conductor.versions import transactions
from diffcache_openstack.conductor.versions import upkeep
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import engine
from diffcache_openstack.db import models
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.versions import policies
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from diffcache_openstack.planning import planners
from diffcache_openstack.sites import maps
from tests.unit.conductor import clock
from tests.unit.conductor import fakes
from tests.unit.db import database

PROJECT = 'p'
DAY = datetime.timedelta(days=1)
# Between two steps.
STEP = 4 * DAY
YEAR = 365 * DAY // STEP
HOSTS = ('h1', 'h2', 'hub')
KEPT = {'keep_last': 4, 'keep_daily': 7, 'keep_weekly': 4, 'keep_monthly': 12}
# Each such task fails, by kind: deletions and prunes as well as saves.
FAILING = {versions.SAVE: 23, versions.FORGET: 11, versions.PRUNE: 5,
           versions.VERIFY: 3}
# Tables that fill up to a limit in more than a year.
MOST = dict.fromkeys(('plans', 'plan_hosts', 'plan_items'),
                     2 * planners.KEPT_PLANS) | {'map_changes': 20}
# A save adds this many bytes to the store.
ADDED = 1000


class Agents:
    """Hosts with one store of versions, which has live bytes and dead ones."""

    def __init__(self, test):
        self._test = test
        self.given = []
        self.counts = dict.fromkeys(versions.KINDS, 0)
        self.prunes = []
        self.live = set()
        self.dead = 0

    def perform(self, _ctxt, host, task):
        """A task goes to a host."""
        self.given.append((host, task))

    def work(self):
        """Hosts that are alive do what they were given; return if any."""
        given, self.given = self.given, []
        for host, task in given:
            if host in self._test.away:
                self.given.append((host, task))
            else:
                self._do(host, task)
        return len(self.given) < len(given)

    def _do(self, host, task):
        self.counts[task.kind] += 1
        every = FAILING.get(task.kind)
        report = objects.TaskReport(task_id=task.id, state=versions.DONE)
        if every and self.counts[task.kind] % every == 0:
            report.state, report.error = versions.FAILED, 'no'
            report.error_code = 'internal'
        elif task.kind == versions.SAVE:
            report.saved = fakes.saved(self.counts[task.kind])
            self.live.add(report.saved.disks[0].version)
        elif task.kind == versions.FORGET:
            gone = {disk.version for disk in task.disks} & self.live
            self.live -= gone
            self.dead += len(gone)
        elif task.kind == versions.PRUNE:
            self.dead = 0
            self.prunes.append(self._test.clock.now)
        report.store_bytes = (len(self.live) + self.dead) * ADDED
        wanted = self._test.versions.report_task(
            types.SimpleNamespace(bound_host=host), report)
        if not wanted and report.saved is not None:
            # The host removes nothing: the conductor has it deleted.
            self._test.unwanted.append(task.id)


class Notifier:
    """Notifies no host."""

    def maps_changed(self, changed):
        """Nobody is told."""

    def send_plan(self, plan):
        """Nobody is told."""


class Nova(fakes.Nova):
    """Servers that tests add and remove."""

    def remove(self, server_id):
        """Delete a server."""
        self.servers.pop(server_id, None)


class TwoYearsTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        # It yields the processor after each of them.
        self.patch(engines, '_thread_yield', lambda *_connection: None)
        self.database = self.in_memory(self.database)
        # Longer than the time between two deletions.
        self.conf.set_override('prune_interval', 8 * 86400, 'versions')
        # Plans of a site that changes little.
        self.conf.set_override('interval', 20 * 86400, 'planner')
        self.clock = clock.Clock(self)
        self.away = set()
        self.unwanted = []
        self.agents = Agents(self)
        self.nova = Nova(PROJECT, 'q')
        self.nova.remove('foreign')
        self.nova.change('stopped', host='h2')
        self.conductor = self.new_conductor()
        self.versions = self.conductor._versions
        self.beat()
        self.write(catalogue.put_image, database.image(1),
                   self.clock.now)
        self.set_policy(None, every=4 * 86400, **KEPT)
        self.set_policy('stopped', every=8 * 86400, keep_last=2)

    def new_conductor(self):
        """A conductor without its RPC server, whose timers the test calls."""
        made = conductor.ConductorService(self.conf)
        made._database = self.database
        made._notifier = Notifier()
        made._ledger = ledger.DatabaseLedger(self.database, 300)
        made._liveness = liveness.Liveness(
            self.conf, self.database, lambda: None)
        made._maps = maps.Maps(self.conf, self.database)
        made._planner = planners.Planner(self.conf, self.database, 'me')
        made._proposals = proposals.Proposals(
            self.conf, self.database, made._planner, made._notifier,
            'me')
        self.addCleanup(made._proposals.stop)
        made._precacher = precache.Precacher(
            self.conf, self.database, made._planner, made._notifier, 'me')
        made._dispatcher = dispatch.Dispatcher(
            self.conf, self.database, self.agents, self.nova, 'me')
        self.addCleanup(made._dispatcher.stop)
        made._dispatcher.wake = lambda: None
        made._versions = service.VersionService(
            self.conf, self.database, made._dispatcher, self.nova,
            self.agents)
        made._version_upkeep = upkeep.Upkeep(
            self.conf, self.database, made._versions,
            policy_servers.PolicyServers(self.nova, fakes.Cinder()), 'me')
        return made

    def in_memory(self, stored):
        """The same database, in memory, since it has many transactions."""
        self.conf.set_override('connection', 'sqlite://', 'database')
        made = engine.Database(self.conf)
        self.addCleanup(made.close)
        source = stored.engine.raw_connection()
        target = made.engine.raw_connection()
        source.driver_connection.backup(target.driver_connection)
        source.close()
        target.close()
        return made

    def set_policy(self, server_id, **values):
        self.write(policies.put, objects.VersionPolicy(
            id=str(uuid.uuid4()), project_id=PROJECT, server_id=server_id,
            **values), self.clock.now)

    def beat(self):
        """Hosts that are not away report."""
        for name in HOSTS:
            if name not in self.away:
                self.write(host_rows.put_host, objects.Host(
                    name=name, site=database.SITE, url=f'http://{name}:1',
                    capacity=10 ** 10, role=objects.REPOSITORY
                    if name == 'hub' else objects.COMPUTE), self.clock.now)

    def timers(self):
        """What runs every few seconds, until hosts have nothing to do."""
        self.beat()
        self.conductor._check_hosts()
        self.conductor._look_after_versions()
        while self.agents.work():
            self.conductor._dispatcher.look()

    def hours(self):
        """What runs each hour or every few minutes."""
        self.conductor._plan_due_sites()
        self.conductor._order_patches()
        self.conductor._prune_map_changes()
        self.conductor._tidy_ledger()
        self.conductor._prune()

    def step(self, number):
        """Let some days pass."""
        self.clock.now += STEP
        self.timers()
        if self.away:
            # Leases lapse only while the conductor looks often.
            for _round in range(4):
                self.clock.wait(seconds=100)
                self.timers()
        self.write(history.put_request, database.request(
            number, started_at=self.clock.now, way='repository'))
        if number % 2 == 0:
            self.hours()
        if number % 5 == 0:
            self.read_a_version()

    def read_a_version(self):
        """A host reads a version, and never says that it has ended."""
        found = self.read(db.prunable, 'running')
        if found:
            self.versions.open_version(None, 'h1', found[-1].id, PROJECT)

    def year(self, first):
        """Let a year pass; return the largest counts, by table."""
        largest = {}
        for number in range(first, first + YEAR):
            # A host is away for twelve days, twice a year.
            self.away = {'h2'} if number % 45 in range(30, 33) else set()
            if number % 15 == 0:
                self.replace_server(number // 15)
            self.step(number)
            self.check_store()
            if number % 5 == 0:
                for table, count in self.read(_counts).items():
                    largest[table] = max(count, largest.get(table, 0))
        return largest

    def replace_server(self, number):
        """A server with a policy of its own takes the place of another."""
        self.nova.remove(f's{number - 1}')
        self.nova.servers[f's{number}'] = nova.Server(
            f's{number}', PROJECT, 'ACTIVE', 'h1', image_id='t1')
        self.write(_drop_policies, f's{number - 1}')
        self.set_policy(f's{number}', every=8 * 86400, keep_last=2)
        for version in self.read(db.prunable, f's{number - 1}'):
            self.write(transactions.forget, version.id, self.clock.now)

    def check_store(self):
        """Space that was given up is freed within some days."""
        first = self.read(_store)
        if first is not None and first.unpruned_since is not None:
            self.assertLess(self.clock.now - first.unpruned_since, 17 * DAY)
        self.assertLess(self.agents.dead, 40)

    def test_nothing_grows_and_nothing_waits(self):
        before = self.year(0)
        prunes, verified = len(self.agents.prunes), self.agents.counts[
            versions.VERIFY]
        after = self.year(YEAR)
        # As many as fit into a year, but for those that fail.
        self.assertGreater(len(self.agents.prunes) - prunes, 20)
        self.assertGreater(
            self.agents.counts[versions.VERIFY] - verified, 40)
        self.assertEqual(
            {}, {table: (before[table], count)
                 for table, count in after.items()
                 if count > max(1.1 * before[table] + 2,
                                MOST.get(table, 0))})
        self.assertEqual([], self.unwanted)
        self.check_retention()
        # What versions the store has are those that the catalogue has.
        self.assertEqual(self.agents.live, self.read(_disks))

    def check_retention(self):
        """What the policy says is there, by days, weeks and months."""
        when = sorted(datetime.datetime.fromisoformat(each.created_at)
                      for each in self.read(db.prunable, 'running'))
        self.assertLessEqual(len(when), sum(KEPT.values()))
        ages = [(self.clock.now - each) / DAY for each in when]
        self.assertGreater(max(ages), 300)
        for oldest, newest in ((9, 0), *(
                (days + 5, days - 5) for days in range(4, 24, 4)), *(
                (7 * weeks + 14, 7 * weeks - 7) for weeks in range(1, 4)), *(
                (31 * months + 62, 31 * months - 31)
                for months in range(1, 10))):
            self.assertTrue([age for age in ages if newest <= age <= oldest],
                            (oldest, newest, ages))

    def test_tasks_of_a_host_that_is_away_end(self):
        for number in range(4):
            self.step(number)
        self.away = {'h2'}
        seen = set()
        for number in range(4, 11):
            self.step(number)
            waiting = self.read(_open_saves, 'stopped')
            self.assertLessEqual(len(waiting), 1)
            seen.update(waiting)
        # Those that waited for a week have failed, and others took turns.
        self.assertLess(1, len(seen))
        self.assertGreater(5, len(seen))
        self.away = set()
        for number in range(11, 15):
            self.step(number)
        self.assertEqual([], self.read(_open_saves, 'stopped'))
        last = self.read(db.last_saves, ['stopped'])['stopped']
        self.assertLess(self.clock.now - last, 13 * DAY)

    def test_plans_are_made_when_they_are_due(self):
        self.conf.set_override('interval', 86400, 'planner')
        planned = []
        plan = self.conductor._planner.plan

        def note(site):
            planned.append(self.clock.now)
            return plan(site)

        self.patch(self.conductor._planner, 'plan', note)
        for _step in range(40):
            self.clock.wait(hours=13)
            self.beat()
            self.conductor._plan_due_sites()
        self.assertEqual(20, len(planned))
        self.assertRaises(exceptions.NotFound, self.conductor._planner.plan,
                          'nowhere')

    def test_leases_lapse(self):
        version = transactions.save_task(objects.NewVersion(
            id=str(uuid.uuid4()), server_id='running', project_id=PROJECT))
        self.assertIsNone(self.write(
            plans.take_lease, f'version-read:{version.id}:x', 'h1',
            self.clock.now, self.clock.now + DAY))
        self.assertEqual(1, len(self.read(plans.leased, 'version-read:',
                                          self.clock.now)))
        self.clock.wait(hours=25)
        self.assertEqual(set(), self.read(plans.leased, 'version-read:',
                                          self.clock.now))
        self.hours()
        self.assertNotIn('version-read', str(self.read(_leases)))


def _counts(session):
    return {table.name: session.scalar(
        sa.select(sa.func.count()).select_from(table))
        for table in models.Base.metadata.sorted_tables}


def _store(session):
    return session.get(models.VersionStore, PROJECT)


def _disks(session):
    return {disk.version for row in session.query(models.ServerVersion)
            for disk in db.disks(row)}


def _open_saves(session, server_id):
    table = models.VersionTask
    return list(session.scalars(sa.select(table.id).where(
        table.server_id == server_id, table.kind == versions.SAVE,
        table.state.not_in(versions.ENDED))))


def _leases(session):
    return list(session.scalars(sa.select(models.Lease.name)))


def _drop_policies(session, server_id):
    session.execute(sa.delete(models.VersionPolicy).where(
        models.VersionPolicy.server_id == server_id))
