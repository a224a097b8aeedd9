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
"""What one tenant does while something of another tenant waits.

The parts are those of a host. In their place stand: for the conductor and the
stores of projects, an object that opens one store; for a boot of the host,
another boot ID; for storage that is slow or hangs, nbdkit with a limit, or
stopped.
"""

import collections.abc
import contextlib
import os
import pathlib
import random
import signal
import tempfile
import threading
import time
import types

import numpy

from bench.harness import processes
from bench.harness import runs
from bench.lazy import hosts as lazy_hosts
from bench.ssdcache import neighbour
from bench.ssdcache import servers as nbd_servers
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.agent.lazy import lazy_versions
from diffcache_openstack.agent.lazy import version_reads
from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.agent.versions import base_files
from diffcache_openstack.agent.versions import bases
from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads
from diffcache_openstack.embedded import sites
from diffcache_openstack.objects import volume_specs
from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache import ssdcached
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions import version_store
from testing import nbd

MIB = 1 << 20
# Mbit/s of a WAN on which a manifest takes seconds.
_WAN = 0.1
# Bits per second of the storage to which blocks are written back.
_STORAGE = '8M'
_BOOT_ID = '/proc/sys/kernel/random/boot_id'
_PROJECT = 'project'
# Operations that are looked at, at least, unless the other one ends before.
_LEAST = 8

# An operation of the neighbour, which returns its seconds; and what waits.
Pair = tuple[collections.abc.Callable[[], float],
             collections.abc.Callable[[], object]]


def clocked(work: collections.abc.Callable[[], object]
            ) -> collections.abc.Callable[[], float]:
    """Return a function that does some work and returns its seconds."""
    def call() -> float:
        begin = time.monotonic()
        work()
        return time.monotonic() - begin
    return call


def new_folder(run: runs.Run, stack: contextlib.ExitStack) -> pathlib.Path:
    """Return a folder that is removed with the stack."""
    return pathlib.Path(stack.enter_context(
        tempfile.TemporaryDirectory(dir=run.work)))


def hashed(run: runs.Run, stack: contextlib.ExitStack) -> Pair:
    """Hash base images of two projects, for their servers' versions."""
    ids = bases.BaseIds(run.work / 'ids.json')
    ended = threading.Event()
    stack.callback(ended.set)

    def changed(name: str, size: int) -> collections.abc.Callable[[], object]:
        path = run.work / name
        processes.write_random(path, size)

        def work() -> None:
            # An image of another size is another one.
            os.truncate(path, path.stat().st_size + nbd_servers.BLOCK)
            ids.content_id(path)
        return work

    large = changed('large', run.options.size << 20)

    def wait() -> None:
        while not ended.is_set():
            large()
    return clocked(changed('small', MIB)), wait


class Site:
    """A site whose host has a diffcached, behind a thin WAN.

    :ivar large: an image that the host does not hold
    """

    def __init__(self, run: runs.Run, stack: contextlib.ExitStack) -> None:
        self.folder = new_folder(run, stack)
        key = self.folder / 'key'
        key.write_text(lazy_hosts.KEY.hex())
        key.chmod(0o600)
        self.socket = str(self.folder / 'agent.sock')
        host = lazy_hosts.Host(self.folder, 'h')
        stack.callback(host.end)
        self.daemon = host.daemon
        processes.until(self._answers, 'diffcached')
        self._site = sites.Site(
            self.folder / 'site', [sites.HostSpec('h', 10 ** 11)],
            sites.LinkSpec(_WAN, 1e4, 1e5), self.folder / 'repository', {
                ('data_plane', 'key_file'): str(key),
                ('lazy', 'worth_seconds'): 0.0, ('lazy', 'hydrate'): 'none'})
        self.agent = self._site.hosts['h']
        self.agent.conf.set_override('socket', self.socket, 'agent')
        self.agent.conf.set_override(
            'socket', str(self.folder / 'h' / 'socket'), 'lazy')
        stack.enter_context(self._site)
        self.large = self.image('large', run.options.size << 20)

    def _answers(self) -> bool:
        with contextlib.suppress(exceptions.ServiceUnavailable):
            return self.daemon.images() == []
        return False

    def image(self, name: str, size: int) -> pathlib.Path:
        """Register an image of random bytes."""
        path = self.folder / f'{name}.raw'
        processes.write_random(path, size, name)
        self._site.register(path, name, name)
        self._site.wait(self._site.compressed, 600, 'compression')
        self._site.wait_catalogue(0)
        return path


def opened(run: runs.Run, stack: contextlib.ExitStack) -> Pair:
    """Open an image that is served, while another one's manifest arrives."""
    site = Site(run, stack)
    site.image('small', MIB)
    client = local_client.LocalClient(site.socket)

    def work(name: str, patience: float = 60) -> None:
        assert client.open_lazy(name, timeout=patience)['path']

    work('small')
    return clocked(lambda: work('small')), lambda: work('large', 600)


def read(run: runs.Run, stack: contextlib.ExitStack) -> Pair:
    """Open a version that is served, while another one's base arrives."""
    site = Site(run, stack)
    store = version_store.VersionStore.open(
        file.FileStore(site.folder / 'store'))
    reads = version_reads.VersionReads(
        types.SimpleNamespace(open=lambda project: store),
        base_files.BaseFiles(site.agent.server, None, None), None, 'h',
        site.folder / 'versions', site.socket)
    lazy = lazy_versions.LazyVersions(
        site.daemon, reads, lazy_servers.Servers(site.folder / 'servers'),
        threads.KeyedLocks())
    options = {'hydrate': 'none', 'wait': 60.0, 'prefetch': False}

    def saved(name: str, size: int, base: pathlib.Path | None = None
              ) -> version_reads.ReadVersion:
        disk = site.folder / name
        processes.write_random(disk, size, name)
        [found] = store.save([version_store.Disk(
            disk, name, base, format='raw', manifest=True)])
        return version_reads.ReadVersion(
            name, _PROJECT, found.id, found.base and found.base.id,
            base and str(base))

    other, own = saved('other', MIB, site.large), saved('own', MIB)

    def work() -> None:
        assert lazy.open(own, options)['path']

    work()
    return clocked(work), lambda: lazy.open(other, options)


class _Volumes(cached_volumes.CachedVolumes):
    """Volumes whose storage may be a server of NBD."""

    def _check_origin(self, origin: str) -> None:
        pass


def attached(run: runs.Run, stack: contextlib.ExitStack) -> Pair:
    """Attach and detach a volume, while another one is recovered."""
    work = new_folder(run, stack)
    slow = nbd_servers.make_file(work / 'slow', run.options.size << 8)
    _, address = stack.enter_context(nbd_servers.plugin(
        work, 'slow', '--filter=rate', 'file', str(slow), f'rate={_STORAGE}'))
    quick = nbd_servers.make_file(work / 'quick', run.options.size << 8)

    def cache(*prefix: str, empty: bool) -> tuple:
        found = stack.enter_context(nbd_servers.cache(
            work, neighbour.CAPACITY, {}, prefix=prefix, empty=empty))
        engine = ssdcached.SsdcachedEngine(found.control, found.socket)
        return found, _Volumes(engine, cached_volumes.CacheOptions(),
                               work / 'volumes.json')

    other = volume_settings.VolumeSettings(
        address, volume_specs.WRITE_BACK, attachment='other')
    own = volume_settings.VolumeSettings(
        str(quick), volume_specs.WRITE_THROUGH, attachment='own')
    first, volumes = cache(empty=True)
    found = volumes.attach('other', other)
    with nbd.Client(f'nbd+unix:///{found["export"]}?socket={found["socket"]}'
                    ) as client:
        for offset in range(0, run.options.size << 17, MIB):
            client.send(nbd.WRITE, offset, data=bytes([7]) * MIB)
            client.receive()
        client.send(nbd.FLUSH)
        client.receive()
    first.process.kill()
    first.process.wait()
    boot = work / 'boot'
    boot.write_text('7f0b8a52-5a0e-4c6e-9a30-0d1ffcac4e00\n')
    _, volumes = cache(
        'unshare', '--mount', 'sh', '-c',
        f'mount --bind {boot} {_BOOT_ID} && exec "$@"', 'sh', empty=False)

    def change() -> None:
        volumes.attach('own', own)
        volumes.detach('own')

    return clocked(change), lambda: volumes.attach('other', other)


def restarted(run: runs.Run, stack: contextlib.ExitStack) -> Pair:
    """Kill a keeper and read its image, while the service waits for others."""
    folder = new_folder(run, stack)
    served = [stack.enter_context(lazy_hosts.repository(
        folder / str(number), MIB)) for number in range(3)]
    [host] = stack.enter_context(served[0].hosts(1))
    for each in served:
        host.serve(each.image, {**each.wanted, 'hydrate': 'none'})
    path, own = host.path, served[-1].image

    def is_served_again(before: int) -> bool:
        if host.daemon.image(own).get('pid') in (None, before):
            return False
        with contextlib.suppress(OSError), open(path, 'rb') as image:
            return bool(image.read(1))
        return False

    def kill() -> float:
        # The service starts one at once that it has seen alive.
        time.sleep(1)
        before = host.daemon.image(own)['pid']
        os.kill(before, signal.SIGKILL)
        return clocked(lambda: processes.until(
            lambda: is_served_again(before), 'a keeper'))()

    ended, hung = threading.Event(), []

    def wait() -> None:
        for each in served[:-1]:
            if not ended.is_set():
                hung.append(host.daemon.image(each.image)['pid'])
                os.kill(hung[-1], signal.SIGSTOP)
                host.daemon.remove(each.image)

    def resume() -> None:
        ended.set()
        for pid in hung:
            # The service may have killed it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    stack.callback(resume)

    return kill, wait


def stopped(run: runs.Run, stack: contextlib.ExitStack) -> Pair:
    """Read cached blocks, while the cache ends with another one's blocks."""
    trial = neighbour.Trial(run, stack)
    trial.reader.stop()
    client = stack.enter_context(nbd.Client(trial.cache.exports['quiet']))
    chance, stop = random.Random(1), trial.stopped()

    def work() -> None:
        client.read(chance.randrange(neighbour.QUIET) * nbd_servers.BLOCK,
                    nbd_servers.BLOCK)

    def wait() -> None:
        stop()
        trial.cache.process.wait()

    return clocked(work), wait


def written(run: runs.Run, stack: contextlib.ExitStack) -> Pair:
    """Write and write back, while the storage of another volume hangs."""
    trial = neighbour.Trial(run, stack)
    trial.reader.stop()
    client = stack.enter_context(nbd.Client(trial.cache.exports['quiet']))
    control.send(trial.cache.control, 'set', volume='quiet',
                 mode=volume_specs.WRITE_BACK)
    trial.hung()

    def work() -> None:
        client.send(nbd.WRITE, 0, data=bytes([7]) * MIB)
        client.receive()
        control.send(trial.cache.control, 'flush', volume='quiet')
    return clocked(work), lambda: trial.command('flush')


ROWS = (
    ('a base image is hashed', 'hash another one of 1 MiB', hashed),
    ('a manifest crosses the WAN', 'open another image', opened),
    ('a base crosses the WAN', 'open another version', read),
    ('a volume is recovered', 'attach and detach another', attached),
    ('two keepers hang at their end', 'read after a kill of another',
     restarted),
    ('the cache stops, 128 MiB dirty', 'read a cached block', stopped),
    ('the storage of a volume hangs', 'write back 1 MiB of another', written),
)


def operations(operate: collections.abc.Callable[[], float], seconds: float,
               goes_on: collections.abc.Callable[[], bool]) -> list[float]:
    """Return the milliseconds of operations one after another.

    :param goes_on: whether one that begins now counts
    """
    found: list[float] = []
    ends = time.monotonic() + seconds
    while goes_on() and (time.monotonic() < ends or len(found) < _LEAST):
        try:
            found.append(operate() * 1e3)
        except ConnectionError:
            break  # The server has ended.
    return found


def measure(run: runs.Run, prepare: collections.abc.Callable
            ) -> dict[str, float]:
    """Return figures of a neighbour's operations at rest and beside."""
    with contextlib.ExitStack() as stack:
        operate, wait = prepare(run, stack)
        rest = operations(operate, run.options.seconds, lambda: True)

        def other() -> None:
            # What it waits for ends with this measurement.
            with contextlib.suppress(exceptions.DiffCacheError, OSError):
                wait()

        waiting = threading.Thread(target=other, daemon=True)
        waiting.start()
        beside = operations(operate, run.options.seconds, waiting.is_alive)
    assert beside, 'nothing waited'
    return {'rest_p50': float(numpy.percentile(rest, 50)),
            'rest': float(numpy.percentile(rest, 99)),
            'beside_p50': float(numpy.percentile(beside, 50)),
            'beside': float(numpy.percentile(beside, 99)),
            'count': len(beside)}


def neighbours(run: runs.Run) -> None:
    """Measure what a tenant does while something of another one waits."""
    found = run.rounds({
        what: lambda prepare=prepare: measure(run, prepare)
        for what, _, prepare in ROWS}, run.options.rounds)
    run.table('An operation of a tenant, at rest and while something of'
              ' another tenant waits, ms', (
                  'What waits', 'The operation', 'p50', 'p99', 'Beside, p50',
                  'p99', 'Ratio', 'Operations'), [
                      (what, does, *(f'{found[what][field]:.2f}' for field in (
                          'rest_p50', 'rest', 'beside_p50', 'beside')),
                       f'{found[what]["beside"] / found[what]["rest"]:.1f}',
                       f'{found[what]["count"]:.0f}')
                      for what, does, _ in ROWS])
