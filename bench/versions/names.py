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
"""A save in a store of up to 100 TiB and a million versions, by names only.

The catalogue and its segments name versions, packs and maps of which nothing
exists, and hooks are computed when they are read: a store of that size takes
some hundred megabytes of disk. A server is saved before, and once more after
one of its blocks was written.
"""

import hashlib
import json
import pathlib
import random
import resource
import shutil
import sys
import time
import typing

import numpy

from bench.harness import processes
from bench.harness import runs
from bench.harness import tables
from bench.versions import disks
from bench.versions import grown
from bench.versions import growth
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.catalogue import record_tables
from diffcache_openstack.versions import version_store

VERSIONS_IN_TIB = 10_000
_SERIES_VERSIONS = 100
_PACKS_IN_TIB = 1024 * grown.PACKS_IN_GIB
# Of a file of hooks: as long as files become.
_HOOK_SECTIONS = 1000
_SECTION_HOOKS = 1024
_SECTION_BYTES = 16 * _SECTION_HOOKS
_BLOCKS_IN_SECTION = 32 * _SECTION_HOOKS
_NAME_BYTES = 24
_BEFORE = 64


def _section(number: int, section: int) -> bytes:
    """Return the hooks of a section of a file: ascending names."""
    hooks = numpy.empty(_SECTION_HOOKS, numpy.dtype(
        [('name', '<u8'), ('pack', '<u4'), ('slot', '<u4')]))
    step = (1 << 64) // (_HOOK_SECTIONS * _SECTION_HOOKS)
    first = section * _SECTION_HOOKS
    # Names of several files differ.
    hooks['name'] = (numpy.arange(
        first, first + _SECTION_HOOKS, dtype=numpy.uint64)
        * numpy.uint64(step) + numpy.uint64(number))
    hooks['pack'] = _BEFORE + number
    hooks['slot'] = numpy.arange(_SECTION_HOOKS)
    return hooks.tobytes()


def _hook_head(number: int) -> bytes:
    """Return what a file of hooks has before the hooks."""
    head = b'DCVHOOK1' + numpy.array(
        [1, _HOOK_SECTIONS * _SECTION_HOOKS], '<u4').tobytes()
    for section in range(_HOOK_SECTIONS):
        data = _section(number, section)
        head += data[:8] + grown.hashed(data)[:16]
    return head


class _NamesStore(growth.CountedStore):
    """A store that computes hooks; of these it has what comes before."""

    def read(self, name: str, offset: int = 0,
             length: int | None = None) -> bytes:
        parts = name.split('-')
        if parts[0] != 'hooks' or parts[2] != 'computed':
            return super().read(name, offset, length)
        # Without being counted: the file has no hooks.
        head = file.FileStore.read(self, name)
        assert length is not None, 'a long file of hooks is read in parts'
        section, rest = divmod(offset - len(head), _SECTION_BYTES)
        data = (head[offset:offset + length] if offset < len(head) else
                _section(int(parts[1]), section))
        assert len(data) == length and (offset < len(head) or not rest)
        self.count('read', name)
        self.read_bytes += length
        return data


def _hex(*words: object) -> str:
    return hashlib.sha256(repr(words).encode()).hexdigest()


def _pack(number: int) -> entries.Pack:
    check = _hex('pack', number)
    return entries.Pack(
        f'pack-{number:08d}-{check[:8]}', f'index-{number:08d}-{check[:8]}', 0,
        number // 160, grown.PACK_BLOCKS, 30 << 20, 400 << 10, 3, check)


def _map(number: int) -> entries.Blob:
    check = _hex('map', number)
    return entries.Blob(f'map-{number:08d}-{check[:8]}', 2000, check)


def _version(number: int) -> entries.Version:
    digits = _hex('version', number)
    parent = _hex('version', number - _SERIES_VERSIONS)
    return entries.Version(
        f'{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{digits[16:32]}',
        f'server {_hex(number // _SERIES_VERSIONS)[:32]}', number, parent,
        '2026-01-01T00:00:00+00:00', 40 << 30, (2, number, 0), None, '0',
        25_000, 25_000, 100 << 20, 60 << 20, 2.5, 30.5)


_KINDS: tuple[tuple[str, typing.Callable[[int], object]], ...] = (
    ('packs', _pack), ('maps', _map), ('versions', _version))


def grow(directory: pathlib.Path, tib: float) -> None:
    """Have the catalogue of a store name this much more."""
    counts = {'packs': round(tib * _PACKS_IN_TIB),
              'maps': round(tib * VERSIONS_IN_TIB),
              'versions': round(tib * VERSIONS_IN_TIB)}
    store = file.FileStore(directory)
    access = store_access.StoreAccess(store)
    with access.writing() as writing:
        head = writing.head or access.head()
        for (name, kind), table in zip(_KINDS, head.tables()):
            _add_records(store, table, kind, counts[name])
        head.versions._numbers = None
        head.next_pack = head.next_map = head.next_version = _BEFORE + max(
            counts.values())
        blocks = counts['packs'] * grown.PACK_BLOCKS
        for number in range(_BEFORE, _BEFORE + blocks // (
                _HOOK_SECTIONS * _BLOCKS_IN_SECTION)):
            blob = f'hooks-{number:08d}-computed'
            data = _hook_head(number)
            (directory / blob).write_bytes(data)
            head.hooks[number] = entries.Blob(
                blob, len(data) + _HOOK_SECTIONS * _SECTION_BYTES + 32,
                grown.hashed(data).hex())
        # Compared with it, all of these would be read.
        head.before = None
        access.commit(head)


def _add_records(store: file.FileStore, table: record_tables.RecordTable,
                 kind: typing.Callable[[int], object], count: int) -> None:
    """Add segments of records, from the number ``_BEFORE`` on."""
    size = record_tables.SEGMENT_RECORDS
    first = {number: record for number, record in table.items()}
    segments = []
    for at in range(_BEFORE, _BEFORE + count, size):
        records = first | {number: kind(number) for number in range(
            at, min(at + size, _BEFORE + count))}
        first = {}
        data = record_tables.encode(records)
        sizes = [entries.bytes_of(record) for record in records.values()]
        segment = record_tables.Segment(
            f'records-{at:08d}-{kind.__name__.strip("_")}',
            catalogue.digest_of(data), min(records), max(records),
            len(records), sum(sizes), max(sizes))
        # Without its copy, which nothing reads.
        store.replace(segment.blobs[0], data)
        segments.append((segment, {}))
    if segments:
        table.replace_segments(segments)


def save(work: pathlib.Path) -> dict[str, object]:
    """Save a disk whose first block is new; return what that takes."""
    noise = random.Random(2)
    block = disks.block(noise)
    # A hook, which is searched in all files of hooks.
    while grown.hashed(block)[_NAME_BYTES - 1] % 32:
        block = disks.block(noise)
    with open(work / 'disk', 'r+b') as stream:
        stream.write(block)
    store = _NamesStore(work / 'store')
    cpu = time.process_time()
    version_store.VersionStore.open(store).save([version_store.Disk(
        work / 'disk', 'a', format='raw', without_snapshot=True)])
    return store.found() | {
        'cpu_s': time.process_time() - cpu,
        'peak_mb': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measure(work: pathlib.Path, tib: float) -> dict[str, object]:
    """Measure in a store of a size."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    noise = random.Random(1)
    with open(work / 'disk', 'wb') as stream:
        for _ in range(1024):
            stream.write(disks.block(noise))
    version_store.VersionStore.open(file.FileStore(work / 'store')).save(
        [version_store.Disk(work / 'disk', 'a', format='raw',
                            without_snapshot=True)])
    # A process counts the memory of the one that starts it as its own.
    command = sys.executable, '-m', 'bench.versions.names'
    processes.run(*command, 'grow', work, tib)
    found = json.loads(processes.run(*command, 'save', work))
    shutil.rmtree(work)
    return found


def names(run: runs.Run) -> None:
    """Measure a save in stores of several sizes, by names only."""
    rows = []
    for tib in run.options.tib:
        found = run.keep(f'{tib:g} TiB', lambda tib=tib: measure(
            run.work / 'names', tib))
        kinds = [name.split()[1].split('-')[0] for name in found['requests']]
        rows.append((
            f'{tib:g}', round(tib * VERSIONS_IN_TIB),
            f'{found["peak_mb"]:.0f}', f'{found["cpu_s"]:.1f}', len(kinds),
            kinds.count('records'), kinds.count('hooks'),
            tables.megabytes(found['read']),
            tables.megabytes(found['catalogue'])))
    run.table('A save of one block, by names only', (
        'TiB', 'Versions', 'MB of memory', 'CPU s', 'Requests',
        'Of segments', 'Of hooks', 'MB read', 'Of catalogues'), rows)


if __name__ == '__main__':
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == 'grow':
        grow(folder / 'store', float(sys.argv[3]))
    else:
        print(json.dumps(save(folder)))
