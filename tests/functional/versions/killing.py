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

Each round starts a process that saves, prunes or rolls back, kills it with
SIGKILL after a random time, and checks everything that must hold: no version
is lost or changed, the store is intact, and a disk in the middle of a
rollback can become either state.

``python -m tests.functional.versions.killing --kills 1000 --directory DIR``
runs as many rounds as it takes for so many kills to hit a running process.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time
from typing import Callable

from diffcache_openstack.store import file
from diffcache_openstack.versions import heads
from diffcache_openstack.versions import repository
from diffcache_openstack.versions import restoring
from diffcache_openstack.versions import retention
from diffcache_openstack.versions import rollback
from diffcache_openstack.versions import saving
from diffcache_openstack.versions import upkeep

BLOCK = 4096
BLOCKS = 600
# More would only make checking slow.
MOST_VERSIONS = 6


class Wrong(Exception):
    """Something that must hold does not."""


def _digest(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Round:
    """A store, a disk, and what is known of every version."""

    def __init__(self, directory: pathlib.Path, seed: int) -> None:
        self.directory = directory
        self.noise = random.Random(seed)
        self.disk = directory / 'disk'
        self.disk.write_bytes(self.noise.randbytes(BLOCKS * BLOCK))
        self.repo = repository.Repository(
            file.FileStore(directory / 'store'))
        # Content by version, of those that must be there.
        self.known: dict[str, str] = {}
        self.counts = collections.Counter()
        # How long each kind takes undisturbed, in seconds.
        self.usual = {'save': 0.05, 'prune': 0.05, 'rollback': 0.08}

    def request(self, alpha: float = 0.0) -> saving.Request:
        """How the disk is saved."""
        return saving.Request(self.disk, 'a', alpha=alpha, group_blocks=20)

    def change(self, most: int = 60) -> None:
        """Write to some blocks of the disk."""
        with open(self.disk, 'r+b') as stream:
            for _ in range(self.noise.randrange(1, most)):
                stream.seek(self.noise.randrange(BLOCKS) * BLOCK)
                stream.write(self.noise.randbytes(BLOCK))

    def run(self) -> None:
        """One round: start, kill, check."""
        kinds = ['save', 'save', 'prune', 'rollback']
        kind = self.noise.choice(kinds if self.known else ['save'])
        getattr(self, f'_{kind}')()
        self._check_versions()

    def _kill(self, kind: str, work: Callable[[], object]) -> bool:
        """Do the work in a process and kill it; whether it was hit."""
        delay = self.noise.uniform(0, self.usual[kind] * 1.3)
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work()
                status = 0
            finally:
                os._exit(status)
        while time.monotonic() - started < delay:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return self._finished(kind, status, started)
            time.sleep(0.0005)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
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
        content = _digest(self.disk)
        hit = self._kill('save', lambda: saving.save(self.repo,
                                                     self.request(alpha)))
        self._take_new(content, needed=not hit)

    def _take_new(self, content: str, needed: bool) -> str | None:
        """Note the version that the killed process may have completed."""
        head = heads.load(self.repo.store)
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
        versions = self.repo.head().of_series('a')
        keep = self.noise.randrange(1, MOST_VERSIONS)
        policy = retention.Policy(last=keep)
        doomed = {each.id for each in retention.dropped(versions, policy)}
        hit = self._kill('prune', lambda: upkeep.prune(
            self.repo, {None: policy}, dead_share=0.05))
        left = set(self.repo.head().versions)
        wanted = set(self.known)
        if left not in (wanted, wanted - doomed) or (
                not hit and left != wanted - doomed):
            raise Wrong('a prune dropped something else than it was to')
        self.known = {each: self.known[each] for each in left}

    def _rollback(self) -> None:
        # So that writing takes a good part of the time.
        self.change(BLOCKS)
        before = _digest(self.disk)
        target = self.noise.choice(sorted(self.known))
        self._kill('rollback', lambda: rollback.roll_back(
            self.repo, target, self.request()))
        kept = self._take_new(before, needed=False)
        journal = rollback.interrupted(self.disk)
        if journal is None:
            if _digest(self.disk) not in (before, self.known[target]):
                raise Wrong('a disk is neither state and no journal says so')
            return
        self.counts['rollbacks cut short'] += 1
        if kept is None or journal['kept'] != kept:
            raise Wrong('the state before a rollback is not kept')
        # Either state can be had: go on, or go back.
        self._check_versions()
        choice = self.noise.choice([target, kept])
        rollback.roll_back(self.repo, choice, self.request())
        if _digest(self.disk) != self.known[choice]:
            raise Wrong('a rollback that was taken up again went wrong')

    def _check_versions(self) -> None:
        if not self.known:
            return
        head = self.repo.head()
        if set(head.versions) != set(self.known):
            raise Wrong('a version is lost')
        result = upkeep.verify(self.repo)
        if not result.intact:
            raise Wrong(f'the store is damaged: {result}')
        output = self.directory / 'restored'
        for version in self.noise.sample(sorted(self.known),
                                         min(2, len(self.known))):
            restoring.restore(self.repo, version,
                              restoring.Output(output, 'raw'))
            if _digest(output) != self.known[version]:
                raise Wrong(f'version {version} is not what was saved')


def kill_often(directory: pathlib.Path, kills: int, seed: int
               ) -> collections.Counter[str]:
    """Run rounds until so many processes were killed at work.

    :returns: how often what happened
    :raises Wrong: something that must hold does not
    """
    rounds = Round(directory, seed)
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
    parser.add_argument('--directory', type=pathlib.Path,
                        help='where to work; a new one if not given')
    args = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        counts = kill_often(pathlib.Path(directory), args.kills, args.seed)
    print(json.dumps({**counts, 'seed': args.seed, 'seconds': round(
        time.monotonic() - started, 1)}, indent=2))
    return 0


if __name__ == '__main__':
    sys.exit(main())
