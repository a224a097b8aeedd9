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
"""What operations on one small disk cost as the store around it grows.

The store is filled with packs of other blocks, which are sparse files: their
indexes are whole, of random names, so that all of an operation on the disk is
what it is in a store of that size. No version has these blocks, and nothing
reads them.
"""

import collections.abc
import dataclasses
import os
import pathlib
import random
import shutil
import struct
import sys

from bench.harness import processes
from bench.harness import runs
from bench.harness import tables
from bench.versions import disks
from diffcache_openstack import _native
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store import catalogue
from diffcache_openstack.versions.store import commits
from diffcache_openstack.versions.store import hook_files
from diffcache_openstack.versions.store import store_access
from diffcache_openstack.versions import version_store

DISK_BLOCKS = 16384
PACK_BLOCKS = 16384
_FRAME_BLOCKS = 256
_SECTION_BLOCKS = 1024
_NAME_BYTES = 24
PACKS_IN_GIB = (1 << 30) // (PACK_BLOCKS * disks.BLOCK)


class _CountedStore(file.FileStore):
    """A store of files that counts reads, as an object server would."""

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__(directory)
        self.requests = self.bytes = 0

    def local_path(self, name: str) -> pathlib.Path | None:
        return None

    def read(self, name: str, offset: int = 0,
             length: int | None = None) -> bytes:
        data = super().read(name, offset, length)
        self.requests += 1
        self.bytes += len(data)
        return data


def _hash(data: bytes, scratch: pathlib.Path) -> bytes:
    scratch.write_bytes(data)
    return bytes.fromhex(_native.hash_file(scratch))


def index_of(number: int, scratch: pathlib.Path) -> bytes:
    """Return the index of a pack of random blocks that are not compressed."""
    names = os.urandom(PACK_BLOCKS * _NAME_BYTES)
    frames = range(PACK_BLOCKS // _FRAME_BLOCKS)
    frame_bytes = _FRAME_BLOCKS * disks.BLOCK
    dense = 2
    head = b'DCVINDX1' + struct.pack(
        '<8IQ', 1, number, 0, disks.BLOCK, dense, PACK_BLOCKS, PACK_BLOCKS,
        len(frames), 32 + len(frames) * frame_bytes)
    head += b''.join(struct.pack(
        '<IIQII16x', frame * _FRAME_BLOCKS, _FRAME_BLOCKS,
        32 + frame * frame_bytes, frame_bytes, 1) for frame in frames)
    section = _SECTION_BLOCKS * _NAME_BYTES
    head += b''.join(_hash(names[at:at + section], scratch)[:16]
                     for at in range(0, len(names), section))
    return head + names + _hash(head, scratch)


def grow(directory: pathlib.Path, packs: int) -> None:
    """Add packs of other blocks to a store until it has so many of them."""
    access = store_access.StoreAccess(file.FileStore(directory))
    scratch = directory.with_name('scratch')
    with access.writing() as staging:
        head = access.head()
        indexes = []
        for _ in range(packs - sum(pack.origin == 0
                                   for pack in head.packs.values())):
            number = head.next_pack
            head.next_pack += 1
            index = index_of(number, scratch)
            entry = catalogue.Pack(
                f'pack-{number:08d}-00000000', f'index-{number:08d}-00000000',
                0, 0, PACK_BLOCKS, 32 + PACK_BLOCKS * disks.BLOCK, len(index),
                3, index[-32:].hex())
            indexes.append(directory / entry.index)
            indexes[-1].write_bytes(index)
            with open(directory / entry.blob, 'wb') as stream:
                stream.truncate(entry.data_bytes)
            head.packs[number] = entry
        with access.opened(head) as opened:
            for name, path in hook_files.add(
                    head, opened, indexes, staging / 'hooks', 'grown'):
                access.store.put_file(name, path)
        access.commit(head)


@dataclasses.dataclass
class _Operations:
    """The operations on one disk, by the command line.

    :ivar work: has the store and the disk
    """

    work: pathlib.Path
    noise: random.Random

    def change(self) -> None:
        """Write one new block to the disk."""
        with open(self.work / 'disk', 'r+b') as stream:
            stream.seek(self.noise.randrange(DISK_BLOCKS) * disks.BLOCK)
            stream.write(disks.block(self.noise))

    def command(self, *words: object) -> dict:
        """Run a command; return what it took."""
        return processes.measured(processes.own(
            'diffcache', '-q', 'version', *words, '--store',
            f'file://{(self.work / "store").resolve()}', '-f', 'json'),
        ).figures()

    def save(self) -> dict:
        """Save the disk, in which one block changed."""
        self.change()
        return self.command('save', self.work / 'disk', '--series', 'a')

    def restore(self) -> dict:
        """Restore the version that was saved last."""
        output = self.work / 'restored'
        last = version_store.VersionStore.open(file.FileStore(
            self.work / 'store')).versions('a')[-1]
        spent = self.command('restore', last.id, output)
        output.unlink()
        return spent

    def all(self) -> dict[str, dict]:
        """Measure each."""
        return {'list': self.command('list'), 'save': self.save(),
                'restore': self.restore()}

    def requests(self) -> dict[str, int]:
        """Count the reads of a save from a store of objects."""
        store = _CountedStore(self.work / 'store')
        self.change()
        version_store.VersionStore.open(store).save(
            [version_store.Disk(self.work / 'disk', 'a')])
        head = commits.load(store)
        name = commits.blob_name(head.number)
        return {'requests': store.requests, 'bytes': store.bytes,
                'catalogue': store.size(name)}


def measure(work: pathlib.Path, gib: float) -> dict:
    """Measure in a store of a size."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    noise = random.Random(1)
    with open(work / 'disk', 'wb') as stream:
        for _ in range(DISK_BLOCKS):
            stream.write(disks.block(noise))
    operations = _Operations(work, noise)
    operations.command('save', work / 'disk', '--series', 'a')
    # A process counts the memory of the one that starts it as its own.
    processes.run(sys.executable, '-m', 'bench.versions.growth',
                  work / 'store', round(gib * PACKS_IN_GIB))
    found = operations.all() | {'read': operations.requests()}
    shutil.rmtree(work)
    return found


def growth(run: runs.Run) -> None:
    """Measure operations in stores of several sizes."""
    rows: list[collections.abc.Sequence[object]] = []
    for gib in run.options.gib:
        found = run.keep(f'{gib:g} GiB', lambda gib=gib: measure(
            run.work / 'growth', gib))
        rows.append((f'{gib:g}', *(
            f'{found[name][field]:{digits}}' for field, digits in (
                ('peak_mb', '.0f'), ('cpu_s', '.2f'))
            for name in ('list', 'save', 'restore')),
            found['read']['requests'], tables.megabytes(
                found['read']['bytes']), found['read']['catalogue']))
    run.table('A disk of 64 MiB in stores of other blocks', (
        'GiB', 'Listing, MB', 'Save of one block, MB', 'Restore, MB',
        'Listing, CPU s', 'Save, CPU s', 'Restore, CPU s',
        'Reads of a save', 'MB read of the store', 'Bytes of a catalogue'),
        rows)


if __name__ == '__main__':
    grow(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
