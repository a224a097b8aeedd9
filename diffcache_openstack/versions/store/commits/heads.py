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
"""Commits of catalogues, and the last one: a store's head.

A change is made by writing the blobs that it needs, then the next catalogue:
before that the store is as it was, after that it is changed, and there is no
state between. Two small pointers have the number of the head; either may be
one behind.
"""

import contextlib
import logging

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import checksums
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.catalogue import catalogue

LOG = logging.getLogger(__name__)

# Catalogues that are kept.
KEPT = 4


def read_pointer(store: base.BlobStore, name: str) -> int | None:
    """Return the number in a pointer; None if there is no such pointer.

    :raises IntegrityError: it is damaged
    """
    try:
        data = store.read(name)
    except exceptions.NotFound:
        return None
    text = checksums.strip(data, name)
    if not text.isdigit():
        raise exceptions.IntegrityError(
            f'{name} is damaged: {text[:20]!r} is not a number.')
    return int(text)


def _read_pointers(store: base.BlobStore) -> tuple[dict[str, int], list[str]]:
    """Return the numbers in the pointers, and what is wrong with others."""
    numbers: dict[str, int] = {}
    damaged = []
    for name in blob_names.POINTERS:
        try:
            number = read_pointer(store, name)
        except exceptions.IntegrityError as exc:
            damaged.append(str(exc))
            continue
        if number is not None:
            numbers[name] = number
    return numbers, damaged


def _usual_pointers(number: int) -> dict[str, int]:
    """Return what pointers have that were always moved in turns.

    Where that is wrong, one is moved twice: the other leads to a catalogue
    from which the following are found, too.
    """
    return {blob_names.POINTERS[(each + 1) % 2]: each
            for each in (number - 1, number)}


def _last_number(store: base.BlobStore
                 ) -> tuple[int | None, dict[str, int]]:
    """Return the number of the head, or one less; None in an empty store.

    :returns: it, and the numbers in the pointers
    :raises IntegrityError: the pointers are damaged and blobs are not listed
    """
    numbers, damaged = _read_pointers(store)
    for reason in damaged:
        LOG.warning('Ignoring a pointer, which the next commit writes anew: '
                    '%s', reason)
    if numbers:
        return max(numbers.values()), numbers
    # To take this for an empty store would remove all of its blobs.
    names = store.names()
    if names is not None:
        found = [number for number in map(blob_names.head_number, names)
                 if number is not None]
        return max(found, default=None), numbers
    if damaged:
        raise exceptions.IntegrityError(
            f'{" ".join(damaged)} Without a pointer the last catalogue of '
            f'the store is unknown: restore one from a copy of the store.')
    return None, numbers


def _read(store: base.BlobStore, number: int) -> catalogue.Catalogue:
    """Return a catalogue.

    :raises NotFound: it does not exist
    :raises IntegrityError: it is damaged, or another one under its name
    """
    name = blob_names.of_head(number)
    found = catalogue.Catalogue.decode(store.read(name), name, store.read)
    if found.number != number:
        raise exceptions.IntegrityError(
            f'{name} has catalogue {found.number}: restore it from a copy of '
            f'the store.')
    return found


def try_read(store: base.BlobStore, number: int
             ) -> catalogue.Catalogue | None:
    """Return a catalogue that no pointer names: its write may be torn."""
    try:
        return _read(store, number)
    except (exceptions.NotFound, exceptions.IntegrityError,
            exceptions.FormatError):
        return None


def _read_last(store: base.BlobStore
               ) -> tuple[catalogue.Catalogue | None, dict[str, int]]:
    """Return the head, or one before it, and the numbers in the pointers.

    :raises IntegrityError: it is missing or damaged
    """
    before = None
    while True:
        number, pointers = _last_number(store)
        if number is None:
            return None, pointers
        try:
            return _read(store, number), pointers
        except exceptions.NotFound as exc:
            # Others may have committed more since than are kept.
            if number == before:
                raise exceptions.IntegrityError(
                    f'{blob_names.of_head(number)} is missing: restore it '
                    f'from a copy of the store.') from exc
        before = number


def load(store: base.BlobStore, decided: int | None = None
         ) -> catalogue.Catalogue | None:
    """Return the head; None if the store is empty.

    :param decided: the number of a catalogue that an arbiter decided: if it
        is there, the pointers are not read
    :raises IntegrityError: it is damaged
    """
    pointers: dict[str, int] = {}
    head = None if decided is None else try_read(store, decided)
    if head is not None:
        pointers = _usual_pointers(head.number)
    else:
        head, pointers = _read_last(store)
    number = head.number if head else 0
    while (following := try_read(store, number + 1)) is not None:
        head, number = following, number + 1
    if head is not None:
        head.pointers = pointers
    if head is None and store.exists(blob_names.MARKER):
        # To take this for an empty store would remove all of its blobs.
        raise exceptions.IntegrityError(
            f'The store has versions, but '
            f'{" and ".join(blob_names.POINTERS)} are missing, so that the '
            f'last catalogue is unknown: restore one of them from a copy of '
            f'the store, or try again if the store was not reached '
            f'completely.')
    return head


def commit(store: base.BlobStore, new: catalogue.Catalogue,
           key: bytes | None = None) -> None:
    """Commit a catalogue, whose number follows the head's.

    Everything that it names must be in the store.

    :param key: seals the catalogue
    :raises Conflict: another writer was faster; load and try again
    """
    store.flush()
    name = blob_names.of_head(new.number)
    if not store.atomic and try_read(store, new.number) is None:
        # A killed writer may have left part of a blob, which is not valid.
        store.delete(name)
    data = new.encode(key)
    try:
        store.create(name, data)
    except exceptions.Conflict:
        # An attempt that failed afterwards may have created it.
        if store.read(name) != data:
            raise
    try:
        _refuse_overtaken(store, new)
    except exceptions.Conflict:
        # Its name was free again: the writers that won are further on.
        store.delete(name)
        raise
    new.digest = catalogue.digest_of(data)
    complete(store, new)


def complete(store: base.BlobStore, new: catalogue.Catalogue) -> None:
    """Note that a catalogue, which is durable, is the head."""
    # Where there are pointers the mark was created before them. A prune
    # replaces one that was removed from a store of objects.
    if not new.pointers or store.local_path(blob_names.MARKER) is not None:
        mark(store, new.store_id)
    if store.append_only:
        # The pointers are moved when what was added is accepted.
        return
    if new.pointers is None:
        new.pointers, _damaged = _read_pointers(store)
    pointer = _older_pointer(new.pointers)
    store.replace(pointer, checksums.append(str(new.number).encode()))
    new.pointers[pointer] = new.number
    if new.number > KEPT:
        store.delete(blob_names.of_head(new.number - KEPT))


def adopt(store: base.BlobStore, new: catalogue.Catalogue) -> None:
    """Have a durable catalogue, which may follow none, be the head.

    Both pointers are moved: from one that was left behind, the catalogues in
    between would be missing.
    """
    numbers, _damaged = _read_pointers(store)
    for name in sorted(blob_names.POINTERS,
                       key=lambda each: numbers.get(each, 0)):
        if numbers.get(name) != new.number:
            store.replace(name, checksums.append(str(new.number).encode()))
    mark(store, new.store_id)


def _older_pointer(numbers: dict[str, int]) -> str:
    """Return the pointer to move: one that is missing, or the older.

    A writer that is killed while it moves it may leave none in its place, and
    then the other has to be valid.
    """
    return min(blob_names.POINTERS, key=lambda each: numbers.get(each, 0))


def _refuse_overtaken(store: base.BlobStore, new: catalogue.Catalogue
                      ) -> None:
    """Refuse to commit a catalogue that follows an old one.

    A writer that committed this number or a later one since the last catalogue
    was read has moved the pointer that was the older one, unless the catalogue
    of this number is still there.

    :raises Conflict: there is a later catalogue
    """
    if new.pointers is None:
        new.pointers, _damaged = _read_pointers(store)
    found = max(new.pointers.values(), default=0)
    with contextlib.suppress(exceptions.IntegrityError):
        found = max(found, read_pointer(
            store, _older_pointer(new.pointers)) or 0)
    if found >= new.number:
        raise exceptions.Conflict(
            f'Catalogue {new.number} was committed by another writer already.')


def is_there(store: base.BlobStore, head: catalogue.Catalogue) -> bool:
    """Return whether a catalogue is in a store as it was read."""
    found = try_read(store, head.number)
    return found is not None and found.digest == head.digest


def is_last(store: base.BlobStore, head: catalogue.Catalogue) -> bool:
    """Return whether no writer has committed behind a catalogue.

    The lock must be held.
    """
    following = head.copy()
    following.number += 1
    if store.exists(blob_names.of_head(following.number)):
        return False
    try:
        _refuse_overtaken(store, following)
    except exceptions.Conflict:
        return False
    return True


def mark(store: base.BlobStore, store_id: str) -> None:
    """Create the mark that a store is not empty, unless there is one."""
    if store.exists(blob_names.MARKER):
        return
    with contextlib.suppress(exceptions.Conflict):
        store.create(blob_names.MARKER, checksums.append(store_id.encode()))


def find_damage(store: base.BlobStore, head: catalogue.Catalogue
                ) -> list[str]:
    """Describe damaged catalogues and small blobs, one line each."""
    found = (_read_pointers(store)[1] + _damaged_key_ids(store)
             + _damaged_marker(store, head))
    for number in range(max(1, head.number - KEPT + 1), head.number):
        try:
            _read(store, number)
        except exceptions.NotFound:
            continue
        except exceptions.DiffCacheError as exc:
            found.append(str(exc))
    return found


def _damaged_marker(store: base.BlobStore, head: catalogue.Catalogue
                    ) -> list[str]:
    remedy = 'Delete it: the next prune writes it anew.'
    try:
        text = checksums.strip(store.read(blob_names.MARKER),
                               blob_names.MARKER)
    except exceptions.NotFound:
        return []
    except exceptions.IntegrityError as exc:
        return [f'{exc} {remedy}']
    if text == head.store_id.encode():
        return []
    return [f'{blob_names.MARKER} is of another store. {remedy}']


def _damaged_key_ids(store: base.BlobStore) -> list[str]:
    found = []
    for name in blob_names.KEY_BLOBS:
        try:
            checksums.strip(store.read(name), name)
        except exceptions.NotFound:
            continue
        except exceptions.IntegrityError as exc:
            found.append(f'{exc} Copy the other one over it.')
    return found
