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
"""Saves side by side, and the commits of many saves in a row."""

import collections.abc
import multiprocessing
import os
import pathlib
import random
import resource
import shutil
import statistics
import time

from bench.harness import processes
from bench.harness import runs
from bench.versions import disks
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions import version_store

_PROCESSES = 8
_MIB = 1 << 20
# Saves between two rows of a table.
_ROWS = 10


def writers(run: runs.Run) -> None:
    """Measure saves of several processes into one store."""
    found = run.keep('beside', lambda: _beside(
        run.work / 'beside', run.options.saves, run.options.mib))
    limit = min(found['zstd'], found['disk'])
    run.table('Saves of 8 processes into one store', (
        'Saves', 'MB/s', 'zstd -3 -T2, MB/s', 'Disk, MB/s',
        'Of the least', 'CPU s', 'CPU s of zstd'), [(
            run.options.saves, f'{found["saves"]:.0f}',
            f'{found["zstd"]:.0f}', f'{found["disk"]:.0f}',
            f'{found["saves"] / limit:.2f}', f'{found["saves_cpu"]:.1f}',
            f'{found["zstd_cpu"]:.1f}')])
    rows = run.keep('commits', lambda: _commits(
        run.work / 'commits', run.options.commits))
    run.table('Commits of saves of one block each', (
        'Saves', 'Median ms of a commit', 'Bytes written by it, mean',
        'Most'), rows)


def _rate(size: int, work: collections.abc.Callable[[], object]) -> float:
    """Return the MB/s of some work on this many bytes."""
    started = time.monotonic()
    work()
    return size / (time.monotonic() - started) / 1e6


def _children_cpu() -> float:
    """Return the CPU seconds of processes that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _write_durably(source: pathlib.Path, times: int) -> None:
    target = source.with_name('written')
    with open(target, 'wb') as stream:
        for _ in range(times):
            stream.write(source.read_bytes())
        os.fsync(stream.fileno())
    target.unlink()


def _save_all(store: pathlib.Path, paths: list[pathlib.Path]) -> None:
    opened = version_store.VersionStore.open(file.FileStore(store))
    for path in paths:
        opened.save([version_store.Disk(path, path.name, format='raw',
                                        without_snapshot=True)])


def _beside(work: pathlib.Path, saves: int, mib: int) -> dict[str, float]:
    """Return MB/s of saves, and of what limits them, of the same disks.

    The rate of the disk counts the bytes before compression.
    """
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    paths = []
    for number in range(saves):
        noise = random.Random(number)
        paths.append(work / f'disk-{number}')
        with open(paths[-1], 'wb') as stream:
            for _ in range(mib * _MIB // disks.BLOCK):
                stream.write(disks.block(noise))
    size = saves * mib * _MIB
    packed = work / 'packed'

    def compress() -> None:
        for path in paths:
            processes.run('zstd', '-q', '-3', '-T2', '-f', path, '-o', packed)

    cpu = [_children_cpu()]
    found = {'zstd': _rate(size, compress)}
    cpu.append(_children_cpu())
    found['disk'] = _rate(size, lambda: _write_durably(packed, saves))
    context = multiprocessing.get_context('fork')
    started = [context.Process(target=_save_all, args=(
        work / 'store', paths[number::_PROCESSES]))
        for number in range(_PROCESSES)]

    def save() -> None:
        for each in started:
            each.start()
        for each in started:
            each.join()

    found['saves'] = _rate(size, save)
    cpu.append(_children_cpu())
    found |= {'zstd_cpu': cpu[1] - cpu[0], 'saves_cpu': cpu[2] - cpu[1]}
    there = version_store.VersionStore.open(file.FileStore(
        work / 'store')).versions()
    assert len(there) == saves, 'a save failed'
    shutil.rmtree(work)
    return found


class _Commits(store_access.StoreAccess):
    """Access to a store that counts what commits take."""

    def commit(self, head, new=(), doubtful=()) -> None:
        """See :meth:`.StoreAccess.commit`."""
        before = {path: path.stat().st_mtime_ns for path in _small(self)}
        started = time.monotonic()
        super().commit(head, new, doubtful)
        self.seconds = time.monotonic() - started
        self.written = sum(path.stat().st_size for path in _small(self)
                           if path.stat().st_mtime_ns != before.get(path))


def _small(access: store_access.StoreAccess) -> list[pathlib.Path]:
    """Return the files of catalogues, pointers and segments."""
    return [access.store.local_path(name) for name in access.store.names()
            if name.startswith(('head-', 'latest-', 'records-'))]


def _commits(work: pathlib.Path, saves: int) -> list[tuple]:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    noise = random.Random(1)
    access = _Commits(file.FileStore(work / 'store'))
    opened = version_store.VersionStore(access)
    disk = work / 'disk'
    rows, spent = [], []
    for number in range(1, saves + 1):
        disk.write_bytes(disks.block(noise))
        opened.save([version_store.Disk(disk, 'a', format='raw',
                                        without_snapshot=True)])
        spent.append((access.seconds * 1000, access.written))
        if number % max(1, saves // _ROWS) == 0:
            seconds, written = zip(*spent)
            rows.append((f'to {number}', f'{statistics.median(seconds):.1f}',
                         round(statistics.mean(written)), max(written)))
            spent.clear()
    shutil.rmtree(work)
    return rows
