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

The store is filled with other blocks: see :mod:`bench.versions.grown`.
"""

import collections.abc
import contextlib
import dataclasses
import pathlib
import random
import shutil
import sys
import time

from bench.harness import processes
from bench.harness import runs
from bench.harness import tables
from bench.versions import disks
from bench.versions import grown
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions import version_store

DISK_BLOCKS = 16384


class CountedStore(file.FileStore):
    """A store of files that counts requests, as an object server would.

    :ivar requests: what was asked for, and of which blob
    :ivar read_bytes: what was read, in bytes
    :ivar written_bytes: what was written, in bytes
    """

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__(directory)
        self.clear()

    def local_path(self, name: str) -> pathlib.Path | None:
        return None

    def names(self) -> list[str] | None:
        return None

    def clear(self) -> None:
        """Count from here on."""
        self.requests: list[str] = []
        self.read_bytes = self.written_bytes = self.catalogue_bytes = 0

    def found(self) -> dict:
        """Return what was counted, and how much of it are catalogues."""
        return {'requests': self.requests, 'read': self.read_bytes,
                'written': self.written_bytes,
                'catalogue': self.catalogue_bytes}

    def count(self, what: str, name: str, size: int = 0) -> None:
        """Count a request, and the bytes of a catalogue."""
        self.requests.append(f'{what} {name}')
        if name.startswith(('head-', 'records-')):
            self.catalogue_bytes += size

    def read(self, name: str, offset: int = 0,
             length: int | None = None) -> bytes:
        data = b''
        try:
            data = super().read(name, offset, length)
        finally:
            self.count('read', name, len(data))
        self.read_bytes += len(data)
        return data

    def size(self, name: str) -> int:
        self.count('size', name)
        return super().size(name)

    def create(self, name: str, data: bytes) -> None:
        self.count('create', name, len(data))
        self.written_bytes += len(data)
        super().create(name, data)

    def replace(self, name: str, data: bytes) -> None:
        self.count('replace', name, len(data))
        self.written_bytes += len(data)
        super().replace(name, data)

    def put_file(self, name: str, path: pathlib.Path) -> None:
        self.count('put', name)
        self.written_bytes += path.stat().st_size
        super().put_file(name, path)

    def delete(self, name: str) -> None:
        self.count('delete', name)
        super().delete(name)


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

    def prune(self) -> dict:
        """Delete the first version, and prune."""
        with self.opened() as store:
            store.delete([store.versions('a')[0].id])
        return self.command('prune')

    @contextlib.contextmanager
    def opened(self) -> collections.abc.Iterator[version_store.VersionStore]:
        yield version_store.VersionStore.open(file.FileStore(
            self.work / 'store'))

    def all(self) -> dict[str, dict]:
        """Measure each."""
        return {'read': self.requests(), 'list': self.command('list'),
                'save': self.save(), 'restore': self.restore(),
                'prune': self.prune(), 'pruned': self.pruned()}

    def pruned(self) -> dict:
        """Count what a prune reads after a version was deleted."""
        with self.opened() as store:
            store.delete([store.versions('a')[0].id])
            stored = store.bytes_stored()
        counted = CountedStore(self.work / 'store')
        version_store.VersionStore.open(counted).prune()
        return counted.found() | {'stored': stored}

    def requests(self) -> dict:
        """Count the requests of a save to a store of objects.

        As from an agent, which knows the format of the disk.
        """
        store = CountedStore(self.work / 'store')
        self.change()
        version_store.VersionStore.open(store).save([version_store.Disk(
            self.work / 'disk', 'a', format='raw')])
        return store.found()


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
    processes.run(sys.executable, '-m', 'bench.versions.grown',
                  work / 'store', round(gib * grown.PACKS_IN_GIB))
    found = operations.all()
    shutil.rmtree(work)
    return found


def growth(run: runs.Run) -> None:
    """Measure operations in stores of several sizes."""
    rows: list[collections.abc.Sequence[object]] = []
    for gib in run.options.gib:
        found = run.keep(f'{gib:g} GiB', lambda gib=gib: measure(
            run.work / 'growth', gib))
        read, pruned = found['read'], found['pruned']
        rows.append((f'{gib:g}', *(
            f'{found[name][field]:{digits}}' for field, digits in (
                ('peak_mb', '.0f'), ('cpu_s', '.2f'))
            for name in ('list', 'save', 'restore', 'prune')),
            len(read['requests']), tables.megabytes(read['read']),
            read['catalogue'], f'{pruned["read"] / pruned["stored"]:.2%}'))
    run.table('A disk of 64 MiB in stores of other blocks', (
        'GiB', 'Listing, MB', 'Save of one block, MB', 'Restore, MB',
        'Prune, MB', 'Listing, CPU s', 'Save, CPU s', 'Restore, CPU s',
        'Prune, CPU s', 'Requests of a save', 'MB read of the store',
        'Bytes of catalogues', 'Read by a prune'), rows)


def saves(run: runs.Run) -> None:
    """Measure the first, the middle and the last of many saves of a disk."""
    found = run.keep('saves', lambda: _saves(
        run.work / 'saves', run.options.versions))
    run.table('Saves of one block each of a disk of 4 MiB', (
        'Save', 'CPU s', 'Requests', 'Bytes read', 'Bytes written'), [
            (name, f'{each["cpu_s"]:.3f}', each['requests'], each['read'],
             each['written']) for name, each in found['saves'].items()])
    pruned = found['prune']
    run.table('Prune after one of them was deleted', (
        'CPU s', 'Requests', 'Bytes read', 'Of the store'), [(
            f'{pruned["cpu_s"]:.2f}', pruned['requests'], pruned['read'],
            f'{pruned["read"] / pruned["stored"]:.2%}')])


def _saves(work: pathlib.Path, versions: int) -> dict:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    noise = random.Random(1)
    blocks = 1024
    (work / 'disk').write_bytes(noise.randbytes(blocks * disks.BLOCK))
    store = CountedStore(work / 'store')
    opened = version_store.VersionStore.open(store)
    disk = version_store.Disk(work / 'disk', 'a', format='raw')
    opened.save([disk])

    def change_and_save() -> None:
        with open(work / 'disk', 'r+b') as stream:
            stream.seek(noise.randrange(blocks) * disks.BLOCK)
            stream.write(disks.block(noise))
        opened.save([disk])

    found = {}
    for number in range(1, versions + 1):
        spent = _spent(store, change_and_save)
        if number in (1, versions // 2, versions):
            found[str(number)] = spent
    opened.delete([opened.versions('a')[versions // 2].id])
    stored = opened.bytes_stored()
    pruned = _spent(store, opened.prune) | {'stored': stored}
    shutil.rmtree(work)
    return {'saves': found, 'prune': pruned}


def _spent(store: CountedStore, work: collections.abc.Callable[[], object]
           ) -> dict:
    store.clear()
    started = time.process_time()
    work()
    return store.found() | {'cpu_s': time.process_time() - started,
                            'requests': len(store.requests)}
