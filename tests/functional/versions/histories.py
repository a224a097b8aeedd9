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
"""Histories of a version store against a model of it.

A history is a list of steps that a seed decides: disks of several series are
written to, saved, restored and rolled back; versions are deleted, the store
is pruned and its key replaced; processes that do so are killed, by SIGKILL
after a random time or at a chosen write to the store; files of the store are
flipped, cut and removed; the whole store is put back to an earlier state;
system calls of a process fail, as those of a failing or full disk do; the
store's filesystem loses its power, and with it what was not made durable.
After each step everything that must hold is checked.

``python -m tests.functional.versions.histories --seconds 600 --directory DIR``
runs histories one after the other; ``--seed N`` begins with (or repeats) one.
Kills after a time do not hit the same instant again: what follows one may
differ, all else is repeated.
"""

import argparse
import collections
import functools
import hashlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Callable

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.commits import head_memory
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions import version_store
from tests.functional.versions import failing
from tests.functional.versions import forked
from tests.functional.versions import known_disks
from tests.functional.versions import power

STEPS = 30
BLOCK = 4096
MOST_VERSIONS = 12
# What only says which catalogue is the last one, and with which key.
_BOOKKEEPING = ('head-', 'latest-', 'store-id', 'key-', 'records-')
# Methods of a store of files that change it.
_WRITES = ('create', 'replace', 'put_file', 'delete')


class Wrong(Exception):
    """Something that must hold does not."""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class History:
    """A store, some disks, and what is known of every version."""

    def __init__(self, directory: pathlib.Path, seed: int) -> None:
        self.directory = directory
        self.noise = random.Random(seed)
        self.counts: collections.Counter[str] = collections.Counter()
        self.filesystem = (power.Filesystem(directory)
                           if power.is_possible() else None)
        # What is beside it is put in its place.
        self.store = (self.filesystem.root if self.filesystem
                      else directory) / 'store'
        self.keys = [self.noise.randbytes(32)] if seed % 3 else [None]
        self.block_size = self.noise.choice((512, 4096, 4096, 65536))
        self.series = [self._new_series(name) for name in 'abc']
        # What versions have, by their ids, with their series.
        self.known: dict[str, tuple[known_disks.Series, str]] = {}
        self.usual = collections.defaultdict(lambda: 0.1)
        self.log: list[str] = []

    # -- the parts

    def _new_series(self, name: str) -> known_disks.Series:
        noise = self.noise
        size = noise.choice((noise.randrange(1, 400) * BLOCK,
                             noise.randrange(1, 400 * BLOCK)))
        image = None
        if name != 'a':
            image = self.directory / f'image-{name}'
            image.write_bytes(noise.randbytes(noise.randrange(size + 1)))
        path = self.directory / f'disk-{name}'
        if name == 'c' and image is not None and known_disks.has_qemu():
            size = size // 512 * 512 + 512
            subprocess.run(
                ['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', str(image),
                 '-F', 'raw', str(path), str(size)], check=True)
            return known_disks.Series(version_store.Disk(
                path, name, image, format='qcow2', manifest=True))
        start = image.read_bytes()[:size] if image else b''
        path.write_bytes(start + noise.randbytes(size - len(start)))
        return known_disks.Series(version_store.Disk(
            path, name, image, format='raw', manifest=noise.random() < 0.3))

    def blobs(self) -> file.FileStore:
        """Return the store's blobs."""
        return file.FileStore(self.store)

    def open(self, blobs: file.FileStore | None = None
             ) -> version_store.VersionStore:
        """Open the store with the key that it has, as a new process does."""
        memory = head_memory.HeadMemory(self.directory / 'memory.json')
        error = None
        for key in reversed(self.keys):
            access = store_access.StoreAccess(
                blobs or self.blobs(), key, self.block_size, memory=memory)
            try:
                access.head_or_new()
                return version_store.VersionStore(access)
            except exceptions.InvalidInput as exc:
                error = exc
        assert error is not None
        raise error

    # -- checks

    def content(self, name: str) -> str:
        """Return the digest of a version, restored in one of the formats."""
        series, _ = self.known[name]
        output = self.directory / 'restored'
        disk_format = self.noise.choice(('raw', 'raw', 'qcow2')) \
            if known_disks.has_qemu() else 'raw'
        size = self.open().restore(name, output, disk_format,
                                   series.disk.base).size
        found = known_disks.read_disk(output, disk_format)
        output.unlink()
        if found[size:].strip(b'\0'):
            raise Wrong(f'version {name} has data after its end')
        return _digest(found[:size])

    def check(self) -> None:
        """Check that the store has what the model has, and nothing else."""
        there = {version.id for version in self._versions()}
        if there != self.known.keys():
            raise Wrong(f'versions {there ^ self.known.keys()} are only in '
                        f'the store or in the model')
        for name in self.noise.sample(sorted(there), min(3, len(there))):
            if self.content(name) != self.known[name][1]:
                raise Wrong(f'version {name} has changed')

    def _versions(self):
        try:
            return self.open().versions()
        except exceptions.NotFound:
            return []

    def check_intact(self) -> None:
        """Check that all can be read."""
        if not self.known:
            return
        found = self.open().verify()
        if not found.intact:
            raise Wrong(f'the store is damaged: {found}')

    # -- the steps

    def run(self, steps: int = STEPS) -> None:
        """Perform the steps of a history."""
        for _ in range(steps):
            kinds = ['save', 'write', 'save']
            kinds += ['cut'] if self.filesystem and self.known else []
            if self.known:
                kinds += ['save_all', 'restore', 'rollback', 'delete',
                          'prune', 'kill', 'kill', 'damage', 'rewind',
                          'manifest', 'together', 'together']
                kinds += ['rekey'] if self.keys[0] else []
            kind = self.noise.choice(kinds)
            self.log.append(kind)
            self.counts[kind] += 1
            getattr(self, f'_{kind}')()
            self.check()
        for name in self.known:
            if self.content(name) != self.known[name][1]:
                raise Wrong(f'version {name} has changed')
        self.check_intact()

    def _pick(self) -> str:
        return self.noise.choice(sorted(
            self.known, key=lambda name: (self.known[name][0].disk.series,
                                          self.known[name][1], name)))

    def _write(self, series: known_disks.Series | None = None) -> None:
        series = series or self.noise.choice(self.series)
        size = len(series.content())
        for _ in range(self.noise.randrange(1, 6)):
            at = self.noise.randrange(size)
            if series.disk.format == 'qcow2':
                at = at // 512 * 512
            length = min(size - at, self.noise.choice((512, 4096, 70000)))
            data = self.noise.choice((bytes, self.noise.randbytes))(length)
            series.write(at, data)

    def _save(self) -> None:
        self._note_saved(self._save_some([self.noise.choice(self.series)]))

    def _save_all(self) -> None:
        self._note_saved(self._save_some(self.series))

    def _save_some(self, some: list[known_disks.Series]):
        if len(self.known) > MOST_VERSIONS:
            self._delete()
        alpha = self.noise.choice((0.0, 0.0, 0.5, 'auto'))
        token = str(self.noise.random())
        for series in some:
            self._write(series)
        return self.open().save([series.disk for series in some],
                                alpha=alpha, token=token)

    def _note_saved(self, versions) -> None:
        by_name = {series.disk.series: series for series in self.series}
        for version in versions:
            series = by_name[version.series]
            self.known[version.id] = series, _digest(series.content())

    def _together(self) -> None:
        """Have several processes change the store at once; kill some."""
        if len(self.known) > MOST_VERSIONS:
            self._delete()
        gone = self._pick() if self.noise.random() < 0.5 else None
        works = [functools.partial(_save, disk=series.disk)
                 for series in self.series]
        works += [self._pruned] if self.noise.random() < 0.7 else []
        works += [lambda store: store.delete([gone])] if gone else []
        for series in self.series:
            self._write(series)
        children = [forked.start(lambda work=work: work(self.open()))
                    for work in works]
        for child in children:
            if self.noise.random() < 0.2:
                forked.wait(child, self.noise.uniform(0, self.usual['save']))
                forked.kill(child)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        self.counts['killed'] += sum(map(os.WIFSIGNALED, statuses))
        if any(map(os.WIFEXITED, filter(None, statuses))):
            raise Wrong(f'one of several writers failed: {statuses}')
        self._await_unlocked()
        there = {version.id: version for version in self._versions()}
        if gone is not None and gone not in there:
            del self.known[gone]
        elif gone is not None and statuses[-1] == 0:
            raise Wrong(f'version {gone} was deleted, and is there')
        saved = {version.series for name, version in there.items()
                 if name not in self.known}
        for series, status in zip(self.series, statuses):
            if status == 0 and series.disk.series not in saved:
                raise Wrong(f'{series.path} was saved, and no version is')
        self._note_new()
        self.check_intact()

    def _restore(self) -> None:
        name = self._pick()
        if self.content(name) != self.known[name][1]:
            raise Wrong(f'version {name} has changed')

    def _manifest(self) -> None:
        name = self._pick()
        series, digest = self.known[name]
        path = self.directory / 'manifest'
        store = self.open()
        store.create_manifest(name, path, series.disk.base)
        if self.noise.random() < 0.5:
            store.keep_manifest(name, path)
        path.unlink()

    def _rollback(self) -> None:
        name = self._pick()
        series, digest = self.known[name]
        before = _digest(series.content())
        self._write(series)
        now = _digest(series.content())
        way = self.noise.choice(('keep', 'rollback', 'rebuild', 'auto'))
        if way == 'keep':
            kept = self.open().roll_back(name, series.disk).kept
            self.known[kept] = series, now
        else:
            self.open().roll_back_disks([(name, series.disk)], way)
        if _digest(series.content()) != digest:
            raise Wrong(f'{series.path} is not version {name} ({before})')

    def _delete(self) -> None:
        names = [self._pick() for _ in range(self.noise.randrange(1, 3))]
        for name in self.open().delete(names):
            del self.known[name]

    def _prune(self) -> None:
        self._pruned(self.open())

    def _pruned(self, store: version_store.VersionStore) -> None:
        store.prune(rule=pruning.PruneRule(
            self.noise.choice((0, 0.2, 0.5)), self.noise.choice((0, 0, 5))))

    def _rekey(self) -> None:
        self.keys.append(self.noise.randbytes(32))
        self._rekeyed(self.open())

    def _rekeyed(self, store: version_store.VersionStore) -> None:
        store = store.rotate_key(self.keys[-1])
        if self.noise.random() < 0.7:
            store.rewrite_all_keys()
            store.retire_keys()

    def _rewind(self) -> None:
        """Put the store back to an earlier state, which is noticed."""
        store, copy = self.store, self.store.with_name('copy')
        shutil.copytree(store, copy)
        try:
            self._note_saved(self._save_some([self.series[0]]))
            later = self.store.with_name('later')
            store.rename(later)
            copy.rename(store)
            try:
                self.open().versions()
            except exceptions.IntegrityError:
                pass
            else:
                raise Wrong('nobody noticed that the store was put back')
            shutil.rmtree(store)
            later.rename(store)
        finally:
            shutil.rmtree(copy, ignore_errors=True)
            self._make_durable()

    def _make_durable(self) -> None:
        """Have it survive what this module itself did to the store."""
        if self.filesystem:
            self.filesystem.make_durable()

    # -- kills

    def _cut(self) -> None:
        """Cut the power while nothing is done."""
        before = self._state()
        self.filesystem.cut()
        self.filesystem.restore()
        if self._state() != before:
            raise Wrong('what was done is not durable')

    def _cut_off(self, kind: str,
                 work: Callable[[version_store.VersionStore], object]) -> None:
        """Have a process do some work, and cut the power meanwhile."""
        done = self.directory / 'done'
        child = forked.start(lambda: (work(self.open()), done.write_text(
            str(self.open()._access.head().number))))
        forked.wait(child, self.noise.uniform(0, self.usual[kind] * 1.3))
        self.filesystem.cut()
        forked.kill(child)
        os.waitpid(child, 0)
        self.filesystem.restore()
        self.log[-1] += ' and power'
        self.counts['power lost'] += 1
        number = done.read_text() if done.exists() else ''
        done.unlink(missing_ok=True)
        if number and self.open()._access.head().number != int(number):
            raise Wrong(f'{kind} was done and is not durable')

    def _kill(self) -> None:
        kind = self.noise.choice(('save', 'rollback', 'rebuild', 'delete',
                                  'prune', 'rekey'))
        if kind == 'rekey' and not self.keys[0]:
            kind = 'prune'
        self.log[-1] = f'kill {kind}'
        self.counts[self.log[-1]] += 1
        getattr(self, f'_kill_{kind}')()
        # Whoever comes next tidies up.
        self._note_saved(self._save_some([self.noise.choice(self.series)]))
        self.check_intact()

    def _kill_save(self) -> None:
        some = self.noise.choice(([self.noise.choice(self.series)],
                                  self.series))
        for series in some:
            self._write(series)
        disks = [series.disk for series in some]
        token = self.noise.choice((None, str(self.noise.random())))
        self._killed('save', lambda store: store.save(disks, token=token))
        self._note_new()
        if token is not None:
            versions = self.open().save(disks, token=token)
            self._note_saved(versions)

    def _note_new(self) -> None:
        """Note versions that a process saved before it was killed."""
        self._note_saved([version for version in self._versions()
                          if version.id not in self.known])

    def _kill_delete(self) -> None:
        name = self._pick()
        self._killed('delete', lambda store: store.delete([name]))
        if name not in {version.id for version in self._versions()}:
            del self.known[name]

    def _kill_prune(self) -> None:
        self._killed('prune', self._pruned)

    def _kill_rekey(self) -> None:
        self.keys.append(self.noise.randbytes(32))
        self._killed('rekey', self._rekeyed)

    def _kill_rollback(self) -> None:
        self._kill_way('rollback')

    def _kill_rebuild(self) -> None:
        self._kill_way('rebuild')

    def _kill_way(self, way: str) -> None:
        name = self._pick()
        series, digest = self.known[name]
        self._write(series)
        before = _digest(series.content())
        self._killed(way, lambda store: store.roll_back_disks(
            [(name, series.disk)], way))
        unfinished = version_store.VersionStore.unfinished_rollback(
            series.path)
        if unfinished is None:
            if _digest(series.content()) not in (before, digest):
                raise Wrong(f'{series.path} is a mixture without a journal')
            return
        self.counts['interrupted rollbacks'] += 1
        try:
            self.open().save([series.disk])
        except exceptions.Conflict:
            pass
        else:
            raise Wrong(f'{series.path} was saved in the middle of a rollback')
        other = self.noise.choice([each for each, (of, _) in
                                   self.known.items() if of is series])
        self.open().roll_back(other, series.disk, keep=False)
        if _digest(series.content()) != self.known[other][1]:
            raise Wrong(f'{series.path} is not version {other}')

    def _killed(self, kind: str,
                work: Callable[[version_store.VersionStore], object]) -> None:
        """Have a process do some work, and kill it, or its disk fail."""
        if failing.is_possible() and self.noise.random() < 0.4:
            self._failed(kind, work)
            return
        if self.filesystem and self.noise.random() < 0.4:
            self._cut_off(kind, work)
            self._await_unlocked()
            return
        at_write = (self.noise.randrange(12) if self.noise.random() < 0.5
                    else None)
        after = self.noise.uniform(0, self.usual[kind] * 1.3)
        started = time.monotonic()

        def run() -> None:
            blobs = self.blobs()
            if at_write is not None:
                _die_at(blobs, at_write)
            work(self.open(blobs))

        child = forked.start(run)
        if at_write is None:
            forked.wait(child, after)
            forked.kill(child)
        status = os.waitpid(child, 0)[1]
        if status == 0:
            self.usual[kind] = time.monotonic() - started
        elif os.WIFSIGNALED(status):
            self.counts['killed'] += 1
        else:
            raise Wrong(f'{kind} failed before it was killed')
        self._await_unlocked()

    def _await_unlocked(self) -> None:
        for series in self.series:
            known_disks.await_unlocked(series)

    def _state(self) -> list:
        """Return what a successful change must have made durable."""
        return [self.open()._access.head().number,
                *(series.content() for series in self.series)]

    def _failed(self, kind: str,
                work: Callable[[version_store.VersionStore], object]) -> None:
        """Have a process do some work while system calls fail."""
        fault = failing.Fault.choose(self.noise)
        self.log[-1] += f' {fault}'
        before = self._state()
        end = failing.run(fault, lambda: work(self.open()), self.directory)
        self.counts[f'{fault.name}: {"injected" if end.hit else "too late"}'
                    ] += 1
        if (end.is_done and end.hit and fault.is_no_sync
                and self._state() != before):
            raise Wrong(f'{kind} succeeded although each sync failed: '
                        f'{end.hit[0]}')
        if not (end.is_done or end.hit):
            raise Wrong(f'{kind} failed without a cause')
        self._await_unlocked()

    # -- damage

    def _damage(self) -> None:
        """Damage a file of the store; then recover, or put it back."""
        self._damage_one()
        self._make_durable()

    def _damage_one(self) -> None:
        blobs = [path for path in sorted(self.store.iterdir())
                 if not path.name.startswith('.')]
        needed = self.blobs_needed()
        path = self.noise.choice([path for path in blobs
                                  if path.name in needed]
                                 if self.noise.random() < 0.8 else blobs)
        whole = path.read_bytes()
        self._hurt(path, whole)
        self.log[-1] = f'damage {path.name.split("-")[0]}'
        self.counts[self.log[-1]] += 1
        if path.name.startswith(_BOOKKEEPING):
            self._use_what_can_be()
            path.write_bytes(whole)
            return
        found = self.open().verify()
        lost = set(found.versions_damaged)
        self._check_damaged(lost)
        if self.noise.random() < 0.3:
            path.write_bytes(whole)
            self.check_intact()
            return
        if path.name.startswith('manifest-'):
            self._recover_manifest(path.name)
            return
        self._recover(lost)

    def _recover_manifest(self, blob: str) -> None:
        """Have a damaged manifest created again; saves go on before."""
        if self.noise.random() < 0.5:
            self._note_saved(self._save_some(self.series))
        head = self.open()._access.head()
        output = self.directory / 'manifest'
        for name, kept in head.manifests.items():
            if kept.blob == blob and name in self.known:
                store = self.open()
                store.create_manifest(name, output,
                                      self.known[name][0].disk.base)
                store.keep_manifest(name, output)
        self.open().prune()
        self.check_intact()

    def blobs_needed(self) -> set[str]:
        """Return the names of blobs that versions need."""
        return self.open()._access.head().blobs()

    def _hurt(self, path: pathlib.Path, whole: bytes) -> None:
        way = self.noise.choice(('flip', 'cut', 'remove', 'empty'))
        if way == 'remove':
            path.unlink()
        elif way == 'flip' and whole:
            changed = bytearray(whole)
            changed[self.noise.randrange(len(whole))] ^= \
                1 << self.noise.randrange(8)
            path.write_bytes(changed)
        else:
            path.write_bytes(whole[:self.noise.randrange(len(whole) or 1)]
                             if way == 'cut' else b'')

    def _use_what_can_be(self) -> None:
        """Use a store whose bookkeeping is damaged: right, or refused."""
        for name in list(self.known):
            try:
                found = self.content(name)
            except (exceptions.DiffCacheError, OSError):
                continue
            if found != self.known[name][1]:
                raise Wrong(f'version {name} restores to something else')

    def _check_damaged(self, lost: set[str]) -> None:
        for name, (_, digest) in list(self.known.items()):
            try:
                found = self.content(name)
            except (exceptions.IntegrityError, exceptions.RetryableError
                    ) as exc:
                if name not in lost:
                    raise Wrong(f'version {name} is intact, and is not '
                                f'restored: {exc}') from exc
                continue
            if found != digest:
                raise Wrong(f'version {name} restores to something else')

    def _recover(self, lost: set[str]) -> None:
        """Go on with a damaged store, until it is intact again."""
        if self.noise.random() < 0.5:
            self._note_saved(self._save_some(
                [self.noise.choice(self.series)]))
        if self.noise.random() < 0.5:
            self._prune()
        # A save may share what nobody has read.
        lost = set(self.open().verify().versions_damaged)
        self._check_damaged(lost)
        if lost:
            self.open().delete(sorted(lost))
        for name in lost:
            del self.known[name]
        self.open().prune(rule=pruning.PruneRule(0))
        # The index of a base image is written anew by a save on it.
        for _ in range(2):
            self._note_saved(self._save_some(self.series))
        self.check_intact()


def _save(store: version_store.VersionStore, disk: version_store.Disk
          ) -> None:
    store.save([disk])


def _die_at(blobs: file.FileStore, write: int) -> None:
    """Kill this process and its programs at one of a store's writes."""
    left = [write]

    def dying(real):
        def call(*arguments):
            if left[0] == 0:
                os.killpg(0, signal.SIGKILL)
            left[0] -= 1
            return real(*arguments)
        return call

    for name in _WRITES:
        setattr(blobs, name, dying(getattr(blobs, name)))


def run_one(directory: pathlib.Path, seed: int, steps: int = STEPS
            ) -> collections.Counter[str]:
    """Run the history of a seed; return how often each step was taken.

    :raises Wrong: with the steps before, and the seed
    """
    with tempfile.TemporaryDirectory(dir=directory) as own:
        history = History(pathlib.Path(own), seed)
        try:
            history.run(steps)
        except Exception as exc:
            raise Wrong(f'seed {seed}, after {len(history.log)} steps '
                        f'({", ".join(history.log)}): '
                        f'{type(exc).__name__}: {exc}') from exc
        finally:
            if history.filesystem:
                history.filesystem.close()
        return history.counts


def main() -> int:
    """Run histories for some time; print what was done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seconds', type=float, default=60)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--steps', type=int, default=STEPS)
    parser.add_argument('--directory', type=pathlib.Path)
    args = parser.parse_args()
    directory = args.directory or pathlib.Path(tempfile.gettempdir())
    ends = time.monotonic() + args.seconds
    total: collections.Counter[str] = collections.Counter()
    seed, wrong = args.seed, 0
    while True:
        try:
            total += run_one(directory, seed, args.steps)
        except Wrong as exc:
            traceback.print_exc()
            print(f'WRONG: {exc}', flush=True)
            wrong += 1
        seed += 1
        if time.monotonic() > ends:
            break
    print(f'{seed - args.seed} histories, seeds {args.seed} to {seed - 1}:',
          ', '.join(f'{name} {count}' for name, count
                    in sorted(total.items())))
    print(f'{wrong} wrong')
    return min(1, wrong)


if __name__ == '__main__':
    sys.exit(main())
