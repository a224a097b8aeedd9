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
"""How many blocks are stored again since copies are searched by samples.

The store has 2 GiB of other blocks before, so that it is not searched whole.
Disks consist of files, half of which have at most eight blocks. What an exact
search would store is counted: the blocks of all saves that are different.
"""

import collections.abc
import hashlib
import pathlib
import random
import shutil

from bench.harness import runs
from bench.versions import disks
from bench.versions import grown
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions import version_store

_OTHER_GIB = 2
_ROUNDS = 4
_MIB_BLOCKS = (1 << 20) // disks.BLOCK

# A file: what seeds its content, and its blocks.
_File = tuple[int, int]


def _files(noise: random.Random, blocks: int) -> list[_File]:
    """Return files of this many blocks, of the sizes that servers have."""
    found: list[_File] = []
    while blocks > 0:
        size = min(blocks, 4096, 1 + int(noise.lognormvariate(2, 2)))
        found.append((noise.getrandbits(64), size))
        blocks -= size
    return found


def _write(path: pathlib.Path, files: collections.abc.Iterable[_File]
           ) -> None:
    with open(path, 'wb') as stream:
        for seed, size in files:
            stream.write(random.Random(seed).randbytes(size * disks.BLOCK))


def _scatter(path: pathlib.Path, noise: random.Random, count: int) -> None:
    """Write single blocks at random places."""
    blocks = path.stat().st_size // disks.BLOCK
    with open(path, 'r+b') as stream:
        for _ in range(count):
            stream.seek(noise.randrange(blocks) * disks.BLOCK)
            stream.write(noise.randbytes(disks.BLOCK))


def _replaced(noise: random.Random, files: list[_File], share: float
              ) -> list[_File]:
    """Return files of which a share is other ones of the same sizes."""
    return [(noise.getrandbits(64), size) if noise.random() < share
            else (seed, size) for seed, size in files]


class _Mix:
    """A store, and the different blocks that were saved to it."""

    def __init__(self, work: pathlib.Path) -> None:
        self._disk = work / 'disk'
        blobs = file.FileStore(work / 'store')
        self._store = version_store.VersionStore.open(blobs)
        self._different: set[bytes] = set()
        self._stored = 0
        _write(self._disk, [(0, 1)])
        self.save('first', [(0, 1)])
        grown.grow(work / 'store', _OTHER_GIB * grown.PACKS_IN_GIB)

    def save(self, server: str, files: collections.abc.Iterable[_File],
             own: random.Random | None = None, scattered: int = 0) -> None:
        """Save a disk that has some files, and single blocks of its own."""
        _write(self._disk, files)
        if own is not None:
            _scatter(self._disk, own, scattered)
        saved, = self._store.save([version_store.Disk(self._disk, server)])
        self._stored += saved.blocks_stored
        with open(self._disk, 'rb') as stream:
            while block := stream.read(disks.BLOCK):
                self._different.add(hashlib.blake2b(
                    block, digest_size=16).digest())

    def found(self) -> dict[str, int]:
        """Return the blocks that were stored, and those that are needed."""
        return {'stored': self._stored, 'needed': len(self._different)}


def _chain(mix: _Mix, noise: random.Random, blocks: int) -> None:
    """Save ten versions of a server: files are replaced, and some move."""
    files = _files(noise, blocks)
    for _ in range(10):
        mix.save('a', files, noise, blocks // 200)
        files = _replaced(noise, files, 0.05)
        first = noise.randrange(len(files) * 9 // 10)
        moved = files[first:first + len(files) // 10]
        noise.shuffle(moved)
        files[first:first + len(moved)] = moved


def _alike(mix: _Mix, noise: random.Random, blocks: int) -> None:
    """Save four servers with the same upgrades, which each write alone."""
    files = _files(noise, blocks)
    own = [random.Random(server) for server in range(4)]
    for _ in range(_ROUNDS):
        for server, chance in enumerate(own):
            mix.save(f'vm-{server}', files, chance, blocks // 200)
        files = _replaced(noise, files, 0.05)


def _distribution(mix: _Mix, noise: random.Random, blocks: int) -> None:
    """Save ten servers that have the files of one distribution elsewhere.

    Packages, of a hundred files each, were installed in another order.
    """
    files = _files(noise, blocks)
    own = [(_files(noise, blocks // 4), random.Random(server))
           for server in range(10)]
    for _ in range(2):
        for server, (others, chance) in enumerate(own):
            packages = [files[at:at + 100]
                        for at in range(0, len(files), 100)] + [others]
            chance.shuffle(packages)
            mix.save(f'vm-{server}', [each for package in packages
                                      for each in package])
        files = _replaced(noise, files, 0.05)


def _hundred(mix: _Mix, noise: random.Random, blocks: int) -> None:
    """Save a hundred servers with the same upgrades, of an eighth the size."""
    files = _files(noise, blocks // 8)
    own = [random.Random(server) for server in range(100)]
    for _ in range(2):
        for server, chance in enumerate(own):
            mix.save(f'vm-{server}', files, chance, blocks // 1600)
        files = _replaced(noise, files, 0.05)


_MIXES = {'ten versions of a server': _chain,
          'four servers with the same upgrades': _alike,
          'ten servers of one distribution': _distribution,
          'a hundred servers with the same upgrades': _hundred}


def sampling(run: runs.Run) -> None:
    """Compare what is stored with what an exact search would store."""
    rows = []
    for name, save_all in _MIXES.items():
        def measure(save_all=save_all) -> dict[str, int]:
            work = run.work / 'sampling'
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            mix = _Mix(work)
            save_all(mix, random.Random(1), run.options.mib * _MIB_BLOCKS)
            shutil.rmtree(work)
            return mix.found()
        found = run.keep(name, measure)
        more = found['stored'] / found['needed'] - 1
        rows.append((name, found['needed'], found['stored'], f'{more:.2%}'))
    run.table('Blocks stored', ('Disks', 'Different', 'Stored', 'More'), rows)
