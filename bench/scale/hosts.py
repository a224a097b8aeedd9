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
"""What many hosts cost at rest, and what schedulers wait for.

Conductors, RabbitMQ and MariaDB are real, and so is what agents say:
:mod:`.light_agents` says what is replaced. A repository's agent is among them.
Seconds are those of processors.
"""

import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time
import typing

import pymysql
import sqlalchemy as sa

from bench.harness import errors
from bench.harness import main
from bench.harness import processes
from bench.harness import runs
from diffcache_openstack.common import contexts
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.conf import opts
from diffcache_openstack.db import engine
from diffcache_openstack.db import migration
from diffcache_openstack.db import models
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.remote_calls import conductor_costs_api
from diffcache_openstack.rpc import buses
from testing import mariadb
from testing import rabbitmq

HELD = 8
HUB = 'hub'
CALLERS = 32
# After the last change of a map or plan, until it counts as rest.
QUIET_SECONDS = 20
_STATEMENTS = ('Com_select', 'Com_insert', 'Com_insert_select', 'Com_update',
               'Com_delete')
# How oslo.messaging names one: program, process, and a number of its own.
_CONNECTION = re.compile(r':(\d+):[0-9a-f-]{36}')
_COUNTED = (*_STATEMENTS, 'Com_commit', 'Com_rollback')


def random_hash(drawn: random.Random) -> str:
    """Return a hash of nothing."""
    return f'{drawn.getrandbits(256):064x}'


def put_catalogue(session, images: int, family: int, drawn: random.Random,
                  ) -> tuple[list[str], list[str]]:
    """Add images, and all patches between those of a family.

    :returns: the contents of the images, and the ids of the patches
    """
    now = versioned.now()
    contents = [random_hash(drawn) for _ in range(images)]
    session.execute(sa.insert(models.Image), [
        {'id': f'{number:08x}-0000-4000-8000-000000000000',
         'name': f'Image {number}', 'content_id': content,
         'size': 10 ** 10, 'data_size': 10 ** 9, 'created_at': now,
         'disk_format': 'qcow2', 'file_size': 5 * 10 ** 8,
         'os_hash_algo': 'sha512', 'os_hash_value': content * 2,
         'owner': '0' * 32, 'visibility': 'public', 'status': 'active',
         'form_id': content, 'form_size': 10 ** 6,
         'record': random_hash(drawn) * 5}
        for number, content in enumerate(contents)])
    patches = [{'id': random_hash(drawn), 'base': base, 'target': target,
                'size': 10 ** 7, 'create_seconds': 1.0,
                'apply_seconds': 1.0, 'created_at': now}
               for first in range(0, images, family)
               for base in contents[first:first + family]
               for target in contents[first:first + family]
               if base != target]
    session.execute(sa.insert(models.Patch), patches)
    return contents, [patch['id'] for patch in patches]


class Deployment:
    """Servers, and the configuration of services that use them."""

    def __init__(self, run: runs.Run, stack: contextlib.ExitStack) -> None:
        self.options = run.options
        self.work = run.work
        self._say = run.say
        self.database = mariadb.MariaDB.shared()
        self.broker = rabbitmq.RabbitMQ(virtual_hosts=1)
        self.broker.start()
        stack.callback(self.broker.stop)
        self._stack = stack
        self._authority = run.work / 'authority.key', run.work / 'authority'
        host_keys.create_authority(*self._authority, 30)
        self.config = run.work / 'services.conf'
        self._configure()
        self.conf = opts.new_config(['--config-file', str(self.config)])
        migration.upgrade(self.conf)
        self._database = engine.Database(self.conf)
        self._random = random.Random(1)
        self.contents, self.patches = self._database.write(
            put_catalogue, self.options.images, self.options.family,
            self._random)

    def _configure(self) -> None:
        key = self._key(host_keys.CONTROLLER, 'controller', None)
        quorum = self.options.queues == 'quorum'
        self.config.write_text(
            f'[DEFAULT]\ntransport_url = {self.broker.transport_url()}\n'
            f'[database]\nconnection = {self.database.connection()}\n'
            f'[messaging]\nkey_file = {key}\n'
            f'authority_file = {self._authority[1]}\n'
            f'[oslo_messaging_rabbit]\nrabbit_quorum_queue = {quorum}\n')

    def _key(self, role: str, name: str, site: str | None) -> str:
        path = self.work / f'{name}.key'
        host_keys.create_host_key(self._authority, host_keys.Subject(
            name, role, site), path, 30)
        return str(path)

    def site(self, number: int) -> str:
        """Return the site of a host."""
        return f'site-{number % self.options.sites}'

    def start_conductors(self) -> list[int]:
        """Start conductors; return the ids of their processes."""
        pids = []
        for number in range(self.options.conductors):
            log = self.work / f'conductor-{number}.log'
            with open(log, 'wb') as output:
                process = self._stack.enter_context(processes.running(
                    *processes.own('diffcache-conductor', '--config-file',
                                   self.config),
                    stdout=output, stderr=subprocess.STDOUT))
            processes.until(lambda log=log: 'is ready' in log.read_text(),
                            'conductor', 240)
            pids.append(process.pid)
        return pids

    def start_agents(self) -> list[int]:
        """Start agents, and wait until all have reported.

        :returns: the ids of their processes
        """
        described = [self._hub(), *map(self._host,
                                       range(self.options.hosts))]
        running = []
        for number in range(self.options.processes):
            process = self._stack.enter_context(processes.running(
                sys.executable, '-m', 'bench.scale.light_agents',
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                cwd=main.TREE,
                stderr=open(self.work / f'agents-{number}.log', 'wb')))
            process.stdin.write(json.dumps({
                'config': str(self.config), 'state': str(self.work),
                'agents': described[number::self.options.processes]}) + '\n')
            process.stdin.flush()
            running.append(process)
        for process in running:
            processes.answer(process)
        return [process.pid for process in running]

    def _hub(self) -> dict[str, typing.Any]:
        return {'name': HUB, 'site': 'centre', 'role': objects.REPOSITORY,
                'key': self._key(host_keys.REPOSITORY, HUB, 'centre'),
                'held': [(objects.IMAGES, each) for each in self.contents]
                + [(objects.PATCHES, each) for each in self.patches]}

    def _host(self, number: int) -> dict[str, typing.Any]:
        name, site = f'host-{number}', self.site(number)
        return {'name': name, 'site': site, 'role': objects.COMPUTE,
                'key': self._key(host_keys.COMPUTE, name, site),
                'held': [(objects.IMAGES, each) for each in
                         self._random.sample(self.contents, HELD)]}

    def settle(self) -> None:
        """Wait until all sites were planned, and maps stay as they are."""
        def generations() -> list:
            return [tuple(row) for row in self._database.look(
                lambda connection: connection.execute(sa.select(
                    models.Site.name, models.Site.map_generation,
                    models.Site.plan_generation, models.Site.planned_at)
                    .order_by(models.Site.name)).all())]

        last, since = None, time.monotonic()
        while True:
            found = generations()
            if found != last:
                last, since = found, time.monotonic()
            due = sum(row[3] is None for row in found if row[0] != 'centre')
            if not due and time.monotonic() - since > QUIET_SECONDS:
                return
            time.sleep(1)

    def counters(self) -> collections.Counter:
        """Return how often the database ran statements of each kind."""
        with pymysql.connect(unix_socket=self.database.socket,
                             user='root') as admin:
            with admin.cursor() as cursor:
                cursor.execute('SHOW GLOBAL STATUS WHERE Variable_name IN'
                               f' {_COUNTED}')
                return collections.Counter({
                    name: int(value) for name, value in cursor.fetchall()})

    def connections(self) -> dict[str, collections.Counter]:
        """Return connections and bytes of processes, by their id."""
        found: dict[str, collections.Counter] = collections.defaultdict(
            collections.Counter)
        for line in self.broker.list('connections', 'client_properties',
                                     'recv_oct', 'send_oct'):
            properties, received, sent = line.split('\t')
            named = _CONNECTION.search(properties)
            if named:
                found[named[1]].update(connections=1, received=int(received),
                                       sent=int(sent))
        return found


def pss(pid: int) -> float:
    """Return the megabytes of a process, shared ones divided."""
    for line in pathlib.Path(f'/proc/{pid}/smaps_rollup').read_text(
            ).splitlines():
        if line.startswith('Pss:'):
            return int(line.split()[1]) * 1024 / 1e6
    raise errors.BenchError(f'process {pid} has no sum of its memory')


class Measured(typing.NamedTuple):
    """Sums of the time from the start until now."""

    when: float
    cpu: dict[str, float]
    statements: collections.Counter
    bytes: int


def look(site: Deployment, conductors: list[int], agents: list[int],
         ) -> Measured:
    """Read all counters."""
    connections = site.connections()
    total = sum(connections[str(pid)][name] for pid in agents
                for name in ('received', 'sent'))
    return Measured(time.monotonic(), {
        'conductors': processes.cpu_seconds(*conductors),
        'MariaDB': processes.cpu_seconds(site.database.pid),
        'RabbitMQ': processes.cpu_seconds(site.broker.pid),
        'agents': processes.cpu_seconds(*agents)}, site.counters(), total)


def rest(site: Deployment, conductors: list[int], agents: list[int],
         ) -> dict[str, float]:
    """Measure while nothing happens."""
    before = look(site, conductors, agents)
    time.sleep(site.options.seconds)
    after = look(site, conductors, agents)
    seconds, hosts = after.when - before.when, site.options.hosts + 1
    beats = hosts * seconds / site.conf.agent.heartbeat_interval
    statements = after.statements - before.statements
    connections = site.connections()
    of_agents = sum(connections[str(pid)]['connections'] for pid in agents)
    queues = [name for name in site.broker.queues() if 'agent' in name
              or name.startswith('reply_')]
    found = {f'CPU of {name}, % of a core':
             100 * (after.cpu[name] - before.cpu[name]) / seconds
             for name in before.cpu}
    found |= {f'PSS of conductor {number + 1}, MB': pss(pid)
              for number, pid in enumerate(conductors)}
    return found | {
        'heartbeats a second': beats / seconds,
        'statements for each heartbeat': sum(
            statements[name] for name in _STATEMENTS) / beats,
        'transactions for each heartbeat': (
            statements['Com_commit'] + statements['Com_rollback']) / beats,
        'broker, KB for each host and hour':
            (after.bytes - before.bytes) / hosts / seconds * 3.6,
        'broker, bytes for each heartbeat':
            (after.bytes - before.bytes) / beats,
        'connections of each agent': of_agents / hosts,
        'queues for each agent': len(queues) / hosts}


def ask(site: Deployment, conductors: list[int]) -> dict[str, float]:
    """Ask for costs, as server creates cause it; hosts are those of a site."""
    bus = buses.open_bus(site.conf, host_keys.CONTROLLER)
    client = conductor_costs_api.CostsAPI(bus,
                                          site.conf.conductor.rpc_timeout)
    context = contexts.RequestContext.for_service('bench')
    hosts = collections.defaultdict(list)
    for number in range(site.options.hosts):
        hosts[site.site(number)].append(f'host-{number}')
    drawn, count = random.Random(2), site.options.deliveries
    names = sorted(hosts)

    def call(due: float, image: int, where: str) -> float:
        time.sleep(max(0.0, due - time.monotonic()))
        found = client.build_costs(
            context, f'{image:08x}-0000-4000-8000-000000000000', hosts[where])
        if set(found) != set(hosts[where]):
            raise errors.BenchError(f'{len(found)} of {len(hosts[where])}'
                                    ' hosts have costs')
        return time.monotonic() - due

    cpu, began = processes.cpu_seconds(*conductors), time.monotonic()
    pause = site.options.within / max(1, count)
    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        took = sorted(pool.map(lambda number: call(
            began + number * pause, drawn.randrange(site.options.images),
            drawn.choice(names)), range(count)))
    bus.close()
    return {
        'cost requests a second': count / (time.monotonic() - began),
        'answered, p50, ms': 1000 * took[len(took) // 2],
        'answered, p99, ms': 1000 * took[int(len(took) * 0.99)],
        'CPU of conductors meanwhile, ms for each request':
            1000 * (processes.cpu_seconds(*conductors) - cpu) / count}


def measure(run: runs.Run) -> dict[str, float]:
    """Start everything; return the figures."""
    with contextlib.ExitStack() as stack:
        site = Deployment(run, stack)
        conductors = site.start_conductors()
        agents = site.start_agents()
        run.say(f'{run.options.hosts} hosts have reported; conductors'
                f' {conductors}')
        site.settle()
        run.say(f'at rest, load {os.getloadavg()[0]:.1f}')
        found = rest(site, conductors, agents)
        run.say('at rest: ' + json.dumps(found))
        if run.options.deliveries:
            found |= ask(site, conductors)
        return found


def hosts(run: runs.Run) -> None:
    """Measure many hosts."""
    found = run.keep('hosts', lambda: measure(run))
    run.table(f'{run.options.hosts} hosts in {run.options.sites} sites', (
        'What', 'Value'), [(name, f'{value:.2f}')
                           for name, value in found.items()])
