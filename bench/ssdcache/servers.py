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
"""Servers of NBD that are compared, and fio as their client."""

import collections.abc
import contextlib
import json
import pathlib
import subprocess

from bench.harness import errors
from bench.harness import processes
from diffcache_openstack.ssdcache import control

BLOCK = 4096

# A process, and the address of its export.
Served = tuple[subprocess.Popen, str]


def make_file(path: pathlib.Path, blocks: int) -> pathlib.Path:
    """Make a file with room for blocks."""
    with open(path, 'wb') as output:
        output.truncate(blocks * BLOCK)
    return path


def fio(uri: str, *options: str) -> dict:
    """Run fio on an export, and return its first job."""
    return finish(start_fio(uri, *options))


def start_fio(uri: str, *options: str) -> subprocess.Popen:
    """Start fio on an export."""
    return subprocess.Popen(
        # Without a session of its own, which has a share of the processors of
        # its own, too, whatever priority this process has.
        ['fio', '--name=nbd', '--thread', '--ioengine=nbd', f'--uri={uri}',
         '--bs=4k', '--output-format=json', *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen) -> dict:
    """Wait for fio, and return its first job.

    :raises BenchError: it failed
    """
    output, complaints = process.communicate()
    if process.returncode:
        raise errors.BenchError(f'fio failed: {output} {complaints}')
    return json.loads(output[output.index('{'):])['jobs'][0]


def measure(served: Served, how: str, seconds: int, depth: int = 32,
            ) -> dict[str, float]:
    """Return requests per second, and the server's microseconds for each.

    :param how: ``read`` or ``write``, at random
    :param depth: how many at a time
    """
    process, uri = served
    before = processes.cpu_seconds(process.pid)
    job = fio(uri, f'--rw=rand{how}', '--norandommap', '--time_based',
              f'--iodepth={depth}', f'--runtime={seconds}')[how]
    spent = processes.cpu_seconds(process.pid) - before
    return {'rate': job['iops'], 'cpu_us': spent / job['total_ios'] * 1e6}


@contextlib.contextmanager
def served(words: collections.abc.Sequence[str], path: pathlib.Path,
           export: str = '') -> collections.abc.Iterator[Served]:
    """Run a server until its socket is there."""
    with processes.running(*words) as process:
        processes.until(path.exists, words[0])
        yield process, f'nbd+unix:///{export}?socket={path}'


def plugin(directory: pathlib.Path, name: str, *words: str):
    """Run nbdkit with a plug-in.

    :param words: filters, the plug-in, and parameters
    """
    path = directory / f'{name}.socket'
    path.unlink(missing_ok=True)
    return served(['nbdkit', '--foreground', '--unix', str(path), *words],
                  path)


def storage_daemon(directory: pathlib.Path, options: dict):
    """Run qemu-storage-daemon on what some options of QEMU open."""
    path = directory / 'daemon.socket'
    return served([
        'qemu-storage-daemon', '--blockdev',
        json.dumps({'node-name': 'n', **options}),
        '--nbd-server', f'addr.type=unix,addr.path={path}', '--export',
        'type=nbd,id=n,node-name=n,name=n,writable=on'], path, 'n')


class Cache:
    """A cache that runs.

    :ivar process: its process
    :ivar exports: addresses by the names of volumes
    """

    def __init__(self, directory: pathlib.Path,
                 process: subprocess.Popen) -> None:
        self.process = process
        self.exports = processes.answer(process).get('exports', {})
        self.control = str(directory / 'control')
        self.socket = str(directory / 'cache.socket')

    def status(self) -> dict[str, dict]:
        """Return the counters of each volume."""
        return control.send(self.control, 'status')['volumes']


@contextlib.contextmanager
def cache(directory: pathlib.Path, capacity: int,
          volumes: dict[str, object], *words: str, empty: bool = True,
          prefix: collections.abc.Sequence[str] = (),
          ) -> collections.abc.Iterator[Cache]:
    """Run the cache.

    :param volumes: origins and options, by names
    :param prefix: a command that starts it
    :param empty: forget what the device has
    """
    line = [*prefix] + processes.own(
        'diffcache', 'ssdcache', 'serve', '--device', directory / 'device',
        '--socket', directory / 'cache.socket', '--control',
        directory / 'control', '--state', directory / 'state', '--capacity',
        capacity, *words, *['--format'] * empty)
    for name, origin in volumes.items():
        line += ['--volume', f'{name}={origin}']
    process = subprocess.Popen(line, stdout=subprocess.PIPE)
    try:
        yield Cache(directory, process)
    finally:
        # At once, as if the host had failed.
        process.kill()
        process.wait()
        process.stdout.close()
