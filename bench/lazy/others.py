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
"""One boot in real time through diffcached and through others.

All of them read one image of an HTTP server in a network namespace of its own:
the kernel lets 100 Mbit/s out of it (``tc``, tbf), and each answer begins 20
ms after its request. Each way serves the image as a file; the image has random
bytes, and all ways must read the same. Each way has nothing fetched before.

*Ready* is the time until the file can be opened, *boot* that of the reads,
*stall* what the boot takes beyond its think times, *CPU* that of all processes
that serve and of the reader's system calls, *WAN* what left the server, with
headers.
"""

import collections.abc
import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from bench.harness import errors
from bench.harness import processes
from bench.harness import runs
from bench.harness import tables
from bench.lazy import boots
from bench.lazy import ranges
from diffcache_openstack import _native
from diffcache_openstack.common import programs
from diffcache_openstack.prefetch import replay

MBITS = 100
BURST_BYTES, QUEUE_SECONDS = 32 << 10, 0.1
SERVER, HOST, PORT = '192.0.2.1', '192.0.2.2', 8080
URL = f'http://{SERVER}:{PORT}'
CHUNK = f'{boots.CHUNK >> 10}K'


@dataclasses.dataclass(frozen=True)
class Link:
    """The link to the server: what crossed it, and what others computed."""

    interface: str
    server: int

    def received(self) -> int:
        """Return the bytes that came from the server, with headers."""
        return int(pathlib.Path('/sys/class/net', self.interface,
                                'statistics/rx_bytes').read_text())

    def cpu(self) -> float:
        """Return the seconds that all spent but the server."""
        return processes.cpu_of_descendants(self.server)


def _quiet(*words: object, **options: object):
    return processes.running(*words, stderr=subprocess.DEVNULL, **options)


@contextlib.contextmanager
def wan(folder: pathlib.Path) -> collections.abc.Iterator[Link]:
    """Serve a folder behind the link."""
    namespace, inside = f'lazy-{os.getpid()}', f'lzi{os.getpid()}'
    outside = f'lzo{os.getpid()}'
    run = processes.run
    run('ip', 'netns', 'add', namespace)
    try:
        run('ip', 'link', 'add', outside, 'type', 'veth', 'peer', 'name',
            inside, 'netns', namespace)
        run('ip', 'address', 'add', f'{HOST}/30', 'dev', outside)
        run('ip', 'link', 'set', outside, 'up')
        within = ('ip', 'netns', 'exec', namespace)
        run(*within, 'ip', 'address', 'add', f'{SERVER}/30', 'dev', inside)
        run(*within, 'ip', 'link', 'set', inside, 'up')
        rate = MBITS * 10**6
        run(*within, 'tc', 'qdisc', 'add', 'dev', inside, 'root', 'tbf',
            'rate', f'{rate}bit', 'burst', BURST_BYTES, 'limit',
            BURST_BYTES + round(rate / 8 * QUEUE_SECONDS))
        with _quiet(*within, sys.executable, ranges.__file__, folder, SERVER,
                    PORT) as server:
            processes.until(lambda: subprocess.run(
                ['curl', '-sI', f'{URL}/manifest'], check=False,
                stdout=subprocess.DEVNULL).returncode == 0, 'the server')
            yield Link(outside, server.pid)
    finally:
        subprocess.run(['ip', 'netns', 'del', namespace], check=False)


@dataclasses.dataclass(frozen=True)
class Setup:
    """What every way gets: where to work, the image, and two profiles."""

    folder: pathlib.Path
    image: pathlib.Path
    size: int
    profiles: dict[str, list]

    def await_file(self, path: pathlib.Path) -> pathlib.Path:
        """Wait until the image is shown as a file."""
        processes.until(lambda: path.exists()
                        and path.stat().st_size == self.size, str(path))
        return path


def local(setup: Setup, _stack: contextlib.ExitStack) -> pathlib.Path:
    """Read the local image."""
    return setup.image


def full(setup: Setup, _stack: contextlib.ExitStack) -> pathlib.Path:
    """Transfer all of the image."""
    path = setup.folder / 'whole'
    processes.run('curl', '-sf', '-o', path, f'{URL}/image')
    return path


def diffcached(**options):
    """Return a way through diffcached."""
    def way(setup: Setup, stack: contextlib.ExitStack) -> pathlib.Path:
        manifest, mount, state = (setup.folder / name for name in (
            'manifest', 'mount', 'state'))
        mount.mkdir()
        processes.run('curl', '-sf', '-o', manifest, f'{URL}/manifest')
        config = {'sources': [f'{URL}/image'], 'manifest': str(manifest),
                  'mount': str(mount), 'state': str(state), 'hydrate': 'none',
                  'wait': 60, 'prefetch': True, **options}
        if 'profile' in options:
            profile = setup.folder / 'profile'
            profile.write_text(boots.profile(
                setup.profiles[options['profile']]))
            config['profile'] = str(profile)
        daemon = stack.enter_context(_quiet(
            programs.find('diffcached'), 'serve', json.dumps(config),
            stdout=subprocess.PIPE))
        return pathlib.Path(processes.answer(daemon)['path'])
    return way


def nbdkit(name: str, chained: bool):
    """Return a way through nbdkit with a filter, and nbdfuse.

    nbdkit does nothing in these filters above the plugin curl, which answers
    one request at a time. ``chained`` has a second nbdkit for that plugin, and
    the filters above the plugin nbd.
    """
    def way(setup: Setup, stack: contextlib.ExitStack) -> pathlib.Path:
        curl = ('curl', f'url={URL}/image')
        server = ('nbdkit', '--foreground', '--exit-with-parent', '--unix')
        source, outer = setup.folder / 'source', setup.folder / 'outer'
        if chained:
            stack.enter_context(_quiet(*server, source, *curl))
            processes.until(source.exists, 'nbdkit')
            curl = ('nbd', f'socket={source}')
        stack.enter_context(_quiet(
            *server, outer, f'--filter={name}', '--filter=cow', *curl,
            'cow-on-read=true', 'cow-on-cache=true', f'cow-block-size={CHUNK}',
            env={**os.environ, 'TMPDIR': str(setup.folder)}))
        processes.until(outer.exists, 'nbdkit')
        mount = setup.folder / 'mount'
        mount.mkdir()
        # It ends when its mount does, or else is terminated.
        stack.enter_context(_quiet('nbdfuse', '--readonly', mount / 'disk',
                                   f'nbd+unix:///?socket={outer}'))
        stack.callback(processes.run, 'umount', mount)
        return setup.await_file(mount / 'disk')
    return way


def qemu(setup: Setup, stack: contextlib.ExitStack) -> pathlib.Path:
    """Read through the copy-on-read of qemu-storage-daemon."""
    top, target = setup.folder / 'top.qcow2', setup.folder / 'export'
    target.touch()
    processes.run('qemu-img', 'create', '-f', 'qcow2', '-o',
                  f'cluster_size={CHUNK}', top, setup.size)
    nodes = (f'driver=http,node-name=source,url={URL}/image,read-only=on',
             'driver=qcow2,node-name=top,backing=source,file.driver=file,'
             f'file.filename={top}',
             'driver=copy-on-read,node-name=read,file=top')
    stack.enter_context(_quiet(
        'qemu-storage-daemon',
        *(word for node in nodes for word in ('--blockdev', node)),
        '--export', 'type=fuse,id=export,node-name=read,writable=off,'
        f'mountpoint={target}'))
    return setup.await_file(target)


WAYS = {
    'local': local,
    'full': full,
    'on-demand': diffcached(prefetch=False),
    'read-ahead': diffcached(),
    'profile': diffcached(profile='known'),
    'carried': diffcached(profile='carried'),
    'hydrating': diffcached(profile='known', hydrate='idle'),
    'readahead': nbdkit('readahead', chained=False),
    'scan': nbdkit('scan', chained=False),
    'readahead-2': nbdkit('readahead', chained=True),
    'scan-2': nbdkit('scan', chained=True),
    'qemu': qemu,
}


def boot(path: pathlib.Path, reads: pathlib.Path, link: Link) -> dict:
    """Replay the reads from a file."""
    with _quiet(sys.executable, boots.READER, path, reads, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        if reader.stdout.readline() != 'ready\n':
            raise errors.BenchError(f'cannot read {path}')
        before = link.cpu()
        reader.stdin.write(f'{time.monotonic() + 0.1}\n')
        reader.stdin.flush()
        return processes.answer(reader) | {'cpu': link.cpu() - before}


def measure(name: str, setup: Setup, reads: pathlib.Path, link: Link) -> dict:
    """Boot once in one way, with nothing fetched before."""
    with tempfile.TemporaryDirectory(dir=setup.folder) as folder, \
            contextlib.ExitStack() as stack:
        setup = dataclasses.replace(setup, folder=pathlib.Path(folder))
        start, before, cpu = time.monotonic(), link.received(), link.cpu()
        path = WAYS[name](setup, stack)
        ready, cpu = time.monotonic() - start, link.cpu() - cpu
        found = boot(path, reads, link)
        return {'ready': ready, 'boot': found['seconds'],
                'checksum': found['checksum'], 'cpu': cpu + found['cpu'],
                'wan': link.received() - before}


def prepare(run: runs.Run) -> tuple[Setup, list]:
    """Write the image and its manifest; return what is replayed from it."""
    options = run.options
    recorded = boots.recorded_boot(str(boots.RECORDED), options.speed)
    size, seed = recorded.image_bytes, options.seed
    served = run.work / 'served'
    served.mkdir()
    processes.write_random(served / 'image', size, seed)
    os.sync()
    _native.manifest_create(served / 'image', served / 'manifest')
    learned = replay.replay(
        boots.make(recorded, 1, 'wan', seed), 'first')['profile']
    again = boots.make(recorded, 1, 'wan', seed + 1)
    profiles = {'known': learned, 'carried': boots.carried(
        learned, seed, again.chunks)}
    return Setup(run.work, served / 'image', size, profiles), again.reads[0]


def others(run: runs.Run) -> None:
    """Boot in all ways, in turns.

    :raises BenchError: they read different bytes
    """
    if 'qemu' in run.options.ways and not any(
            pathlib.Path('/usr/lib').glob('*/qemu/block-curl.so')):
        raise errors.BenchError("not installed: QEMU's driver for HTTP; run:"
                                ' apt install qemu-block-extra')
    setup, rows = prepare(run)
    reads = run.work / 'reads'
    reads.write_text(json.dumps(rows))
    think = sum(row[0] for row in rows) / 1e6
    with wan(setup.image.parent) as link:
        found = run.rounds({name: lambda name=name: measure(
            name, setup, reads, link) for name in run.options.ways},
            run.options.rounds)
    stall = {name: row['boot'] - think for name, row in found.items()}
    whole = stall.get('readahead', stall.get('on-demand', 0))
    run.table(f'One boot, {think:.1f} s of thinking; medians', (
        'Way', 'Ready, s', 'Boot, s', 'Stall, s', 'Share', 'CPU, s',
        'WAN, MB'), [
            (name, f'{row["ready"]:.1f}', f'{row["boot"]:.1f}',
             f'{stall[name]:.1f}',
             tables.share(stall[name], whole),
             f'{row["cpu"]:.1f}', f'{row["wan"] / 1e6:.1f}')
            for name, row in found.items()])
    if len({row['checksum'] for row in found.values()}) != 1:
        raise errors.BenchError('the ways read different bytes')
