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
"""How fast the API lists, at a fixed rate of requests.

A MariaDB of its own is filled with images and hosts. Worker processes of
the API listen on one port; tokens are answered in process, as after a hit in
the token cache. A process of its own sends requests at the times that the rate
says, whether or not earlier ones were answered, and counts from those times.
Processor time is that of one request.
"""

import collections.abc
import contextlib
import http.client
import multiprocessing
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import threading
import time

import pymysql
import sqlalchemy as sa

from bench.harness import errors
from bench.harness import processes
from bench.harness import runs
from diffcache_openstack.api import server
from diffcache_openstack.conf import opts
from diffcache_openstack.db import engine
from diffcache_openstack.db import migration
from diffcache_openstack.db import models
from diffcache_openstack.objects import versioned
from testing import mariadb
from testing import server as servers
from testing import tokens

HELD = 20
CONNECTIONS = 32


def content(number: int) -> str:
    """Return a content id."""
    return f'{number:064x}'


def fill(conf, images: int, hosts: int) -> None:
    """Fill the database with images and hosts."""
    migration.upgrade(conf)
    database = engine.Database(conf)
    when = versioned.now()
    with database.engine.begin() as connection:
        connection.execute(sa.insert(models.Site), [
            {'name': f'site-{n}', 'map_generation': 1, 'plan_generation': 0}
            for n in range(5)])
        connection.execute(sa.insert(models.Image), [
            {'id': f'{n:08x}-0000-4000-8000-000000000000',
             'name': f'image-{n}', 'content_id': content(n), 'size': 10 ** 9,
             'data_size': 10 ** 9, 'created_at': when, 'disk_format': 'qcow2',
             'file_size': 10 ** 9, 'visibility': 'public', 'status': 'active',
             'form_size': 0, 'owner': tokens.PROJECT,
             'family': f'{n // 10 * 10:08x}-0000-4000-8000-000000000000'}
            for n in range(images)])
        connection.execute(sa.insert(models.Host), [
            {'id': n + 1, 'name': f'host-{n:03d}', 'site': f'site-{n % 5}',
             'role': 'compute', 'capacity': 10 ** 11, 'alive': True,
             'plan_generation': 0, 'seen_at': when} for n in range(hosts)])
        connection.execute(sa.insert(models.Holding), [
            {'host_id': n + 1, 'kind': 'images',
             'object_id': content((n * 97 + k * 31) % images),
             'bytes': 10 ** 9} for n in range(hosts) for k in range(HELD)])
        # As the server does by itself after a while.
        names = ', '.join(
            table.name for table in models.Base.metadata.sorted_tables)
        connection.execute(sa.text(f'ANALYZE TABLE {names}')).all()
    database.close()


# -- the servers


def serve(path: pathlib.Path, ready) -> None:
    """Run one worker of the API."""
    conf = opts.new_config(['--config-file', str(path)])
    tokens.Tokens().setUp()
    server.ApiService(conf).start()
    ready.release()
    threading.Event().wait()


def start_own(stack: contextlib.ExitStack, path: pathlib.Path, _port: int,
              options) -> list[int]:
    """Start the API's own server; return the ids of its processes."""
    ready, workers = multiprocessing.Semaphore(0), []
    for _ in range(options.workers):
        worker = multiprocessing.Process(target=serve, args=(path, ready),
                                         daemon=True)
        worker.start()
        stack.callback(worker.kill)
        workers.append(worker.pid)
    for _ in workers:
        ready.acquire()
    return workers


def start_uwsgi(stack: contextlib.ExitStack, path: pathlib.Path, port: int,
                options) -> list[int]:
    """Start the API under uWSGI; return the ids of its processes.

    :raises BenchError: it is not installed
    """
    if shutil.which('uwsgi') is None:
        raise errors.BenchError(
            'not installed: uwsgi; run: pip install pyuwsgi')
    master = stack.enter_context(processes.running(
        'uwsgi', '--master', '--need-app', '--die-on-term', '--lazy-apps',
        '--processes', options.workers, '--disable-logging',
        '--enable-threads', '--threads', options.threads, '--add-header',
        'Connection: close', '--http-socket', f'{servers.LOOPBACK}:{port}',
        '--wsgi-file', pathlib.Path(__file__).with_name('application.py'),
        env={**os.environ, 'VIRTUAL_ENV': sys.prefix,
             'OS_DIFFCACHE_CONFIG_FILES': str(path)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def answers() -> bool:
        connection = http.client.HTTPConnection(servers.LOOPBACK, port,
                                                timeout=5)
        with contextlib.closing(connection):
            return ask(connection, '/v1')
    processes.until(answers, 'uWSGI')
    children = pathlib.Path(f'/proc/{master.pid}/task/{master.pid}/children')
    return [int(pid) for pid in children.read_text().split()]


# -- the load


def ask(connection: http.client.HTTPConnection, path: str) -> bool:
    """Request a path; return whether it was answered."""
    try:
        connection.request('GET', path, headers={
            'X-Auth-Token': 'admin',
            'OpenStack-API-Version': 'diffcache latest'})
        answer = connection.getresponse()
        answer.read()
        return answer.status == 200
    except (OSError, http.client.HTTPException):
        connection.close()
        return False


def paths(images: int) -> collections.abc.Iterator[str]:
    """Yield the paths to request, endlessly."""
    while True:
        for n in range(0, images, 997):
            marker = f'{n:08x}-0000-4000-8000-000000000000'
            yield f'/v1/images?limit=100&marker={marker}'
            yield '/v1/images'
            yield '/v1/hosts'


class Sender:
    """Sends requests and keeps how long each took since it was due.

    Each of its threads has a connection, and takes its turn.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._due: queue.SimpleQueue = queue.SimpleQueue()
        self._ready = threading.Barrier(CONNECTIONS + 1)
        self.seconds: list[float] = []
        self.failed = 0
        self._threads = [threading.Thread(target=self._run)
                         for _ in range(CONNECTIONS)]
        for thread in self._threads:
            thread.start()
        self._ready.wait()

    def send(self, due: float, path: str) -> None:
        """Queue a request that is due at an instant."""
        self._due.put((due, path))

    def finish(self) -> None:
        """Wait for all answers."""
        for _ in self._threads:
            self._due.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        connection = http.client.HTTPConnection(servers.LOOPBACK, self._port,
                                                timeout=30)
        ask(connection, '/v1')
        self._ready.wait()
        while (found := self._due.get()) is not None:
            due, path = found
            if not ask(connection, path):
                self.failed += 1
            self.seconds.append(time.monotonic() - due)


def load(port: int, rate: float, seconds: float, images: int, pipe) -> None:
    """Send at a rate; write the figures to the pipe."""
    sender, wanted = Sender(port), paths(images)
    begin, cpu = time.monotonic(), time.process_time()
    for number in range(int(rate * seconds)):
        due = begin + number / rate
        time.sleep(max(0.0, due - time.monotonic()))
        sender.send(due, next(wanted))
    sender.finish()
    took = sorted(sender.seconds)
    pipe.send({
        'requests': len(took), 'failed': sender.failed,
        'answered, /s': len(took) / (time.monotonic() - begin),
        'p50, ms': 1000 * took[len(took) // 2],
        'p99, ms': 1000 * took[int(len(took) * 0.99)],
        'longest, ms': 1000 * took[-1],
        'load, CPU ms': 1000 * (time.process_time() - cpu) / len(took)})


def send(port: int, rate: float, seconds: float, images: int) -> dict:
    """Send from a process of its own; return its figures."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(
        target=load, args=(port, rate, seconds, images, theirs))
    process.start()
    found = ours.recv()
    process.join()
    return found


def queries(database: mariadb.MariaDB) -> int:
    """Return how many SELECT statements the database has run."""
    with pymysql.connect(unix_socket=database.socket, user='root') as admin:
        with admin.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Com_select'")
            return int(cursor.fetchone()[1])


def measure(run: runs.Run) -> dict[str, float]:
    """Fill the database, serve, send; return the figures."""
    options, port = run.options, servers.free_port()
    database = mariadb.MariaDB.shared()
    path = run.work / 'api.conf'
    path.write_text(
        '[DEFAULT]\ntransport_url = fake:/\n'
        'default_log_levels = diffcache_openstack=WARN\n'
        f'[database]\nconnection = {database.connection()}\n'
        f'[api]\nbind_port = {port}\nworkers = {options.workers}\n'
        f'threads = {options.threads}\n[keystone_authtoken]\n'
        'www_authenticate_uri = http://keystone.example\n')
    fill(opts.new_config(['--config-file', str(path)]), options.images,
         options.hosts)
    pid = int((database.directory / 'pid').read_text())
    with contextlib.ExitStack() as stack:
        start = start_uwsgi if options.server == 'uwsgi' else start_own
        workers = start(stack, path, port, options)
        send(port, 50, 3, options.images)

        def counters() -> tuple[float, ...]:
            return (queries(database),
                    1000 * processes.cpu_seconds(*workers),
                    1000 * processes.cpu_seconds(pid))
        before = counters()
        found = send(port, options.rate, options.seconds, options.images)
        each = [(last - first) / found['requests']
                for first, last in zip(before, counters())]
    return found | dict(zip(('queries of a request', 'API, CPU ms',
                             'MariaDB, CPU ms'), each))


def api(run: runs.Run) -> None:
    """Measure listings.

    :raises BenchError: requests failed
    """
    found = run.keep('load', lambda: measure(run))
    run.table(f'Listings, {run.options.rate:g} requests a second', (
        'What', 'Value'), [(name, f'{value:.2f}')
                           for name, value in found.items()])
    if found['failed']:
        raise errors.BenchError(f'{found["failed"]} requests failed')
