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
"""The cache through NBD, and other servers of NBD beside it."""

import contextlib
import os
import pathlib
import re
import time

import numpy

from bench.harness import errors
from bench.harness import runs
from bench.harness import tables
from bench.ssdcache import paper
from bench.ssdcache import servers as nbd_servers
from bench.ssdcache import traces
from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache import simulation
from testing import nbd

BLOCK = nbd_servers.BLOCK
REQUESTS = 4_000_000
DEPTHS = (1, 32)
# Blocks and requests at the same time of the web server and each reader, and
# MB/s that the paper prints, unified and in partitions.
WEB = {'web': (paper.WEB, 10, 12.8, 28.5),
       'reader1': (paper.READER, 32, 11.3, 10.3),
       'reader2': (paper.READER, 32, 12.6, 10.1),
       'reader3': (paper.READER, 32, 12.8, 10.6)}
DELAY_MS = 1
# Bytes of the origin of the servers that are compared.
SIZE = 64 << 20


def correctness(run: runs.Run) -> None:
    """Read sequentially, twice."""
    scale = run.options.scale
    blocks, rows = paper.RUN // scale, []
    origin = nbd_servers.make_file(run.work / 'origin', blocks)
    fields = ('reads', 'hits', 'misses', 'evictions')
    for capacity, printed in paper.PRINTED_RUNS.items():
        with nbd_servers.cache(run.work, capacity // scale, {
                'c': origin}) as cache:
            before = cache.status()['c']
            for number, prints in enumerate(printed, 1):
                nbd_servers.fio(cache.exports['c'], '--rw=read', '--iodepth=1',
                                f'--size={blocks * BLOCK}')
                after = cache.status()['c']
                rows.append((capacity // scale, number, *(
                    after[field] - before[field] for field in fields),
                    *prints))
                before = after
    run.table('Sequential reads through NBD', paper.RUN_HEAD, rows)


# -- hits through NBD and of the simulation


def read_ahead(uri: str, offsets: list[int], depth: int) -> None:
    """Read blocks, this many at the same time.

    fio does not wait for the last requests of a log.
    """
    with nbd.Client(uri) as client:
        for number, offset in enumerate(offsets):
            if number >= depth:
                client.receive()
            client.send(nbd.READ, offset, BLOCK)
        for _request in offsets[:depth]:
            client.receive()


class Pair:
    """Two containers whose requests are replayed and simulated.

    :param rate: requests of the second to those of the first
    """

    def __init__(self, work: pathlib.Path, scale: int, rate: float) -> None:
        generator = numpy.random.default_rng(1)
        self._work = work
        self._blocks = paper.FILE // scale
        self._ssd, first = paper.SSD // scale, paper.FIRST // scale
        self._sizes = {'C1': first, 'C2': self._ssd - first}
        self._names, self._requests = traces.merge({
            name: [traces.Stream(traces.normal(
                generator, int(REQUESTS // scale * part), deviation // scale,
                self._blocks), part)]
            for name, part, deviation in (('C1', 1.0, 50000),
                                          ('C2', rate, 500000))})

    def _simulated(self, sizes: dict[str, int] | None) -> list[int]:
        path = self._work / 'trace'
        traces.write(path, self._names, self._requests)
        found = simulation.simulate(path, simulation.Scenario(
            self._ssd, sizes and list(sizes.items())))
        return [row['hits'] for row in found['volumes'].values()]

    def _unified(self, depth: int) -> int:
        """Return the hits through one volume that has both."""
        moved = self._requests.copy()
        moved['offset'] += (self._requests['volume'].astype(numpy.uint64)
                            * (self._blocks * BLOCK))
        origin = nbd_servers.make_file(self._work / 'origin',
                                       2 * self._blocks)
        with nbd_servers.cache(self._work, self._ssd,
                               {'all': origin}) as cache:
            return self._replay(cache, 'all', moved, depth)

    def _partitioned(self, depth: int) -> list[int]:
        """Return the hits through a volume for each."""
        origins = {name: nbd_servers.make_file(self._work / name, self._blocks)
                   for name in self._sizes}
        with nbd_servers.cache(self._work, self._ssd, {
                name: f'{origin},limit={self._sizes[name]}'
                for name, origin in origins.items()}) as cache:
            return [self._replay(
                cache, name,
                self._requests[self._requests['volume'] == number], depth)
                for number, name in enumerate(origins)]

    def _replay(self, cache: nbd_servers.Cache, name: str,
                requests: numpy.ndarray, depth: int) -> int:
        if depth == 1:
            log = self._work / 'log'
            traces.write_log(log, requests)
            nbd_servers.fio(cache.exports[name], f'--read_iolog={log}',
                            '--replay_no_stall=1', '--iodepth=1')
        else:
            read_ahead(cache.exports[name], requests['offset'].tolist(),
                       depth)
        found = cache.status()[name]
        if found['reads'] != len(requests):
            raise errors.BenchError(f'{found["reads"]} of {len(requests)}'
                                    ' requests were served')
        return found['hits']

    def rows(self) -> list[list]:
        """Return way, requests, and hits simulated and at both depths."""
        counts = [int((self._requests['volume'] == number).sum())
                  for number in range(2)]
        parts = [self._partitioned(depth) for depth in DEPTHS]
        return [['unified, both', sum(counts), sum(self._simulated(None)),
                 *(self._unified(depth) for depth in DEPTHS)],
                *([f'partition, {name}', counts[number],
                   self._simulated(self._sizes)[number],
                   *(hits[number] for hits in parts)]
                  for number, name in enumerate(self._names))]


def pair(run: runs.Run) -> None:
    """Compare hits through NBD with those of the simulation."""
    rows = []
    for iops, rate in paper.RATES.items():
        for way, requests, simulated, *served in run.keep(
                str(iops), lambda rate=rate: Pair(
                    run.work, run.options.scale, rate).rows()):
            rows.append((iops, way, requests, simulated, served[0],
                         tables.percent(served[0] / requests), *(
                             f'{100 * (hits - simulated) / requests:+.3f}'
                             for hits in served)))
    run.table(f'Hits through NBD and of the simulation,'
              f' 1/{run.options.scale} of the size', (
                  'IOPS', 'Cache', 'Requests', 'Simulated', 'Served',
                  'Served, %', 'Difference, points',
                  'Difference at depth 32'), rows)


# -- throughput


def run_web(seconds: int, places: dict[str, tuple[str, int]],
            cache: nbd_servers.Cache, blocks: dict[str, int],
            ) -> dict[str, float]:
    """Return MB/s of each workload, all at the same time, after a warm-up."""
    clients = {name: nbd_servers.start_fio(
        cache.exports[volume], '--rw=randread', '--norandommap',
        '--time_based', f'--offset={begin * BLOCK}',
        f'--size={blocks[name] * BLOCK}', f'--iodepth={WEB[name][1]}',
        f'--ramp_time={2 * seconds}', f'--runtime={2 * seconds}')
        for name, (volume, begin) in places.items()}
    return {name: nbd_servers.finish(client)['read']['bw_bytes'] / 1e6
            for name, client in clients.items()}


def web(run: runs.Run) -> None:
    """Measure throughput of a web server and three readers on one disk."""
    scale, seconds = run.options.scale, run.options.seconds
    blocks = {name: row[0] // scale for name, row in WEB.items()}
    ssd = paper.SSD // scale
    share = round(paper.WEB_SHARE * blocks['web'])
    limits = {name: share if name == 'web' else (ssd - share) // 3
              for name in WEB}
    files = run.work / 'disks'
    files.mkdir()
    for name, size in {**blocks, 'all': sum(blocks.values())}.items():
        nbd_servers.make_file(files / name, size)
    begins = dict(zip(blocks, numpy.cumsum([0, *blocks.values()]).tolist()))

    def measure(origins: dict[str, str], places: dict) -> dict[str, float]:
        address = f'socket={run.work / "disk.socket"}'
        # All requests to the disk wait for each other.
        with nbd_servers.plugin(
                run.work, 'disk', '--filter=noparallel', '--filter=delay',
                'file', f'dir={files}', f'rdelay={DELAY_MS}ms',
                'serialize=all-requests'), nbd_servers.cache(
                    run.work, ssd, {
                        name: f'nbd+unix:///{name}?{address}{limit}'
                        for name, limit in origins.items()}) as cache:
            return run_web(seconds, places, cache, blocks)
    unified = run.keep('unified', lambda: measure(
        {'all': ''}, {name: ('all', begins[name]) for name in WEB}))
    parts = run.keep('partitions', lambda: measure(
        {name: f',limit={limit}' for name, limit in limits.items()},
        {name: (name, 0) for name in WEB}))
    run.table(f'Throughput in MB/s, 1/{scale} of the size, and in the paper', (
        'Workload', 'Unified', 'Partitions', 'Ratio', 'Paper, unified',
        'Paper, partitions', 'Ratio'), [
            (name, f'{unified[name]:.1f}', f'{parts[name]:.1f}',
             f'{parts[name] / unified[name]:.2f}', *row[2:],
             f'{row[3] / row[2]:.2f}') for name, row in WEB.items()])


# -- other servers


def start_servers(stack: contextlib.ExitStack, directory: pathlib.Path,
                  delay: bool) -> dict[str, nbd_servers.Served]:
    """Start what is compared, each with an origin of its own.

    Without a delay the origin is a file, which servers open themselves.
    """
    filters, delays = ((['--filter=delay'], [
        f'rdelay={DELAY_MS}ms', f'wdelay={DELAY_MS}ms']) if delay
        else ([], []))

    def origin(name: str) -> tuple[pathlib.Path, pathlib.Path,
                                   nbd_servers.Served]:
        path = directory / name
        path.mkdir()
        file = nbd_servers.make_file(path / 'file', SIZE // BLOCK)
        return path, file, stack.enter_context(nbd_servers.plugin(
            path, 'origin', *filters, 'file', str(file), *delays))
    found = {}
    path, file, found['origin alone'] = origin('bare')
    if not delay:
        found['nbdkit memory'] = stack.enter_context(nbd_servers.plugin(
            path, 'memory', 'memory', str(SIZE)))
    path, file, (_, uri) = origin('filter')
    found['nbdkit cache filter'] = stack.enter_context(nbd_servers.plugin(
        path, 'cache', '--filter=cache',
        *(('nbd', f'uri={uri}') if delay else ('file', str(file))),
        'cache=writethrough', 'cache-on-read=true'))
    path, file, _ = origin('daemon')
    found['qemu-storage-daemon'] = stack.enter_context(
        nbd_servers.storage_daemon(path, {'driver': 'nbd', 'server': {
            'type': 'unix', 'path': str(path / 'origin.socket')}}
            if delay else {'driver': 'file', 'filename': str(file)}))
    for name, words in {'this cache': (), 'this cache, no curve': (
            '--samples', '0')}.items():
        path, file, (_, uri) = origin(f'cache{len(words)}')
        cache = stack.enter_context(nbd_servers.cache(
            path, SIZE // BLOCK, {'v': uri if delay else file}, *words))
        found[name] = cache.process, cache.exports['v']
    return found


def servers(run: runs.Run) -> None:
    """Measure reads and writes of all servers, in turns."""
    rows = []
    for label, delay in (('0 ms', False), (f'{DELAY_MS} ms', True)):
        path = run.work / label.replace(' ', '')
        path.mkdir()
        with contextlib.ExitStack() as stack:
            compared = start_servers(stack, path, delay)
            for _, uri in compared.values():
                for how in ('write', 'read'):
                    nbd_servers.fio(uri, f'--rw={how}', '--bs=128k',
                                    '--iodepth=8', f'--size={SIZE}')
            # Otherwise a server would do it while it is measured.
            os.sync()
            found = {how: run.rounds({
                f'{label}, {how}, {name}': lambda served=served, how=how:
                nbd_servers.measure(served, how, run.options.seconds)
                for name, served in compared.items()}, run.options.rounds)
                for how in ('read', 'write')}
        for number, name in enumerate(compared):
            cells: list[str] = []
            for every in found.values():
                bare, *_ = every.values()
                row = list(every.values())[number]
                cells += [f'{row["rate"]:.0f}',
                          f'{row["rate"] / bare["rate"]:.2f}',
                          f'{row["cpu_us"]:.1f}',
                          f'{row["cpu_us"] / bare["cpu_us"]:.2f}']
            rows.append((label, name, *cells))
    run.table('4 KiB at random, 32 at a time: requests per second, of the'
              ' origin alone; CPU of the server in microseconds, of the origin'
              ' alone', ('Delay', 'Server', 'Reads/s', 'Ratio', 'CPU', 'Ratio',
                         'Writes/s', 'Ratio', 'CPU', 'Ratio'), rows)


# -- a large cache


def anonymous_bytes(pid: int) -> int:
    """Return the memory of a process that is not of files."""
    status = pathlib.Path(f'/proc/{pid}/status').read_text()
    return int(re.search(r'RssAnon:\s*(\d+) kB', status)[1]) * 1024


def hit_ratio(cache: nbd_servers.Cache, reads: int, seed: int) -> float:
    """Return the part of random reads that hits."""
    before = cache.status()['v']
    nbd_servers.fio(cache.exports['v'], '--rw=randread', '--norandommap',
                    '--iodepth=32', f'--number_ios={reads}', '--randrepeat=0',
                    f'--randseed={seed}')
    after = cache.status()['v']
    return (after['hits'] - before['hits']) / (
        after['reads'] - before['reads'])


def measure_large(run: runs.Run) -> dict[str, float]:
    """Fill a cache, kill it, start it again, and detach the volume."""
    blocks, reads = run.options.blocks, run.options.reads
    # A third more than the cache has room for.
    origin = nbd_servers.make_file(run.work / 'origin', blocks * 4 // 3)
    with nbd_servers.cache(run.work, blocks, {'v': origin}) as cache:
        empty = anonymous_bytes(cache.process.pid)
        nbd_servers.fio(cache.exports['v'], '--rw=read', '--bs=64k',
                        '--iodepth=8', f'--size={blocks * BLOCK}')
        os.sync()
        full = anonymous_bytes(cache.process.pid)
        count = cache.status()['v']['blocks']
        found = {'blocks': count, 'bytes of memory for each': full / count,
                 'of them before the first': empty / count,
                 'hits before, %': 100 * hit_ratio(cache, reads, 1)}
    started = time.monotonic()
    with nbd_servers.cache(run.work, blocks, {'v': origin},
                           empty=False) as cache:
        with nbd.Client(cache.exports['v']) as client:
            client.read(0, BLOCK)
        found['seconds to the first answer after a kill'] = (
            time.monotonic() - started)
        found['blocks after'] = cache.status()['v']['blocks']
        found['hits after, %'] = 100 * hit_ratio(cache, reads, 2)
        started = time.monotonic()
        control.send(cache.control, 'detach', volume='v')
        found['seconds of the detach'] = time.monotonic() - started
    return found


def large(run: runs.Run) -> None:
    """Measure a cache that is full."""
    found = run.keep('cache', lambda: measure_large(run))
    run.table('A full cache', ('What', 'Value'), [
        (name, f'{value:.2f}') for name, value in found.items()])
