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
"""Deleting versions, and pruning a store."""

import contextlib
import dataclasses
import functools
import logging
import math
import pathlib
import secrets
from typing import Any
from typing import Callable
from typing import Iterator
from typing import Sequence

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import blob_parts
from diffcache_openstack.versions.blobs import checksums
from diffcache_openstack.versions.store.access import shared_commits
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.indexes import hook_files
from diffcache_openstack.versions.store.upkeep import retention

LOG = logging.getLogger(__name__)

Progress = Callable[[int, int], object] | None
# Packs are rewritten when more than this part of their blocks is dead.
DEAD_SHARE = 0.2
# Blobs that a prune commits together.
_MOST_UPLOADS = 64
# Of a prune whose dead blocks saves refer to meanwhile.
_MOST_ATTEMPTS = 3


def delete(access: store_access.StoreAccess,
           names: Sequence[str]) -> list[str]:
    """Delete versions; :func:`prune` frees their space.

    Versions saved after them stay complete: no new full save is needed.

    :returns: ids of the deleted versions
    :raises NotFound: one does not exist; then none is deleted
    """
    with access.maintaining() as writing:
        head = writing.head or access.head()
        # Two names may be of one version.
        gone = list(dict.fromkeys(head.find(name).id for name in names))
        for version_id in gone:
            del head.versions[version_id]
        access.commit(head)
    return gone


@dataclasses.dataclass(frozen=True)
class PruneRule:
    """Which packs to rewrite."""

    # Those with a larger part of dead blocks.
    dead_share: float = DEAD_SHARE
    # Those that were compressed at a lower zstd level than this.
    level: int = 0
    # Those that are sealed with an earlier key than the one of this number.
    key: int = 0
    # At most this many bytes of these two.
    most_bytes: float = math.inf


@dataclasses.dataclass(frozen=True)
class Pruned:
    """The result of a prune, or of a dry run. Sizes in bytes."""

    versions_deleted: list[str]
    packs_removed: int
    packs_rewritten: int
    maps_removed: int
    bytes_before: int
    bytes_after: int
    dry_run: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, as the toolbox prints them."""
        return dataclasses.asdict(self)


def prune(access: store_access.StoreAccess,
          policies: dict[str | None, retention.Policy] | None = None,
          rule: PruneRule = PruneRule(), dry_run: bool = False,
          progress: Progress = None) -> Pruned:
    """Delete versions that no policy keeps, and free dead space.

    Blobs without live blocks are removed first, so that the others can be
    rewritten where there is little space.

    Where a save meanwhile refers to blocks that were dead, all begins again.

    :param policies: by series; None means all others
    :param rule: which packs to rewrite
    :raises NoSpace: no space could be freed
    :raises Busy: other writers changed the same
    """
    for _ in range(_MOST_ATTEMPTS - 1):
        try:
            return _prune(access, policies, rule, dry_run, progress)
        except shared_commits.Overtaken as exc:
            LOG.info('Pruning again: %s', exc)
    return _prune(access, policies, rule, dry_run, progress)


def _prune(access: store_access.StoreAccess,
           policies: dict[str | None, retention.Policy] | None,
           rule: PruneRule, dry_run: bool, progress: Progress) -> Pruned:
    with access.maintaining() as writing:
        staging, head = writing.staging, writing.head or access.head()
        before = head.bytes_stored()
        gone = _expired(head, policies or {})
        for version in gone:
            del head.versions[version.id]
        with access.opened(head, whole=True) as opened:
            pruning = _Pruning(access, head, opened, staging, rule)
            pruning.drop_dead()
            if dry_run:
                pruning.estimate()
            else:
                if gone or pruning.freed:
                    pruning.commit()
                pruning.rewrite(progress)
        if not dry_run:
            hook_files.maintain(access, head, staging)
    return Pruned([version.id for version in gone], pruning.removed,
                  pruning.rewritten, pruning.maps_removed, before,
                  head.bytes_stored(), dry_run)


def _expired(head: catalogue.Catalogue,
             policies: dict[str | None, retention.Policy]
             ) -> list[entries.Version]:
    found = []
    for series in sorted({version.series for version
                          in head.versions.values()}):
        policy = policies.get(series, policies.get(None))
        if policy is not None:
            found += retention.dropped(head.of_series(series), policy)
    return found


@dataclasses.dataclass(frozen=True)
class _Rewrite:
    """How to rewrite a pack."""

    write: Callable[..., _native.WrittenPack]
    # The zstd level for compression, and the least level of the new pack.
    level: int
    level_of_all: int


class _Pruning:
    """One prune: what is removed and what is rewritten."""

    def __init__(self, access: store_access.StoreAccess,
                 head: catalogue.Catalogue, opened: _native.BlockStore,
                 staging: pathlib.Path, rule: PruneRule) -> None:
        self._access = access
        self._head = head
        self._opened = opened
        self._staging = staging
        self._rule = rule
        self._token = secrets.token_hex(4)
        # Blobs to put, those that are there but not committed, and those to
        # remove after the next commit.
        self._uploads: list[tuple[str, pathlib.Path]] = []
        self._new: list[str] = []
        self._old: list[str] = []
        self._left = rule.most_bytes
        self.removed = self.rewritten = self.maps_removed = 0
        # Whether there are blobs that are not needed any more.
        self.freed = False
        # What to rewrite: packs by number, with their live blocks, and maps.
        self._packs: dict[int, _Rewrite] = {}
        self._live_blocks: dict[int, int] = {}
        self._maps: list[int] = []
        versions = list(head.versions.values())
        self._counted = set(head.versions)
        with native_errors.translated():
            self._live, known = opened.live(
                [version.root for version in versions])
        self._unreadable = [version for version, is_known
                            in zip(versions, known) if not is_known]
        for version in self._unreadable:
            LOG.warning('Not freeing what version %s of series %s may need, '
                        'a map of which is damaged or missing: restore that '
                        'from a copy of the store, or delete the version',
                        version.id, version.series)

    def _may_need_pack(self, pack: entries.Pack) -> bool:
        """Return whether a version may need a pack that it cannot name.

        A save refers to what was there before, and to what it writes; one that
        was resumed also to what was written since it took its number.
        """
        return any(pack.origin <= version.number or version.token is not None
                   for version in self._unreadable)

    def _may_need_map(self, number: int) -> bool:
        return any(number <= version.root[1] or version.token is not None
                   for version in self._unreadable)

    def drop_dead(self) -> None:
        """Drop packs, maps and indexes of base images that no version needs.

        The others are noted for :meth:`estimate` or :meth:`rewrite`.
        """
        for number, pack in list(self._head.packs.items()):
            if self._may_need_pack(pack):
                continue
            with native_errors.translated():
                live, dead = self._opened.need(number, self._live)
            if live == 0:
                self._drop(pack.blob, pack.index)
                del self._head.packs[number]
                self.removed += 1
            elif pack.index in self._opened.damage():
                continue
            elif how := self._choose(pack, dead / (live + dead)):
                self._packs[number] = how
                self._live_blocks[number] = live
        for number, blob in list(self._head.maps.items()):
            if self._may_need_map(number):
                continue
            with native_errors.translated():
                live, dead = self._opened.need_map(number, self._live)
            if live == 0:
                self._drop(blob.blob)
                del self._head.maps[number]
                self.maps_removed += 1
            elif dead > 0.5 * (live + dead):
                self._maps.append(number)
        needed = {version.base.id for version
                  in self._head.versions.values() if version.base}
        for base_id in set(self._head.bases) - needed:
            self._drop(self._head.bases.pop(base_id).blob)
        for version_id in (self._head.manifests.keys()
                           - self._head.versions.keys()):
            self._drop(self._head.manifests.pop(version_id).blob)

    def estimate(self) -> None:
        """Let the catalogue have the sizes that a rewrite would result in."""
        for number in self._packs:
            self._shrink(number, self._head.packs[number],
                         self._live_blocks[number])
        self.rewritten = len(self._packs)

    def rewrite(self, progress: Progress) -> None:
        """Rewrite what was chosen, and commit.

        What does not fit is attempted again once the blobs that were rewritten
        before are removed.

        :raises NoSpace: nothing was freed, and nothing fits
        """
        full = None
        for step in self._steps(progress):
            try:
                self._with_space(step)
                if len(self._uploads) >= _MOST_UPLOADS:
                    # What a save that refers to dead blocks undoes is little.
                    self.commit()
            except exceptions.NoSpace as exc:
                LOG.warning('Postponing a part of the prune: %s', exc)
                full = exc
            except (exceptions.IntegrityError,
                    exceptions.ObjectMissing) as exc:
                LOG.warning('Leaving a damaged part of the store as it is: '
                            '%s', exc)
        if self._uploads or self._new:
            self.commit()
        if full is not None and not self.freed:
            raise full

    def _with_space(self, step: Callable[[], None]) -> None:
        """Perform a step, if need be with what there was and the reserve."""
        try:
            step()
        except exceptions.NoSpace:
            if self._uploads or self._new:
                self.commit()
            self._spend_reserve()
            step()

    def _spend_reserve(self) -> None:
        """Give up what rewriting the largest pack may need of the reserve."""
        self._access.store.spend_reserve(self._head.largest_pack())

    def _steps(self, progress: Progress) -> Iterator[Callable[[], None]]:
        for number, how in self._packs.items():
            yield functools.partial(self._rewrite_pack, number, how, progress)
        for number in self._maps:
            yield functools.partial(self._rewrite_map, number)

    def _choose(self, pack: entries.Pack, dead_share: float
                ) -> _Rewrite | None:
        """Return how to rewrite a pack; None if it stays."""
        if pack.level < self._rule.level and self._left > 0:
            self._left -= pack.data_bytes
            level = max(self._access.level, self._rule.level)
            return _Rewrite(self._opened.repack, level, level)
        if pack.key < self._rule.key and self._left > 0:
            self._left -= pack.data_bytes
            level = max(self._access.level, pack.level)
            return _Rewrite(self._opened.repack, level, pack.level)
        if dead_share > self._rule.dead_share:
            level = max(self._access.level, pack.level)
            return _Rewrite(self._opened.compact, level, pack.level)
        return None

    def _drop(self, *blobs: str) -> None:
        self._old += blobs
        self.freed = True

    def _shrink(self, number: int, pack: entries.Pack, live: int) -> None:
        """Estimate the size of a pack that would be rewritten."""
        share = live / max(1, pack.blocks)
        self._head.packs[number] = dataclasses.replace(
            pack, blocks=live, data_bytes=round(pack.data_bytes * share),
            index_bytes=round(pack.index_bytes * share))

    def _rewrite_pack(self, number: int, how: _Rewrite, progress: Progress
                      ) -> None:
        pack = self._head.packs[number]
        with self._new_files(), native_errors.translated():
            written = how.write(number, self._live, self._staging, how.level,
                                progress=progress)
        entry = entries.Pack(
            blob=f'pack-{number:08d}-{self._token}',
            index=f'index-{number:08d}-{self._token}',
            generation=pack.generation + 1, origin=pack.origin,
            blocks=written.blocks, data_bytes=written.data_bytes,
            index_bytes=written.index_bytes, level=how.level_of_all,
            check=checksums.of_file(written.index),
            key=self._head.key_number)
        self._uploads += [(entry.blob, written.data),
                          (entry.index, written.index)]
        if pack.key != entry.key:
            # Its blocks have other names.
            self._uploads += hook_files.add(
                self._head, self._opened, [written.index],
                self._staging / f'hooks-{number}', self._token)
        self._drop(pack.blob, pack.index)
        self._head.packs[number] = entry
        self.rewritten += 1

    def _rewrite_map(self, number: int) -> None:
        with self._new_files(), native_errors.translated():
            path, size = self._opened.compact_map(number, self._live,
                                                  self._staging)
        entry = entries.Blob(f'map-{number:08d}-{self._token}', size,
                             checksums.of_file(path))
        self._uploads.append((entry.blob, path))
        self._drop(self._head.maps[number].blob)
        self._head.maps[number] = entry

    @contextlib.contextmanager
    def _new_files(self) -> Iterator[None]:
        """Remove the files that a failing block leaves half-written."""
        before = set(self._staging.iterdir())
        try:
            yield
        except BaseException:
            for path in set(self._staging.iterdir()) - before:
                path.unlink()
            raise

    def commit(self) -> None:
        """Commit the changes so far; remove old blobs only after that."""
        while self._uploads:
            self._access.store.put_file(*self._uploads[-1])
            self._new.append(self._uploads.pop()[0])
        # Saved since it was determined what is live.
        later = [version for name, version in self._head.versions.items()
                 if name not in self._counted]
        try:
            self._access.commit(self._head, self._new, later)
        except exceptions.NoSpace:
            self._spend_reserve()
            self._access.commit(self._head, self._new, later)
        self._new.clear()
        # Other parts of a blob may be needed still.
        for name in {*map(blob_parts.whole, self._old)} - self._head.blobs():
            self._access.store.delete(name)
        self._old.clear()
