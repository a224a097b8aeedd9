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
"""What a version store holds: its *head*, and how one follows another.

A head names everything that counts: versions, packs, maps, indexes of base
images. What no head names does not exist. A change is made by writing the
blobs it needs, then the next head: before that the store is as it was, after
that it is changed, and there is no moment between. Two small pointers say
which head is the last; either may be one behind.
"""

import dataclasses
import hashlib
import json
import logging
import re
from typing import Any
import zlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.store import base

LOG = logging.getLogger(__name__)

FORMAT = 3
# The first had versions without what came later, and the second packs; these
# have defaults.
_FORMATS = (1, 2, FORMAT)
_MAGIC = b'DCVHEAD1'
_KEPT_HEADS = 4
# More than any head has once it is decompressed: some hundred thousand
# versions. A few bytes of a forged one could become more than memory holds.
_MOST_BYTES = 256 << 20
_HEAD_NAME = re.compile(r'head-(\d{10})')
_POINTERS = ('latest-0', 'latest-1')
_KEYS = ('key-0', 'key-1')

# A tree's root: kind (0 zeroes, 1 the base image, 2 a node), map, index.
Root = tuple[int, int, int]
ZERO_ROOT: Root = (0, 0, 0)
BASE_ROOT: Root = (1, 0, 0)


@dataclasses.dataclass(frozen=True)
class Pack:
    """A pack and its index. Sizes in bytes."""

    blob: str
    index: str
    generation: int
    # The number of the version that wrote it.
    origin: int
    blocks: int
    data_bytes: int
    index_bytes: int
    # The zstd level that all of it was compressed with at least; 0: unknown.
    level: int = 0


@dataclasses.dataclass(frozen=True)
class Blob:
    """A blob and its bytes."""

    blob: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class Base:
    """The base image that a version lies on."""

    # Content id; None if nobody told which image it is.
    id: str | None
    # The file name that the disk or the caller gave, to help who restores.
    name: str
    size: int | None


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """An internal snapshot of a disk that has a version's state."""

    name: str
    fingerprint: str


@dataclasses.dataclass(frozen=True)
class Version:
    """One version. Sizes in bytes, times in UTC."""

    id: str
    series: str
    # Versions of a store are numbered as they are made.
    number: int
    parent: str | None
    created_at: str
    size: int
    root: Root
    base: Base | None
    alpha: str
    blocks_changed: int
    blocks_stored: int
    bytes_read: int
    bytes_stored: int
    seconds: float
    pause_ms: float
    snapshots: tuple[Snapshot, ...] = ()
    # For how long the guest's filesystems took no writes; whether they were
    # asked to write everything down.
    frozen_ms: float = 0.0
    quiesced: bool = False
    # What the caller told this save from others by, if it did.
    token: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The version as JSON has it."""
        return dataclasses.asdict(self)

    def summary(self) -> dict[str, Any]:
        """What users are told of the version."""
        return {
            'version': self.id, 'series': self.series,
            'parent': self.parent, 'created_at': self.created_at,
            'size': self.size, 'blocks_changed': self.blocks_changed,
            'blocks_stored': self.blocks_stored,
            'bytes_read': self.bytes_read,
            'bytes_stored': self.bytes_stored, 'seconds': self.seconds,
            'pause_ms': self.pause_ms, 'frozen_ms': self.frozen_ms,
            'quiesced': self.quiesced, 'alpha': self.alpha,
            'base': self.base.name if self.base else None}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> 'Version':
        """What :meth:`to_dict` returned."""
        lies_on = fields['base']
        snapshots = tuple(Snapshot(**each) for each in fields['snapshots'])
        kind, map_id, index = fields['root']
        return cls(**(fields | {
            'root': (int(kind), int(map_id), int(index)),
            'base': None if lies_on is None else Base(**lies_on),
            'snapshots': snapshots}))


@dataclasses.dataclass
class Head:
    """The state of a store."""

    number: int
    store_id: str
    block_size: int
    # Tells a wrong key from the right one; None in a store without a key.
    key_check: str | None
    next_pack: int = 1
    next_map: int = 1
    next_version: int = 1
    versions: dict[str, Version] = dataclasses.field(default_factory=dict)
    packs: dict[int, Pack] = dataclasses.field(default_factory=dict)
    maps: dict[int, Blob] = dataclasses.field(default_factory=dict)
    bases: dict[str, Blob] = dataclasses.field(default_factory=dict)

    def blobs(self) -> set[str]:
        """The names of all blobs that this head needs."""
        found = {pack.blob for pack in self.packs.values()}
        found |= {pack.index for pack in self.packs.values()}
        found |= {blob.blob for blob in self.maps.values()}
        return found | {blob.blob for blob in self.bases.values()}

    def bytes_stored(self) -> int:
        """Bytes of all blobs that this head needs."""
        packs = sum(pack.data_bytes + pack.index_bytes
                    for pack in self.packs.values())
        return (packs + sum(blob.bytes for blob in self.maps.values())
                + sum(blob.bytes for blob in self.bases.values()))

    def of_series(self, series: str) -> list[Version]:
        """The versions of a series, oldest first."""
        found = [version for version in self.versions.values()
                 if version.series == series]
        return sorted(found, key=lambda version: version.number)

    def of_token(self, token: str) -> list[Version]:
        """The versions of the save that was told by a token."""
        found = [version for version in self.versions.values()
                 if version.token == token]
        return sorted(found, key=lambda version: version.number)

    def find(self, name: str) -> Version:
        """The version of an id, or of the beginning of one.

        :raises NotFound: there is none, or there are several
        """
        if name in self.versions:
            return self.versions[name]
        found = [version for version in self.versions.values()
                 if len(name) >= 4 and version.id.startswith(name)]
        if len(found) == 1:
            return found[0]
        there = 'are several versions' if found else 'is no version'
        raise exceptions.NotFound(
            f'There {there} {name!r} in the store; list them, and give a '
            f'whole id.')

    def encode(self) -> bytes:
        """The head as a blob.

        :raises PermanentError: it would be too long to be read again
        """
        fields = {
            'format': FORMAT, 'number': self.number,
            'store_id': self.store_id, 'block_size': self.block_size,
            'key_check': self.key_check, 'next_pack': self.next_pack,
            'next_map': self.next_map, 'next_version': self.next_version,
            'versions': [version.to_dict() for version
                         in self.versions.values()],
            'packs': {number: dataclasses.asdict(pack)
                      for number, pack in self.packs.items()},
            'maps': {number: dataclasses.asdict(blob)
                     for number, blob in self.maps.items()},
            'bases': {name: dataclasses.asdict(blob)
                      for name, blob in self.bases.items()}}
        text = json.dumps(fields, separators=(',', ':')).encode()
        if len(text) > _MOST_BYTES:
            raise exceptions.PermanentError(
                'The store has too many versions: delete some and prune it.')
        return _sealed(_MAGIC + zlib.compress(text, 6))

    @classmethod
    def decode(cls, data: bytes, name: str) -> 'Head':
        """What :meth:`encode` returned.

        :raises IntegrityError: it was damaged
        :raises FormatError: it is of another program
        """
        body = _opened(data, name)
        if not body.startswith(_MAGIC):
            raise exceptions.FormatError(f'{name} is no head of a store.')
        try:
            fields = json.loads(_inflated(body[len(_MAGIC):]))
            if fields['format'] in _FORMATS:
                return cls._from_fields(fields)
        except (ValueError, KeyError, TypeError, AttributeError,
                RecursionError) as exc:
            raise exceptions.FormatError(
                f'{name} is no head that this program could have written: '
                f'restore it from a copy of the store.') from exc
        raise exceptions.FormatError(
            f'{name} has format {fields["format"]}: use the release that '
            f'wrote it.')

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> 'Head':
        versions = map(Version.from_dict, fields['versions'])
        return cls(
            number=fields['number'], store_id=fields['store_id'],
            block_size=fields['block_size'], key_check=fields['key_check'],
            next_pack=fields['next_pack'], next_map=fields['next_map'],
            next_version=fields['next_version'],
            versions={version.id: version for version in versions},
            packs={int(number): Pack(**pack)
                   for number, pack in fields['packs'].items()},
            maps={int(number): Blob(**blob)
                  for number, blob in fields['maps'].items()},
            bases={base_id: Blob(**blob)
                   for base_id, blob in fields['bases'].items()})


def _inflated(packed: bytes) -> bytes:
    """What zlib compressed.

    :raises ValueError: it is damaged, or longer than any head
    """
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(packed, _MOST_BYTES)
    except zlib.error as exc:
        raise ValueError(str(exc)) from exc
    if not inflater.eof:
        raise ValueError('it does not end')
    return text


def _sealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def _opened(data: bytes, name: str) -> bytes:
    body, check = data[:-32], data[-32:]
    if hashlib.sha256(body).digest() != check:
        raise exceptions.IntegrityError(
            f'{name} is damaged: its bytes do not match its checksum.')
    return body


def head_name(number: int) -> str:
    """The blob of a head."""
    return f'head-{number:010d}'


def read_pointer(store: base.BlobStore, name: str) -> int | None:
    """The number that a pointer has; None if there is no such pointer.

    :raises IntegrityError: it is damaged
    """
    try:
        data = store.read(name)
    except exceptions.NotFound:
        return None
    text = _opened(data, name)
    if not text.isdigit():
        raise exceptions.IntegrityError(f'{name} is damaged: it is no number.')
    return int(text)


def _told(store: base.BlobStore) -> tuple[dict[str, int], list[str]]:
    """What the pointers tell, and what is wrong with the damaged ones."""
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


def _pointed(store: base.BlobStore) -> int | None:
    """The newest number that the pointers tell; None if there are no heads.

    :raises IntegrityError: they are damaged, and nothing else tells
    """
    numbers, damaged = _told(store)
    for reason in damaged:
        # It is written anew with the next head; the other does.
        LOG.warning('%s', reason)
    if numbers:
        return max(numbers.values())
    # Whoever took this for an empty store would clean up all that is there.
    names = store.names()
    if names is not None:
        heads = [int(found[1]) for found in map(_HEAD_NAME.fullmatch, names)
                 if found]
        return max(heads, default=None)
    if damaged:
        raise exceptions.IntegrityError(
            f'{" ".join(damaged)} No other tells which head of the store is '
            f'the last: restore one from a copy of the store.')
    return None


def _try_head(store: base.BlobStore, number: int) -> Head | None:
    """A head that no pointer vouches for: the last write may be torn."""
    name = head_name(number)
    try:
        return Head.decode(store.read(name), name)
    except (exceptions.NotFound, exceptions.IntegrityError,
            exceptions.FormatError):
        return None


def load(store: base.BlobStore) -> Head | None:
    """The last head; None if the store is empty.

    :raises IntegrityError: it is damaged
    """
    number = _pointed(store)
    if number is None:
        head, number = None, 0
    else:
        name = head_name(number)
        try:
            head = Head.decode(store.read(name), name)
        except exceptions.NotFound as exc:
            raise exceptions.IntegrityError(
                f'{name} is missing: restore it from a copy of the store.'
            ) from exc
    while (following := _try_head(store, number + 1)) is not None:
        head, number = following, number + 1
    return head


def commit(store: base.BlobStore, head: Head) -> None:
    """Make a head, whose number follows the last one's, the last.

    Everything that it names must be in the store.

    :raises Conflict: another writer was faster; load and try again
    """
    store.flush()
    name = head_name(head.number)
    if not store.atomic and _try_head(store, head.number) is None:
        # A killed writer may have left a part of it, which nobody counts.
        store.delete(name)
    store.create(name, head.encode())
    # The one that tells least: on the way a killed writer may leave no blob at
    # all where it was, and the other has to be there then.
    numbers, _damaged = _told(store)
    pointer = min(_POINTERS, key=lambda each: numbers.get(each, 0))
    store.replace(pointer, _sealed(str(head.number).encode()))
    store.delete(head_name(head.number - _KEPT_HEADS))


def is_bookkeeping(name: str) -> bool:
    """Whether a blob is a head or a pointer."""
    return name.startswith('head-') or name in (*_POINTERS, *_KEYS)


def read_key_id(store: base.BlobStore) -> str | None:
    """What a key manager calls the key that a store is sealed with.

    :returns: None if the store has no key, or none that a key manager keeps
    :raises IntegrityError: both copies are damaged
    """
    damaged = None
    for name in _KEYS:
        try:
            return _opened(store.read(name), name).decode()
        except exceptions.NotFound:
            continue
        except exceptions.IntegrityError as exc:
            damaged = exc
    # Before there is a head, whoever wrote it was killed: nothing is sealed.
    if damaged is not None and load(store) is not None:
        raise damaged
    return None


def keep_key_id(store: base.BlobStore, key_id: str) -> None:
    """Remember, twice, which key a new store is sealed with.

    The lock must be held.

    :raises Conflict: another writer was faster: read which one
    """
    data = _sealed(key_id.encode())
    for name in _KEYS:
        if not store.atomic and read_key_id(store) is None:
            # A killed writer may have left a part of it, which nobody counts.
            store.delete(name)
        store.create(name, data)
    store.flush()


def damaged_bookkeeping(store: base.BlobStore, head: Head) -> list[str]:
    """What is wrong with heads and pointers, one line each."""
    found = []
    for name in _POINTERS:
        try:
            read_pointer(store, name)
        except exceptions.IntegrityError as exc:
            found.append(str(exc))
    found += _damaged_key_ids(store)
    for number in range(max(1, head.number - _KEPT_HEADS + 1), head.number):
        name = head_name(number)
        try:
            Head.decode(store.read(name), name)
        except exceptions.NotFound:
            continue
        except exceptions.DiffCacheError as exc:
            found.append(str(exc))
    return found


def _damaged_key_ids(store: base.BlobStore) -> list[str]:
    """What is wrong with the copies of the key's id, one line each."""
    found = []
    for name in _KEYS:
        try:
            _opened(store.read(name), name)
        except exceptions.NotFound:
            continue
        except exceptions.IntegrityError as exc:
            found.append(f'{exc} Copy the other one over it.')
    return found
