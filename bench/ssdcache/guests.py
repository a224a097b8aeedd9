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
"""Cached reads of a guest: with QEMU's block layer and NBD, and without."""

import collections.abc
import contextlib
import json
import pathlib
import subprocess

from bench.harness import processes
from bench.harness import runs
from bench.ssdcache import memory
from bench.ssdcache import servers as nbd_servers
from diffcache_openstack.ssdcache import control

BLOCK = nbd_servers.BLOCK
DEPTHS = (1, 32)
BASE = 'QEMU with NBD'
NATIVE = pathlib.Path(__file__).resolve().parents[2] / 'native'


def build() -> pathlib.Path:
    """Build the light guest, and return its program."""
    subprocess.run(
        ['cargo', 'build', '--quiet', '--release', '--package',
         'diffcache-vhost', '--features', 'frontend', '--example', 'guest'],
        cwd=NATIVE, check=True)
    return NATIVE / 'target/release/examples/guest'


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    tasks = pathlib.Path(f'/proc/{pid}/task').glob('*/children')
    return [int(word) for task in tasks for word in task.read_text().split()]


class Way:
    """A disk of a guest, and the processes that serve it.

    :ivar socket: of vhost-user
    """

    def __init__(self, socket: pathlib.Path, device: pathlib.Path,
                 *served: subprocess.Popen) -> None:
        self.socket = socket
        self.device = device
        self._served = served

    def cpu(self) -> float:
        """Return the seconds of CPU of the processes and their children."""
        return processes.cpu_seconds(*(
            pid for process in self._served
            for pid in (process.pid, *children(process.pid))))

    def read(self, guest: pathlib.Path, blocks: int, depth: int,
             seconds: int) -> dict[str, float]:
        """Return reads per second, and the CPU of each, both sides'."""
        before = self.cpu()
        with processes.running(
                guest, self.socket, blocks, depth, seconds,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            found = processes.answer(process)
            # It stays connected, and with it the process that serves it.
            spent = (self.cpu() - before) / found['reads'] * 1e6
        return {'rate': found['rate'], 'cpu_us': spent + found['cpu_us'],
                'guest_us': found['cpu_us']}


def qemu(directory: pathlib.Path, options: dict, device: pathlib.Path,
         stack: contextlib.ExitStack, *more: subprocess.Popen) -> Way:
    """Have QEMU's block layer serve a guest."""
    path = directory / 'qemu.socket'
    process, _ = stack.enter_context(nbd_servers.served([
        'qemu-storage-daemon', '--blockdev',
        json.dumps({'node-name': 'n', **options}), '--export',
        'type=vhost-user-blk,id=e,node-name=n,writable=on,addr.type=unix,'
        f'addr.path={path}'], path))
    return Way(path, device, process, *more)


def cached(directory: pathlib.Path, blocks: int,
           stack: contextlib.ExitStack) -> nbd_servers.Cache:
    """Start a cache that has all blocks of a volume."""
    directory.mkdir()
    origin = nbd_servers.make_file(directory / 'origin', blocks)
    cache = stack.enter_context(nbd_servers.cache(
        directory, blocks, {'v': origin}))
    nbd_servers.fio(cache.exports['v'], '--rw=read', '--bs=128k',
                    '--iodepth=8', f'--size={blocks * BLOCK}')
    return cache


def ways(work: pathlib.Path, blocks: int, stack: contextlib.ExitStack
         ) -> dict[str, Way]:
    """Return the ways that are compared, by names."""
    cache = cached(work / 'nbd', blocks, stack)
    export = cache.status()['v']['export']
    found = {BASE: qemu(
        work / 'nbd', {'driver': 'nbd', 'export': export, 'server': {
            'type': 'unix', 'path': cache.socket},
            'cache': {'direct': True}}, work / 'nbd/device', stack,
        cache.process)}
    cache = cached(work / 'vhost', blocks, stack)
    path = control.send(cache.control, 'vhost-open', volume='v')[
        'volumes']['v']['vhost']
    found['vhost-user'] = Way(
        pathlib.Path(path), work / 'vhost/device', cache.process)
    for aio in ('threads', 'io_uring'):
        directory = work / aio
        directory.mkdir()
        plain = directory / 'file'
        with open(plain, 'wb') as file:
            for _ in range(blocks // 256):
                file.write(bytes(256 * BLOCK))
        found[f'QEMU with a file, {aio}'] = qemu(
            directory, {'driver': 'file', 'filename': str(plain),
                        'aio': aio}, plain, stack)
    return found


def guests(run: runs.Run) -> None:
    """Measure cached reads at random of a light guest, in turns."""
    guest, blocks = build(), run.options.blocks
    with contextlib.ExitStack() as stack:
        todo: dict[str, collections.abc.Callable] = {}
        known = ways(run.work, blocks, stack)
        for where, place in memory.PLACES.items():
            for depth in DEPTHS:
                for name, way in known.items():
                    # QEMU reads a plain file through memory.
                    if place is memory.evict and 'file' in name:
                        continue

                    def measure(depth: int = depth, way: Way = way,
                                place: collections.abc.Callable = place,
                                ) -> dict[str, float]:
                        place(way.device)
                        return way.read(guest, blocks, depth,
                                        run.options.seconds)
                    todo[f'{where}, {depth}, {name}'] = measure
        found = run.rounds(todo, run.options.rounds)
    rows = []
    for key, one in found.items():
        where, depth, name = key.split(', ', 2)
        base = found[f'{where}, {depth}, {BASE}']
        rows.append((where, depth, name, f'{one["rate"]:.0f}',
                     f'{one["rate"] / base["rate"]:.2f}',
                     f'{one["cpu_us"]:.1f}',
                     f'{one["cpu_us"] / base["cpu_us"]:.2f}',
                     f'{one["guest_us"]:.1f}'))
    run.table('Cached reads of 4 KiB at random of a guest: per second, of'
              " NBD's; CPU of all processes in microseconds, of NBD's, and"
              ' that of the guest alone', (
                  'Data', 'Depth', 'Way', 'Reads/s', 'Ratio', 'CPU', 'Ratio',
                  'Guest'), rows)
