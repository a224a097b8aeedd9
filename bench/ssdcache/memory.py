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
"""Cached reads in memory and past it, by io_uring and by threads."""

import collections.abc
import contextlib
import os
import pathlib
import subprocess
import sys

from bench.harness import runs
from bench.ssdcache import servers as nbd_servers

BLOCK = nbd_servers.BLOCK
DEPTHS = (1, 32)
WITHOUT = (sys.executable, '-m', 'testing.no_io_uring')


def bring(device: pathlib.Path) -> None:
    """Have the system have a device in memory."""
    with open(device, 'rb') as file:
        while file.read(1 << 24):
            pass


def evict(device: pathlib.Path) -> None:
    """Have the system forget what it has of a device in memory."""
    with open(device, 'rb') as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


PLACES = {'in memory': bring, 'past it': evict}


class Trial:
    """A volume whose blocks are all cached.

    :param prefix: what starts the cache
    """

    def __init__(self, path: pathlib.Path, blocks: int,
                 stack: contextlib.ExitStack,
                 prefix: collections.abc.Sequence[str]) -> None:
        path.mkdir()
        self.device = path / 'device'
        # Without data.
        origin = nbd_servers.make_file(path / 'origin', blocks)
        cache = stack.enter_context(nbd_servers.cache(
            path, blocks, {'v': origin}, prefix=prefix))
        self._served = cache.process, cache.exports['v']
        nbd_servers.fio(cache.exports['v'], '--rw=read', '--bs=128k',
                        '--iodepth=8', f'--size={blocks * BLOCK}')

    def measure(self, depth: int, place: collections.abc.Callable,
                seconds: int) -> dict[str, float]:
        """Return requests per second, and the server's CPU for each."""
        place(self.device)
        return nbd_servers.measure(self._served, 'read', seconds, depth)

    def alone(self, depth: int, place: collections.abc.Callable,
              seconds: int) -> dict[str, float]:
        """Return those of fio without a server, by io_uring."""
        place(self.device)
        direct = int(place is evict)
        process = subprocess.Popen(
            ['fio', '--name=alone', '--thread', '--ioengine=io_uring',
             f'--filename={self.device}', f'--direct={direct}', '--bs=4k',
             '--readonly', '--invalidate=0', '--rw=randread', '--norandommap',
             '--time_based', f'--iodepth={depth}', f'--runtime={seconds}',
             '--output-format=json'],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        job = nbd_servers.finish(process)
        spent = (job['usr_cpu'] + job['sys_cpu']) / 100 * job[
            'job_runtime'] / 1000
        read = job['read']
        return {'rate': read['iops'],
                'cpu_us': spent / read['total_ios'] * 1e6}


def memory(run: runs.Run) -> None:
    """Measure cached reads at random, in turns of both ways."""
    with contextlib.ExitStack() as stack:
        ways = {name: Trial(run.work / name, run.options.blocks, stack, prefix)
                for name, prefix in (('io_uring', ()), ('threads', WITHOUT))}
        todo = {}
        for where, place in PLACES.items():
            for depth in DEPTHS:
                measures = {name: trial.measure
                            for name, trial in ways.items()}
                measures['fio alone'] = ways['io_uring'].alone
                for name, measure in measures.items():
                    todo[f'{where}, {depth}, {name}'] = (
                        lambda measure=measure, depth=depth, place=place:
                        measure(depth, place, run.options.seconds))
        found = run.rounds(todo, run.options.rounds)
    rows = []
    for key, one in found.items():
        where, depth, name = key.split(', ')
        of_threads = found[f'{where}, {depth}, threads']
        alone = found[f'{where}, {depth}, fio alone']
        rows.append((where, depth, name, f'{one["rate"]:.0f}',
                     f'{one["rate"] / alone["rate"]:.2f}',
                     f'{one["cpu_us"]:.1f}',
                     f'{one["cpu_us"] / of_threads["cpu_us"]:.2f}'))
    run.table('Cached reads of 4 KiB at random: per second, of fio alone; CPU'
              ' of the server, or of fio alone, in microseconds, of threads', (
                  'Data', 'Depth', 'Way', 'Reads/s', 'Ratio', 'CPU', 'Ratio'),
              rows)
