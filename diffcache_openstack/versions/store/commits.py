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
import re

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.store import catalogue
from diffcache_openstack.versions.store import checksums

LOG = logging.getLogger(__name__)

# Catalogues that are kept.
KEPT = 4
_NAME = re.compile(r'head-(\d{10})')
_POINTERS = ('latest-0', 'latest-1')
# Created after the first catalogue and never changed: a store that has it is
# not empty, even if both pointers are gone.
MARKER = 'store-id'
# Written before the first catalogue; see :mod:`.key_ids`.
KEY_BLOBS = ('key-0', 'key-1')


def blob_name(number: int) -> str:
    """Return the name of the blob that a catalogue is in."""
    return f'head-{number:010d}'


def number_of(name: str) -> int | None:
    """Return the number of the catalogue in a blob; None for others."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


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
    for name in _POINTERS:
        try:
            number = read_pointer(store, name)
        except exceptions.IntegrityError as exc:
            damaged.append(str(exc))
            continue
        if number is not None:
            numbers[name] = number
    return numbers, damaged


def _last_number(store: base.BlobStore) -> int | None:
    """Return the number of the head, or one less; None in an empty store.

    :raises IntegrityError: the pointers are damaged and blobs are not listed
    """
    numbers, damaged = _read_pointers(store)
    for reason in damaged:
        LOG.warning('Ignoring a pointer, which the next commit writes anew: '
                    '%s', reason)
    if numbers:
        return max(numbers.values())
    # To take this for an empty store would remove all of its blobs.
    names = store.names()
    if names is not None:
        found = [int(match[1]) for match in map(_NAME.fullmatch, names)
                 if match]
        return max(found, default=None)
    if damaged:
        raise exceptions.IntegrityError(
            f'{" ".join(damaged)} Without a pointer the last catalogue of '
            f'the store is unknown: restore one from a copy of the store.')
    return None


def _read(store: base.BlobStore, number: int) -> catalogue.Catalogue:
    """Return a catalogue.

    :raises NotFound: it does not exist
    :raises IntegrityError: it is damaged, or another one under its name
    """
    name = blob_name(number)
    found = catalogue.Catalogue.decode(store.read(name), name)
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


def load(store: base.BlobStore) -> catalogue.Catalogue | None:
    """Return the head; None if the store is empty.

    :raises IntegrityError: it is damaged
    """
    number = _last_number(store)
    if number is None:
        head, number = None, 0
    else:
        try:
            head = _read(store, number)
        except exceptions.NotFound as exc:
            raise exceptions.IntegrityError(
                f'{blob_name(number)} is missing: restore it from a copy of '
                f'the store.') from exc
    while (following := try_read(store, number + 1)) is not None:
        head, number = following, number + 1
    if head is None and store.exists(MARKER):
        # To take this for an empty store would remove all of its blobs.
        raise exceptions.IntegrityError(
            f'The store has versions, but {" and ".join(_POINTERS)} are '
            f'missing, so that the last catalogue is unknown: restore one of '
            f'them from a copy of the store, or try again if the store was '
            f'not reached completely.')
    return head


def commit(store: base.BlobStore, new: catalogue.Catalogue,
           key: bytes | None = None) -> None:
    """Commit a catalogue, whose number follows the head's.

    Everything that it names must be in the store.

    :param key: seals the catalogue
    :raises Conflict: another writer was faster; load and try again
    """
    store.flush()
    name = blob_name(new.number)
    refuse_overtaken(store, new.number)
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
        refuse_overtaken(store, new.number)
    except exceptions.Conflict:
        # Its name was free again: the writers that won are further on.
        store.delete(name)
        raise
    new.digest = catalogue.digest_of(data)
    complete(store, new)


def complete(store: base.BlobStore, new: catalogue.Catalogue) -> None:
    """Note that a catalogue, which is durable, is the head."""
    _mark(store, new.store_id)
    if store.append_only:
        # The pointers are moved when what was added is accepted.
        return
    # The pointer with the lower number: a writer that is killed here may
    # leave none in its place, and then the other has to be valid.
    numbers, _damaged = _read_pointers(store)
    pointer = min(_POINTERS, key=lambda each: numbers.get(each, 0))
    store.replace(pointer, checksums.append(str(new.number).encode()))
    store.delete(blob_name(new.number - KEPT))


def refuse_overtaken(store: base.BlobStore, number: int) -> None:
    """Refuse to commit a catalogue that follows an old one.

    :raises Conflict: there is a later catalogue
    """
    numbers, _damaged = _read_pointers(store)
    if max(numbers.values(), default=0) >= number:
        raise exceptions.Conflict(
            f'Catalogue {number} was committed by another writer already.')


def _mark(store: base.BlobStore, store_id: str) -> None:
    if store.exists(MARKER):
        return
    with contextlib.suppress(exceptions.Conflict):
        store.create(MARKER, checksums.append(store_id.encode()))


def is_bookkeeping(name: str) -> bool:
    """Return whether a blob is no part of any version."""
    return (name.startswith('head-')
            or name in (*_POINTERS, *KEY_BLOBS, MARKER))


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
    remedy = 'Delete it: the next save writes it anew.'
    try:
        text = checksums.strip(store.read(MARKER), MARKER)
    except exceptions.NotFound:
        return []
    except exceptions.IntegrityError as exc:
        return [f'{exc} {remedy}']
    if text == head.store_id.encode():
        return []
    return [f'{MARKER} is of another store. {remedy}']


def _damaged_key_ids(store: base.BlobStore) -> list[str]:
    found = []
    for name in KEY_BLOBS:
        try:
            checksums.strip(store.read(name), name)
        except exceptions.NotFound:
            continue
        except exceptions.IntegrityError as exc:
            found.append(f'{exc} Copy the other one over it.')
    return found
