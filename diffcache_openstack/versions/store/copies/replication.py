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
import logging
from typing import Any
from typing import Collection

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import blob_parts
from diffcache_openstack.versions.blobs import checksums
from diffcache_openstack.versions.store.access import orphans
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.copies import blob_copying

LOG = logging.getLogger(__name__)


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


def lag(source: catalogue.Catalogue, copy: base.BlobStore) -> Lag:
    """Return what a copy of a store lacks.

    :param source: the head of the store
    :raises Conflict: it is not a copy of that store, or is ahead of it
    """
    return _lag(source, _head_of(copy, source))


def replicate(access: store_reader.StoreReader, copy: base.BlobStore,
              work: blob_copying.Work = blob_copying.Work()) -> Replicated:
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


def rebuild(access: store_reader.StoreReader, target: base.BlobStore,
            work: blob_copying.Work = blob_copying.Work()) -> Replicated:
    """Create a store that was lost from a copy of it.

    After an interruption the same call resumes.

    :param access: to the copy, which is only read
    :param target: must be empty
    :raises Conflict: it is not
    """
    with target.lock():
        if heads.load(target) is not None:
            raise exceptions.Conflict(
                'The store that is to be rebuilt has versions: it is '
                'overwritten by nothing. Remove all of it first.')
        return _follow(access, target, work, marks=False)


def repair(access: store_reader.StoreReader, copy: base.BlobStore,
           damaged: Collection[str]) -> list[str]:
    """Replace damaged or missing blobs of a store by those of a copy.

    :param access: to the store
    :param damaged: names of blobs
    :returns: the names of those that were replaced
    """
    with access.store.lock(base.MAINTENANCE):
        head = access.head()
        copying = blob_copying.Copying(
            head, store_reader.StoreReader(copy, access.key), access.store,
            blob_copying.Work())
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


def _follow(access: store_reader.StoreReader, target: base.BlobStore,
            work: blob_copying.Work, marks: bool) -> Replicated:
    """Copy the head of a store; with marks to a copy, else to a new store."""
    while True:
        head = access.head()
        # Now: only the last ones are kept while blobs are copied.
        data = _data_of(access.store, head)
        old = _head_of(target, head) if marks else None
        _remove_former(target, old)
        lacking = _lag(head, old)
        copying = blob_copying.Copying(head, access, target, work)
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
               sum(unit.bytes for unit in blob_copying.units(
                   head, _missing(head, old))),
               min((each.created_at for each in missing), default=None))


def _head_of(copy: base.BlobStore, source: catalogue.Catalogue
             ) -> catalogue.Catalogue | None:
    """Return the head of a copy, from which it may follow a store.

    :raises Conflict: it may not
    """
    head = heads.load(copy)
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
    for name in blob_names.COPIED:
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
    name = blob_names.of_head(head.number)
    with contextlib.suppress(exceptions.NotFound):
        data = store.read(name)
        if catalogue.digest_of(data) == head.digest:
            return data
    raise exceptions.Busy(f'{name} was replaced meanwhile: try again.')


def _copy_key_ids(source: base.BlobStore, target: base.BlobStore) -> None:
    for name in blob_names.KEY_BLOBS:
        with contextlib.suppress(exceptions.NotFound):
            target.replace(name, source.read(name))


def _commit(target: base.BlobStore, head: catalogue.Catalogue, data: bytes,
            old: catalogue.Catalogue | None, marks: bool) -> None:
    """Have a catalogue, whose blobs are there, be the head."""
    target.flush()
    if marks:
        kept = old and _mark_of(old)
        present = _marks(target)
        free = next(each for each in blob_names.COPIED
                    if kept is None or present.get(each) != kept)
        target.replace(free, checksums.append(
            f'{head.number} {head.digest}'.encode()))
    target.replace(blob_names.of_head(head.number), data)
    heads.adopt(target, head)


def _remove_former(target: base.BlobStore,
                   head: catalogue.Catalogue | None) -> int:
    """Remove what only other heads of a copy needed; return how many blobs.

    The blobs of one that was not completed stay, for the next attempt.
    """
    if head is not None:
        heads.adopt(target, head)
    gone: set[str] = set()
    for number, _digest in _marks(target).values():
        if head is not None and number == head.number:
            continue
        if head is not None and number < head.number:
            with contextlib.suppress(exceptions.NotFound,
                                     exceptions.IntegrityError):
                former = heads.try_read(target, number)
                gone |= former.blobs() - head.blobs() if former else set()
        # Segments of the catalogue are needed to find the others.
        for name in sorted(gone, key=lambda each: each.startswith('records')):
            target.delete(name)
        target.delete(blob_names.of_head(number))
    return len(gone)
