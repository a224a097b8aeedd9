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
"""Looking after a store: deleting versions, giving back space, scrubbing."""

import dataclasses
import logging
import math
import pathlib
import secrets
from typing import Any
from typing import Callable
from typing import Sequence

from diffcache_openstack import _native
from diffcache_openstack.blocks import native as native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import heads
from diffcache_openstack.versions import repository
from diffcache_openstack.versions import retention

LOG = logging.getLogger(__name__)

Progress = Callable[[int, int], object] | None
# Packs are written anew when more than this part of their blocks is dead.
DEAD_SHARE = 0.2


def delete(repo: repository.Repository, names: Sequence[str]) -> list[str]:
    """Forget versions; :func:`prune` gives their space back.

    Others that were saved after them stay whole: no new full is needed.

    :returns: ids of the versions that are gone
    :raises NotFound: one does not exist; none is deleted then
    """
    with repo.writing():
        head = repo.head()
        gone = [head.find(name).id for name in names]
        for version_id in gone:
            head.versions.pop(version_id, None)
        repo.commit(head)
    return gone


@dataclasses.dataclass(frozen=True)
class Rule:
    """Which packs are written anew."""

    # Those with a larger part of dead blocks.
    dead_share: float = DEAD_SHARE
    # Those that were compressed at a lower zstd level than this.
    level: int = 0
    # But of these no more bytes at a time, as nobody can save meanwhile.
    most_bytes: float = math.inf


@dataclasses.dataclass(frozen=True)
class Pruned:
    """What pruning did, or would do. Sizes in bytes."""

    versions_deleted: list[str]
    packs_removed: int
    packs_rewritten: int
    maps_removed: int
    bytes_before: int
    bytes_after: int
    dry_run: bool

    def to_dict(self) -> dict[str, Any]:
        """The fields, as the toolbox prints them."""
        return dataclasses.asdict(self)


def prune(repo: repository.Repository,
          policies: dict[str | None, retention.Policy] | None = None,
          rule: Rule = Rule(), dry_run: bool = False,
          progress: Progress = None) -> Pruned:
    """Drop the versions that no policy keeps, and give back the space.

    :param policies: by series; None stands for all others
    :param rule: which packs are written anew
    """
    with repo.writing() as staging:
        head = repo.head()
        before = head.bytes_stored()
        gone = _expired(head, policies or {})
        for version in gone:
            del head.versions[version.id]
        with repo.opened(head) as opened:
            pruning = _Pruning(repo, head, opened, staging, rule)
            pruning.packs(dry_run, progress)
            pruning.maps(dry_run)
            pruning.bases()
        if not dry_run:
            pruning.commit()
    return Pruned([version.id for version in gone], pruning.removed,
                  pruning.rewritten, pruning.maps_removed, before,
                  head.bytes_stored(), dry_run)


def _expired(head: heads.Head,
             policies: dict[str | None, retention.Policy]
             ) -> list[heads.Version]:
    found = []
    for series in sorted({version.series for version
                          in head.versions.values()}):
        policy = policies.get(series, policies.get(None))
        if policy is not None:
            found += retention.dropped(head.of_series(series), policy)
    return found


@dataclasses.dataclass(frozen=True)
class _Way:
    """How a pack is written anew."""

    write: Callable[..., dict[str, Any]]
    # The zstd level of what is compressed, and that all of it has at least.
    level: int
    level_of_all: int


class _Pruning:
    """One prune: what is dropped and what is written anew."""

    def __init__(self, repo: repository.Repository, head: heads.Head,
                 opened: _native.VersionStore, staging: pathlib.Path,
                 rule: Rule) -> None:
        self._repo = repo
        self._head = head
        self._opened = opened
        self._staging = staging
        self._rule = rule
        self._token = secrets.token_hex(4)
        self._puts: list[tuple[str, pathlib.Path]] = []
        self._old: list[str] = []
        self._left = rule.most_bytes
        self.removed = self.rewritten = self.maps_removed = 0
        roots = [version.root for version in head.versions.values()]
        with native_errors.translated():
            self._live = opened.live(roots)

    def packs(self, dry_run: bool, progress: Progress) -> None:
        """Drop dead packs, and write those with many dead blocks anew."""
        for number, pack in list(self._head.packs.items()):
            live, dead = self._opened.need(number, self._live)
            if live == 0:
                self._drop(pack.blob, pack.index)
                del self._head.packs[number]
                self.removed += 1
                continue
            way = self._way(pack, dead / (live + dead))
            if way is None:
                continue
            self.rewritten += 1
            if dry_run:
                self._shrink(number, pack, live)
            else:
                self._rewrite(number, pack, way, progress)

    def _way(self, pack: heads.Pack, dead_share: float) -> _Way | None:
        """How a pack is to be written anew; None if it is to stay."""
        if pack.level < self._rule.level and self._left > 0:
            self._left -= pack.data_bytes
            level = max(self._repo.level, self._rule.level)
            return _Way(self._opened.repack, level, level)
        if dead_share > self._rule.dead_share:
            level = max(self._repo.level, pack.level)
            return _Way(self._opened.compact, level, pack.level)
        return None

    def _drop(self, *blobs: str) -> None:
        self._old += blobs

    def _shrink(self, number: int, pack: heads.Pack, live: int) -> None:
        """Tell about what a pack would take that is written anew."""
        share = live / max(1, pack.blocks)
        self._head.packs[number] = dataclasses.replace(
            pack, blocks=live, data_bytes=round(pack.data_bytes * share),
            index_bytes=round(pack.index_bytes * share))

    def _rewrite(self, number: int, pack: heads.Pack, way: _Way,
                 progress: Progress) -> None:
        with native_errors.translated():
            written = way.write(number, self._live, self._staging, way.level,
                                progress=progress)
        entry = heads.Pack(
            blob=f'pack-{number:08d}-{self._token}',
            index=f'index-{number:08d}-{self._token}',
            generation=pack.generation + 1, origin=pack.origin,
            blocks=written['blocks'], data_bytes=written['data_bytes'],
            index_bytes=written['index_bytes'], level=way.level_of_all)
        self._puts += [(entry.blob, written['data']),
                       (entry.index, written['index'])]
        self._drop(pack.blob, pack.index)
        self._head.packs[number] = entry

    def maps(self, dry_run: bool) -> None:
        """The same for maps."""
        for number, blob in list(self._head.maps.items()):
            with native_errors.translated():
                live, dead = self._opened.need_map(number, self._live)
            if live == 0:
                self._drop(blob.blob)
                del self._head.maps[number]
                self.maps_removed += 1
            elif dead > 0.5 * (live + dead) and not dry_run:
                with native_errors.translated():
                    path, size = self._opened.compact_map(
                        number, self._live, self._staging)
                entry = heads.Blob(f'map-{number:08d}-{self._token}', size)
                self._puts.append((entry.blob, path))
                self._drop(blob.blob)
                self._head.maps[number] = entry

    def bases(self) -> None:
        """Drop indexes of base images that no version lies on."""
        needed = {version.base.id for version
                  in self._head.versions.values() if version.base}
        for base_id in set(self._head.bases) - needed:
            self._drop(self._head.bases.pop(base_id).blob)

    def commit(self) -> None:
        """Make it count; only then what is dead goes."""
        for name, path in self._puts:
            self._repo.store.put_file(name, path)
        self._repo.commit(self._head)
        for name in self._old:
            self._repo.store.delete(name)


@dataclasses.dataclass(frozen=True)
class Damage:
    """One object that is damaged or missing."""

    object: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Verified:
    """What scrubbing found."""

    packs_checked: int
    bytes_checked: int
    damage: list[Damage]
    versions_damaged: list[str]
    orphans: int

    @property
    def intact(self) -> bool:
        """Nothing is damaged."""
        return not self.damage and not self.versions_damaged


def verify(repo: repository.Repository, progress: Progress = None
           ) -> Verified:
    """Read everything in the store; name what is damaged and whom it hits.

    What a prune removed or wrote anew meanwhile is not taken for damage: then
    all is read again.

    :raises IntegrityError: the last head itself is damaged: nothing can be
        said of versions then
    """
    while True:
        head = repo.head()
        result = _verify(repo, head, progress)
        gone = head.blobs() - repo.head().blobs()
        if gone.isdisjoint(damage.object for damage in result.damage):
            return result
        LOG.info('The store was pruned while it was verified: that begins '
                 'again')


def _verify(repo: repository.Repository, head: heads.Head,
            progress: Progress) -> Verified:
    found = [Damage(reason.split(' ', 1)[0], reason)
             for reason in heads.damaged_bookkeeping(repo.store, head)]
    slots: dict[int, set[int]] = {}
    checked = 0
    with repo.lenient(head) as (opened, broken):
        found += [Damage(name, reason) for name, reason in broken.items()]
        for number, pack in head.packs.items():
            checked += pack.data_bytes + pack.index_bytes
            if pack.index in broken:
                continue
            damage, bad = _verify_pack(repo, opened, number, pack, progress)
            found += damage
            if bad is None:
                bad = set(range(pack.blocks))
            slots[number] = bad
        for number, blob in head.maps.items():
            checked += blob.bytes
            if blob.blob not in broken:
                found += _verify_map(opened, number, blob)
        versions = list(head.versions.values())
        with native_errors.translated():
            hits = opened.hits([version.root for version in versions], slots)
    return Verified(
        len(head.packs), checked, found,
        [version.id for version, hit in zip(versions, hits) if hit],
        len(repo.orphans(head)))


def _verify_pack(repo: repository.Repository, opened: _native.VersionStore,
                 number: int, pack: heads.Pack, progress: Progress
                 ) -> tuple[list[Damage], set[int] | None]:
    try:
        size = repo.store.size(pack.blob)
        with native_errors.translated():
            reasons, bad = opened.verify_pack(number, size, progress=progress)
    except (exceptions.NotFound, exceptions.ObjectMissing) as exc:
        return [Damage(pack.blob, str(exc))], None
    return [Damage(pack.blob, reason) for reason in reasons], set(bad)


def _verify_map(opened: _native.VersionStore, number: int, blob: heads.Blob
                ) -> list[Damage]:
    try:
        with native_errors.translated():
            opened.verify_map(number)
    except (exceptions.IntegrityError, exceptions.ObjectMissing,
            OSError) as exc:
        return [Damage(blob.blob, str(exc))]
    return []
