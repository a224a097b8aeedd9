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
"""Copies of a store: one at another site, for instance.

A copy is a store itself, which only :func:`replicate` changes: it has a head
of the first store, and everything that this needs. It follows in steps, each
of which leaves the old head or the new one:

1. The blobs that the copy lacks are read from the first store, verified by
   what the catalogue says of them, and put. What an interrupted attempt has
   put stays.
2. A *mark* names the catalogue that is to be the next head.
3. The catalogue is put as it is, and both pointers are moved to it.
4. What only the former head needed is removed.

A head without a mark was written by someone else: then the store is no copy
any more, and is left alone.
"""

import contextlib
import dataclasses
import functools
import logging
import pathlib
import time
from typing import Any
from typing import Callable
from typing import Collection
from typing import NamedTuple

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store import blob_parts
from diffcache_openstack.versions.store import catalogue
from diffcache_openstack.versions.store import checksums
from diffcache_openstack.versions.store import commits
from diffcache_openstack.versions.store import local_files
from diffcache_openstack.versions.store import manifests
from diffcache_openstack.versions.store import orphans
from diffcache_openstack.versions.store import record_tables
from diffcache_openstack.versions.store import store_access
from diffcache_openstack.versions.store import upkeep

LOG = logging.getLogger(__name__)

# Parts of blobs take space on this host until these are closed.
_OPENED_UNITS = 512
_Check = Callable[[store_access.StoreAccess, _native.BlockStore],
                  list[upkeep.Damage]]


@dataclasses.dataclass(frozen=True)
class Lag:
    """What a copy lacks. Sizes in bytes."""

    versions: int
    bytes: int
    # When the oldest of the versions was saved, in UTC.
    oldest: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, as the toolbox prints them."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Replicated:
    """The result of a replication."""

    # What the copy lacked before.
    lag: Lag
    blobs_copied: int
    blobs_removed: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, as the toolbox prints them."""
        return {'versions_copied': self.lag.versions,
                'bytes_copied': self.lag.bytes,
                'blobs_copied': self.blobs_copied,
                'blobs_removed': self.blobs_removed}


@dataclasses.dataclass(frozen=True)
class Work:
    """How to replicate.

    :ivar report: gets the bytes done and in total; may raise to interrupt
    :ivar rate: bytes per second, on average; None for no limit
    """

    report: Callable[[int, int], object] = lambda done, total: None
    rate: float | None = None


@dataclasses.dataclass
class _Unit:
    """Blobs that are verified together, such as a pack and its index."""

    blobs: set[str] = dataclasses.field(default_factory=set)
    checks: list[_Check] = dataclasses.field(default_factory=list)
    bytes: int = 0


def lag(source: catalogue.Catalogue, copy: base.BlobStore) -> Lag:
    """Return what a copy of a store lacks.

    :param source: the head of the store
    :raises Conflict: it is not a copy of that store, or is ahead of it
    """
    return _lag(source, _head_of(copy, source))


def replicate(access: store_access.StoreAccess, copy: base.BlobStore,
              work: Work = Work()) -> Replicated:
    """Have a copy follow a store.

    After an interruption the same call resumes.

    :param access: to the first store, which is only read
    :raises NotFound: the first store has no versions
    :raises Conflict: the other one is not a copy of it, or is ahead of it
    :raises IntegrityError: blobs that the copy lacks are damaged or missing;
        the others are copied, and the copy's head stays
    """
    with copy.lock():
        return _follow(access, copy, work, marks=True)


def rebuild(access: store_access.StoreAccess, target: base.BlobStore,
            work: Work = Work()) -> Replicated:
    """Create a store that was lost from a copy of it.

    After an interruption the same call resumes.

    :param access: to the copy, which is only read
    :param target: must be empty
    :raises Conflict: it is not
    """
    with target.lock():
        if commits.load(target) is not None:
            raise exceptions.Conflict(
                'The store that is to be rebuilt has versions: it is '
                'overwritten by nothing. Remove all of it first.')
        return _follow(access, target, work, marks=False)


def repair(access: store_access.StoreAccess, copy: base.BlobStore,
           damaged: Collection[str]) -> list[str]:
    """Replace damaged or missing blobs of a store by those of a copy.

    :param access: to the store
    :param damaged: names of blobs
    :returns: the names of those that were replaced
    """
    with access.store.lock(base.MAINTENANCE):
        head = access.head()
        copying = _Copying(
            head, store_access.StoreAccess(copy, access.key), access.store,
            Work())
        try:
            copying.copy(head.blobs() & set(map(blob_parts.whole, damaged)),
                         replaces=True)
        except exceptions.IntegrityError as exc:
            LOG.error('Could not repair a store from its copy: %s', exc)
        access.store.flush()
    for name in copying.copied:
        LOG.warning('Blob %s was damaged or missing, and is repaired from the '
                    'copy of the store', name)
    return copying.copied


def _follow(access: store_access.StoreAccess, target: base.BlobStore,
            work: Work, marks: bool) -> Replicated:
    """Copy the head of a store; with marks to a copy, else to a new store."""
    while True:
        head = access.head()
        # Now: only the last ones are kept while blobs are copied.
        data = _data_of(access.store, head)
        old = _head_of(target, head) if marks else None
        _remove_former(target, old)
        lacking = _lag(head, old)
        copying = _Copying(head, access, target, work)
        if old is None or old.number != head.number:
            try:
                copying.copy(_missing(head, old))
            except exceptions.IntegrityError:
                if access.head().number == head.number:
                    raise
                LOG.info('Restarting the replication: the store was changed '
                         'meanwhile')
                continue
            if old is None:
                _copy_key_ids(access.store, target)
            _commit(target, head, data, old, marks)
        removed = _remove_former(target, head)
        orphans.remove(target, head, (), is_complete=True)
        return Replicated(lacking, len(copying.copied), removed)


def _missing(head: catalogue.Catalogue, old: catalogue.Catalogue | None
             ) -> set[str]:
    return head.blobs() - (old.blobs() if old else set())


def _lag(head: catalogue.Catalogue, old: catalogue.Catalogue | None) -> Lag:
    missing = [version for version in head.versions.values()
               if old is None or version.id not in old.versions]
    return Lag(len(missing),
               sum(unit.bytes for unit in _units(head, _missing(head, old))),
               min((each.created_at for each in missing), default=None))


def _head_of(copy: base.BlobStore, source: catalogue.Catalogue
             ) -> catalogue.Catalogue | None:
    """Return the head of a copy, from which it may follow a store.

    :raises Conflict: it may not
    """
    head = commits.load(copy)
    if head is None:
        store_access.StoreAccess(copy).refuse_foreign()
        return None
    if head.store_id != source.store_id:
        found = f'has versions of another store ({head.store_id})'
    elif _mark_of(head) not in _marks(copy).values():
        found = 'was changed by another writer, and is no copy any more'
    elif (head.number > source.number
            or head.number == source.number and head.digest != source.digest):
        found = (f'is ahead of the store: it has catalogue {head.number}, and '
                 f'the store {source.number}')
    elif other := _diverged(head, source):
        found = (f'has version {other}, in whose place the store has another '
                 f'one: the store was put back to an earlier state, and saved '
                 f'to since')
    else:
        return head
    raise exceptions.Conflict(
        f'The copy {found}. It is not overwritten: name another place for the '
        f'copy, or remove all of it if none of its versions is needed.')


def _diverged(copy: catalogue.Catalogue, source: catalogue.Catalogue
              ) -> str | None:
    """Return a version of a copy whose number another one of the store has."""
    return next((
        version.id for number, version in copy.versions.table.items()
        if (now := source.versions.table.get(number)) is not None
        and now.id != version.id), None)


def _mark_of(head: catalogue.Catalogue) -> tuple[int, str]:
    return head.number, head.digest


def _marks(copy: base.BlobStore) -> dict[str, tuple[int, str]]:
    """Return number and digest of the catalogues that were copied, by marks.

    One may be of an attempt that was interrupted before its catalogue was put.
    """
    found = {}
    for name in commits.COPIED:
        # One that is damaged was about to be replaced.
        with contextlib.suppress(exceptions.NotFound,
                                 exceptions.IntegrityError, ValueError):
            number, digest = checksums.strip(
                copy.read(name), name).decode().split()
            found[name] = int(number), digest
    return found


def _data_of(store: base.BlobStore, head: catalogue.Catalogue) -> bytes:
    """Return the bytes of the head, as they are stored.

    :raises Busy: there are many later ones by now
    """
    name = commits.blob_name(head.number)
    with contextlib.suppress(exceptions.NotFound):
        data = store.read(name)
        if catalogue.digest_of(data) == head.digest:
            return data
    raise exceptions.Busy(f'{name} was replaced meanwhile: try again.')


def _copy_key_ids(source: base.BlobStore, target: base.BlobStore) -> None:
    for name in commits.KEY_BLOBS:
        with contextlib.suppress(exceptions.NotFound):
            target.replace(name, source.read(name))


def _commit(target: base.BlobStore, head: catalogue.Catalogue, data: bytes,
            old: catalogue.Catalogue | None, marks: bool) -> None:
    """Have a catalogue, whose blobs are there, be the head."""
    target.flush()
    if marks:
        kept = old and _mark_of(old)
        present = _marks(target)
        free = next(each for each in commits.COPIED
                    if kept is None or present.get(each) != kept)
        target.replace(free, checksums.append(
            f'{head.number} {head.digest}'.encode()))
    target.replace(commits.blob_name(head.number), data)
    commits.adopt(target, head)


def _remove_former(target: base.BlobStore,
                   head: catalogue.Catalogue | None) -> int:
    """Remove what only other heads of a copy needed; return how many blobs.

    The blobs of one that was not completed stay, for the next attempt.
    """
    if head is not None:
        commits.adopt(target, head)
    gone: set[str] = set()
    for number, _digest in _marks(target).values():
        if head is not None and number == head.number:
            continue
        if head is not None and number < head.number:
            with contextlib.suppress(exceptions.NotFound,
                                     exceptions.IntegrityError):
                former = commits.try_read(target, number)
                gone |= former.blobs() - head.blobs() if former else set()
        # Segments of the catalogue are needed to find the others.
        for name in sorted(gone, key=lambda each: each.startswith('records')):
            target.delete(name)
        target.delete(commits.blob_name(number))
    return len(gone)


def _units(head: catalogue.Catalogue, names: set[str]) -> list[_Unit]:
    """Return some blobs of a catalogue, and what verifies them."""
    found: dict[str, _Unit] = {}

    def add(check: _Check, size: int, *blobs: str) -> None:
        whole = [blob_parts.whole(each) for each in blobs]
        if names.isdisjoint(whole):
            return
        unit = found.setdefault(whole[0], _Unit())
        unit.blobs.update(whole)
        unit.checks.append(check)
        unit.bytes += size

    for number, pack in head.packs.items():
        add(functools.partial(_check_pack, number, pack),
            catalogue.bytes_of(pack), pack.blob, pack.index)
    checks: list[tuple[Any, Any]] = [
        (head.maps, upkeep.verify_map), (head.bases, upkeep.verify_base),
        (head.hooks, upkeep.verify_hooks)]
    for records, verify in checks:
        for key, blob in records.items():
            add(functools.partial(_check_blob, verify, key, blob), blob.bytes,
                blob.blob)
    for blob in head.manifests.values():
        add(functools.partial(_check_manifest, blob), blob.bytes, blob.blob)
    for table in head.tables():
        for segment in table.segments:
            for name in segment.blobs:
                add(functools.partial(_check_segment, segment, name), 0, name)
    return list(found.values())


def _check_pack(number: int, pack: catalogue.Pack,
                access: store_access.StoreAccess, opened: _native.BlockStore
                ) -> list[upkeep.Damage]:
    damage, _slots = upkeep.verify_pack(access, opened, number, pack)
    # Its files are not kept open.
    opened.remove_pack(number)
    return damage


def _check_blob(verify: Callable[..., list[upkeep.Damage]], key: int | str,
                blob: catalogue.Blob, access: store_access.StoreAccess,
                opened: _native.BlockStore) -> list[upkeep.Damage]:
    return verify(opened, key, blob)


def _check_manifest(blob: catalogue.Blob, access: store_access.StoreAccess,
                    opened: _native.BlockStore) -> list[upkeep.Damage]:
    reason = manifests.damage(access, blob)
    return [upkeep.Damage(blob.blob, reason)] if reason else []


def _check_segment(segment: record_tables.Segment, name: str,
                   access: store_access.StoreAccess,
                   opened: _native.BlockStore) -> list[upkeep.Damage]:
    record_tables.decode(access.store.read(name), segment)
    return []


class _Copying:
    """Copies blobs that a catalogue names, and verifies them before.

    :ivar copied: the names of those that were put
    :param access: to the store that they are read from
    """

    def __init__(self, head: catalogue.Catalogue,
                 access: store_access.StoreAccess, target: base.BlobStore,
                 work: Work) -> None:
        self._head = head
        self._access = access
        self._target = target
        self._work = work
        self.copied: list[str] = []
        self._damage: list[upkeep.Damage] = []
        self._started = time.monotonic()
        # Bytes: of the units that were seen, of all, and of those copied.
        self._done = self._total = self._paced = 0

    def copy(self, names: set[str], replaces: bool = False) -> None:
        """Copy blobs; those that an earlier attempt has put stay.

        :param replaces: whether those that are there are replaced
        :raises IntegrityError: some are damaged or missing, and are not copied
        """
        units = _units(self._head, names)
        self._total = sum(unit.bytes for unit in units)
        for at in range(0, len(units), _OPENED_UNITS):
            with self._target.staging() as staging:
                local = store_access.StoreAccess(
                    file.FileStore.existing(staging), self._access.key)
                with local.lenient(self._head) as opened:
                    for unit in units[at:at + _OPENED_UNITS]:
                        self._copy(unit, names, replaces,
                                   _Local(local, opened, staging))
        if self._damage:
            raise exceptions.IntegrityError(
                f'{len(self._damage)} parts of the store are damaged or '
                f'missing, and are not copied: '
                f'{"; ".join(map(_shown, self._damage[:10]))}')

    def _report(self) -> None:
        self._work.report(self._done, self._total)

    def _copy(self, unit: _Unit, names: set[str], replaces: bool,
              local: '_Local') -> None:
        self._report()
        self._done += unit.bytes
        wanted = unit.blobs & names
        there = {name for name in wanted if self._target.exists(name)}
        if there == wanted and self._target.atomic and not replaces:
            return
        if damage := self._fetch(unit, local):
            self._damage += damage
        else:
            for name in sorted(wanted):
                if name in there:
                    self._target.delete(name)
                self._target.put_file(name, local.staging / name)
                self.copied.append(name)
        for name in unit.blobs:
            (local.staging / name).unlink(missing_ok=True)
        self._paced += unit.bytes
        if self._work.rate:
            threads.pause(self._started + self._paced / self._work.rate,
                          self._report)

    def _fetch(self, unit: _Unit, local: '_Local') -> list[upkeep.Damage]:
        """Read blobs into files; return what is wrong with them."""
        source, name = self._access.store, ''
        try:
            for name in sorted(unit.blobs):
                local_files.copy(source, name, local.staging / name,
                                 source.size(name))
            return [each for check in unit.checks
                    for each in check(local.access, local.opened)]
        except (exceptions.PermanentError, exceptions.IntegrityError) as exc:
            return [upkeep.Damage(name, str(exc))]


def _shown(damage: upkeep.Damage) -> str:
    return f'{damage.object}: {damage.reason}'


class _Local(NamedTuple):
    """Blobs in files of this host, and how they are read."""

    access: store_access.StoreAccess
    opened: _native.BlockStore
    staging: pathlib.Path
