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
"""Killing writers of a version store at random moments.

Each round starts a process that saves, prunes, rolls back or builds a disk
anew, kills it with SIGKILL after a random time, and checks everything that
must hold: no version is lost or changed, the store is intact, and a disk in
the middle of a rollback can become either state.

``python -m tests.functional.versions.killing --kills 1000 --directory DIR``
runs as many rounds as it takes for this many kills to hit a running process.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from typing import Callable

from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.disks import rollback_journal
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.restore import rollback
from diffcache_openstack.versions.restore import rollback_plan
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import retention
from diffcache_openstack.versions.store.upkeep import verification
from tests.functional.versions import forked
from tests import waiting

BLOCK = 4096
BLOCKS = 600
# More would only make checking slow.
MOST_VERSIONS = 6


class Wrong(Exception):
    """Something that must hold does not."""


def _digest(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class RawDisk:
    """A raw disk."""

    # How long what is done with it takes at first, in seconds.
    usual = {'save': 0.05, 'prune': 0.05, 'rollback': 0.08, 'rebuild': 0.05}

    def __init__(self, directory: pathlib.Path, content: bytes) -> None:
        self.path = directory / 'disk'
        self.path.write_bytes(content)

    def digest(self) -> str:
        """What tells the disk's content from another."""
        return _digest(self.path)

    def await_unlocked(self) -> None:
        """Do nothing: raw disks are not locked."""

    def write(self, changes: list[tuple[int, bytes]]) -> None:
        """Write bytes at offsets."""
        with open(self.path, 'r+b') as stream:
            for offset, data in changes:
                stream.seek(offset)
                stream.write(data)


class Qcow2Disk:
    """A qcow2 disk, of which internal snapshots are taken."""

    usual = {'save': 0.2, 'prune': 0.05, 'rollback': 0.5, 'rebuild': 0.4}

    def __init__(self, directory: pathlib.Path, content: bytes) -> None:
        self.path = directory / 'disk.qcow2'
        self._raw = directory / 'disk.raw'
        self._raw.write_bytes(content)
        self._convert('raw', self._raw, 'qcow2', self.path)

    @staticmethod
    def _convert(old: str, source: pathlib.Path, new: str,
                 target: pathlib.Path) -> None:
        subprocess.run(['qemu-img', 'convert', '-f', old, '-O', new,
                        str(source), str(target)], check=True)

    def digest(self) -> str:
        """What tells the disk's content from another; checks its tables."""
        done = self._check_unlocked()
        # 3: clusters are lost, which costs space and nothing else. Counts
        # that a killed qemu-img left too high are mended by the next one.
        mended_later = snapshots.marker_path(self.path).exists()
        if done.returncode not in (0, 3) and not mended_later:
            raise Wrong(f'the disk is damaged: {done.stderr}')
        self._convert('qcow2', self.path, 'raw', self._raw)
        return _digest(self._raw)

    def await_unlocked(self) -> None:
        """Wait until programs that were killed have left the disk."""
        self._check_unlocked()

    def _check_unlocked(self) -> subprocess.CompletedProcess[str]:
        def check() -> subprocess.CompletedProcess[str] | None:
            done = self._check()
            return None if 'lock' in done.stderr else done

        return waiting.until(check, 'the lock of a disk')

    def _check(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(['qemu-img', 'check', '-q', str(self.path)],
                              capture_output=True, text=True)

    def write(self, changes: list[tuple[int, bytes]]) -> None:
        """Write bytes at offsets."""
        commands = []
        with tempfile.TemporaryDirectory() as directory:
            for number, (offset, data) in enumerate(changes):
                pattern = pathlib.Path(directory) / str(number)
                pattern.write_bytes(data)
                commands += ['-c', f'write -q -s {pattern} {offset} '
                             f'{len(data)}']
            subprocess.run(['qemu-io', '-f', 'qcow2', *commands,
                            str(self.path)], check=True)


DISKS = {'raw': RawDisk, 'qcow2': Qcow2Disk}


class Round:
    """A store, a disk, and what is known of every version."""

    def __init__(self, directory: pathlib.Path, seed: int,
                 disk_format: str = 'raw') -> None:
        self.directory = directory
        self.noise = random.Random(seed)
        self.disk = DISKS[disk_format](
            directory, self.noise.randbytes(BLOCKS * BLOCK))
        self.access = store_access.StoreAccess(
            file.FileStore(directory / 'store'))
        # Content by version, of those that must be there.
        self.known: dict[str, str] = {}
        self.counts = collections.Counter()
        # How long each kind takes undisturbed, in seconds.
        self.usual = dict(self.disk.usual)

    def request(self, alpha: float = 0.0) -> save_request.SaveRequest:
        """How the disk is saved."""
        return save_request.SaveRequest(
            self.disk.path, 'a', alpha=alpha, group_blocks=20,
            snapshotter=snapshots.for_stopped_guest(self.disk.path))

    def change(self, most: int = 60) -> None:
        """Write to some blocks of the disk."""
        self.disk.write([
            (self.noise.randrange(BLOCKS) * BLOCK,
             self.noise.randbytes(BLOCK))
            for _ in range(self.noise.randrange(1, most))])

    def run(self) -> None:
        """One round: start, kill, check."""
        kinds = ['save', 'save', 'prune', 'rollback', 'rebuild']
        kind = self.noise.choice(kinds if self.known else ['save'])
        getattr(self, f'_{kind}')()
        self._check_versions()

    def _kill(self, kind: str, work: Callable[[], object]) -> bool:
        """Do the work in a process and kill it; whether it was hit."""
        delay = self.noise.uniform(0, self.usual[kind] * 1.3)
        started = time.monotonic()
        child = forked.start(work)
        forked.wait(child, delay)
        forked.kill(child)
        _, status = os.waitpid(child, 0)
        self.disk.await_unlocked()
        if os.WIFSIGNALED(status):
            self.counts[f'{kind} killed'] += 1
            # Only those that finish tell how long it takes: do not let the
            # guess become so short that nothing gets far.
            self.usual[kind] *= 1.05
            return True
        return self._finished(kind, status, started)

    def _finished(self, kind: str, status: int, started: float) -> bool:
        if status != 0:
            raise Wrong(f'{kind} failed by itself: status {status}')
        took = time.monotonic() - started
        self.usual[kind] = took
        self.counts[f'{kind} finished'] += 1
        return False

    def _save(self) -> None:
        self.change()
        alpha = self.noise.choice([0.0, 0.0, 0.5, 1.0])
        content = self.disk.digest()
        token = self.noise.choice([None, f'save {self.noise.random()}'])

        def save() -> None:
            saving.save_disks(self.access, [self.request(alpha)],
                              token=token)

        hit = self._kill('save', save)
        made = self._take_new(content, needed=not hit)
        if made is None and token is not None:
            save()
            self._take_new(content, needed=True)
            self.counts['saves gone on with'] += 1

    def _take_new(self, content: str, needed: bool) -> str | None:
        """Note the version that the killed process may have completed."""
        head = heads.load(self.access.store)
        there = set(head.versions) if head else set()
        new = there - set(self.known)
        if len(new) > 1 or (needed and not new):
            raise Wrong(f'{len(new)} new versions after one save')
        for version in new:
            self.known[version] = content
            self.counts['versions completed'] += 1
            return version
        return None

    def _prune(self) -> None:
        versions = self.access.head().of_series('a')
        keep = self.noise.randrange(1, MOST_VERSIONS)
        policy = retention.Policy(last=keep)
        doomed = {each.id for each in retention.dropped(versions, policy)}
        rule = pruning.PruneRule(0.05, self.noise.choice((0, 9)))
        hit = self._kill('prune', lambda: pruning.prune(
            self.access, {None: policy}, rule))
        left = set(self.access.head().versions)
        wanted = set(self.known)
        if left not in (wanted, wanted - doomed) or (
                not hit and left != wanted - doomed):
            raise Wrong('a prune dropped something else than it was to')
        self.known = {each: self.known[each] for each in left}

    def _rollback(self) -> None:
        # So that writing takes a good part of the time.
        self.change(BLOCKS)
        before = self.disk.digest()
        target = self.noise.choice(sorted(self.known))
        self._kill('rollback', lambda: rollback.roll_back(
            self.access, target, self.request()))
        kept = self._take_new(before, needed=False)
        journal = rollback_journal.read(self.disk.path)
        if journal is None:
            if self.disk.digest() not in (before, self.known[target]):
                raise Wrong('a disk is neither state and no journal says so')
            return
        self.counts['rollbacks cut short'] += 1
        if kept is None or journal['kept'] != kept:
            raise Wrong('the state before a rollback is not kept')
        # Either state can be had: go on, or go back.
        self._check_versions()
        choice = self.noise.choice([target, kept])
        rollback.roll_back(self.access, choice, self.request())
        if self.disk.digest() != self.known[choice]:
            raise Wrong('a rollback that was taken up again went wrong')

    def _rebuild(self) -> None:
        self.change(BLOCKS)
        target = self.noise.choice(sorted(self.known))
        states = (self.disk.digest(), self.known[target])
        self._kill('rebuild', lambda: rollback.roll_back_disks(
            self.access, [(target, self.request())], rollback_plan.REBUILD))
        # The disk is one of both whatever happens; the journal may be there.
        if self.disk.digest() not in states:
            raise Wrong('a disk that is built anew is neither state')
        self._check_versions()
        rollback.roll_back_disks(self.access, [(target, self.request())],
                                 self.noise.choice(rollback_plan.METHODS))
        if self.disk.digest() != self.known[target]:
            raise Wrong('a restore that was taken up again went wrong')
        if rollback_journal.read(self.disk.path) is not None or any(
                'rebuilt' in path.name for path
                in self.disk.path.parent.iterdir()):
            raise Wrong('something is left of a restore that was done')

    def _check_versions(self) -> None:
        if not self.known:
            return
        head = self.access.head()
        if set(head.versions) != set(self.known):
            raise Wrong('a version is lost')
        result = verification.verify(self.access)
        if not result.intact:
            raise Wrong(f'the store is damaged: {result}')
        output = self.directory / 'restored'
        for version in self.noise.sample(sorted(self.known),
                                         min(2, len(self.known))):
            restoring.restore(self.access, version,
                              restoring.Output(output, 'raw'))
            if _digest(output) != self.known[version]:
                raise Wrong(f'version {version} is not what was saved')


def kill_often(directory: pathlib.Path, kills: int, seed: int,
               disk_format: str = 'raw') -> collections.Counter[str]:
    """Run rounds until this many processes were killed at work.

    :returns: how often what happened
    :raises Wrong: something that must hold does not
    """
    rounds = Round(directory, seed, disk_format)
    while sum(count for what, count in rounds.counts.items()
              if what.endswith('killed')) < kills:
        rounds.run()
        rounds.counts['rounds'] += 1
    return rounds.counts


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--kills', type=int, default=1000)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--format', choices=sorted(DISKS), default='raw',
                        help='format of the disk')
    parser.add_argument('--directory', type=pathlib.Path,
                        help='where to work; a new one if not given')
    args = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        counts = kill_often(pathlib.Path(directory), args.kills, args.seed,
                            args.format)
    print(json.dumps({
        **counts, 'format': args.format, 'seed': args.seed,
        'seconds': round(time.monotonic() - started, 1)}, indent=2))
    return 0


if __name__ == '__main__':
    sys.exit(main())
