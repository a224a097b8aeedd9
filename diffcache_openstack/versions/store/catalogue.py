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
"""The catalogue of a version store.

A catalogue names everything that counts: versions, packs, maps, indexes of
base images. Blobs that it does not name do not exist. The last committed one
is the *head* of the store; see :mod:`.commits` for how one follows another.
"""

import dataclasses
import hashlib
import hmac
import json
from typing import Any
from typing import TypeVar
import zlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.store import checksums

FORMAT = 1
_MAGIC = b'DCVHEAD1'
# More than any catalogue has once it is decompressed: some hundred thousand
# versions. A few bytes of a forged one could become more than memory holds.
MOST_BYTES = 256 << 20

# Largest numbers of catalogues: of what is counted and named, of bytes, and of
# a disk's size (16 TiB). Native code takes no larger ones.
_MOST_NUMBER = 2 ** 32 - 1
_MOST_SIZE = 2 ** 63 - 1
_MOST_DISK = 1 << 44
_DISK_FORMATS = (None, 'raw', 'qcow2')
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
    # The zstd level that all of it was compressed with at least.
    level: int
    # The checksum that the index ends with, in hex.
    check: str
    # The number of the key that it is sealed with.
    key: int = 1


@dataclasses.dataclass(frozen=True)
class Blob:
    """A blob and its bytes."""

    blob: str
    bytes: int
    # The checksum that it ends with, in hex.
    check: str


@dataclasses.dataclass(frozen=True)
class Base:
    """The base image of a version."""

    # Content id; None if the caller of the save did not name the image.
    id: str | None
    # The file name that the disk or the caller gave, as a hint for a restore.
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
    # Versions of a store are numbered in the order of their saves.
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
    # For how long the guest's filesystems were frozen; whether they were
    # flushed before.
    frozen_ms: float = 0.0
    quiesced: bool = False
    # The idempotency token of the save, if the caller gave one.
    token: str | None = None
    # ``raw`` or ``qcow2``; None if neither a caller nor the disk was reliable.
    disk_format: str | None = None

    def summary(self) -> dict[str, Any]:
        """Return the fields that users see."""
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
        """Build a version from the fields of the catalogue's JSON."""
        base = fields['base']
        snapshots = tuple(Snapshot(**each) for each in fields['snapshots'])
        kind, map_id, index = fields['root']
        root = tuple(_number(part) for part in (kind, map_id, index))
        return _checked(cls(**(fields | {
            'root': root, 'base': None if base is None else Base(**base),
            'snapshots': snapshots})))


@dataclasses.dataclass(frozen=True)
class _Seal:
    """What shows that a writer with the store's key wrote a catalogue."""

    # SHA-256 of all that is sealed.
    digest: bytes
    # Empty in a catalogue without a seal.
    code: bytes


@dataclasses.dataclass
class Catalogue:
    """The state of a store."""

    number: int
    store_id: str
    block_size: int
    # Hash that identifies the key; None in a store without a key.
    key_check: str | None
    next_pack: int = 1
    next_map: int = 1
    next_version: int = 1
    versions: dict[str, Version] = dataclasses.field(default_factory=dict)
    packs: dict[int, Pack] = dataclasses.field(default_factory=dict)
    maps: dict[int, Blob] = dataclasses.field(default_factory=dict)
    bases: dict[str, Blob] = dataclasses.field(default_factory=dict)
    # Of some versions, by their ids; see :mod:`.manifests`.
    manifests: dict[str, Blob] = dataclasses.field(default_factory=dict)
    # The newest has the highest number; see :mod:`.hook_files`.
    hooks: dict[int, Blob] = dataclasses.field(default_factory=dict)
    # Keys are numbered in the order in which they replaced each other. Former
    # ones that packs still have, by number, encrypted with the present one:
    # see :mod:`.key_chain`.
    key_number: int = 1
    former_keys: dict[int, bytes] = dataclasses.field(default_factory=dict,
                                                      repr=False)
    # The id of a key that replaced another one, if a key manager keeps it.
    key_id: str | None = None
    # That of the blob that it was read from.
    seal: _Seal | None = dataclasses.field(default=None, repr=False)
    # The checksum of that blob in hex; empty before the first commit.
    digest: str = ''

    def check_seal(self, key: bytes | None) -> None:
        """Check that a writer with the store's key wrote this catalogue.

        Those of stores without a key have no seal.

        :raises IntegrityError: another writer did
        """
        if key is None or self.seal is None:
            return
        if not hmac.compare_digest(self.seal.code,
                                   _code(key, self.seal.digest)):
            raise exceptions.IntegrityError(
                f'Catalogue {self.number} was changed by a writer without the '
                f'key of the store: restore the store from a copy.')

    def blobs(self) -> set[str]:
        """Return the names of all blobs that this catalogue needs."""
        found = {pack.blob for pack in self.packs.values()}
        found |= {pack.index for pack in self.packs.values()}
        found |= {blob.blob for blob in self.maps.values()}
        found |= {blob.blob for blob in self.manifests.values()}
        found |= {blob.blob for blob in self.hooks.values()}
        return found | {blob.blob for blob in self.bases.values()}

    def bytes_stored(self) -> int:
        """Return the bytes of all blobs that this catalogue needs."""
        packs = sum(pack.data_bytes + pack.index_bytes
                    for pack in self.packs.values())
        blobs = (*self.maps.values(), *self.bases.values(),
                 *self.manifests.values(), *self.hooks.values())
        return packs + sum(blob.bytes for blob in blobs)

    def of_series(self, series: str) -> list[Version]:
        """Return the versions of a series, oldest first."""
        found = [version for version in self.versions.values()
                 if version.series == series]
        return sorted(found, key=lambda version: version.number)

    def disk_format_of(self, series: str) -> str | None:
        """Return the format of a series' disk, if it was recorded."""
        return next((version.disk_format for version
                     in reversed(self.of_series(series))
                     if version.disk_format is not None), None)

    def of_token(self, token: str) -> list[Version]:
        """Return the versions that the save with a token created."""
        found = [version for version in self.versions.values()
                 if version.token == token]
        return sorted(found, key=lambda version: version.number)

    def find(self, name: str) -> Version:
        """Return the version whose id is, or starts with, a name.

        :raises NotFound: there is none, or several
        """
        if name in self.versions:
            return self.versions[name]
        found = [version for version in self.versions.values()
                 if name and version.id.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise exceptions.NotFound(
                f'{len(found)} versions have IDs that start with {name!r}: '
                f'give more digits.')
        raise exceptions.NotFound(
            f'No version has the ID {name!r}: list the versions of the store.')

    def encode(self, key: bytes | None = None) -> bytes:
        """Return the catalogue as the bytes of a blob.

        :param key: seals it; None for a store in the clear
        :raises PermanentError: it is too long to be read again
        """
        fields = {
            'format': FORMAT, 'number': self.number,
            'store_id': self.store_id, 'block_size': self.block_size,
            'key_check': self.key_check, 'key_number': self.key_number,
            'key_id': self.key_id,
            'former_keys': {number: key.hex() for number, key
                            in self.former_keys.items()},
            'next_pack': self.next_pack, 'next_map': self.next_map,
            'next_version': self.next_version,
            'versions': [dataclasses.asdict(version) for version
                         in self.versions.values()],
            'packs': _fields_of(self.packs), 'maps': _fields_of(self.maps),
            'bases': _fields_of(self.bases),
            'manifests': _fields_of(self.manifests),
            'hooks': _fields_of(self.hooks)}
        text = json.dumps(fields, separators=(',', ':')).encode()
        if len(text) > MOST_BYTES:
            raise exceptions.PermanentError(
                'The store has too many versions: delete some and prune it.')
        body = _MAGIC + zlib.compress(text, 6)
        if key is not None:
            body += _code(key, hashlib.sha256(body).digest())
        return checksums.append(body)

    @classmethod
    def decode(cls, data: bytes, name: str) -> 'Catalogue':
        """Parse what :meth:`encode` returned.

        :param name: of the blob, for messages
        :raises IntegrityError: the bytes do not match their checksum
        :raises FormatError: they are not a catalogue, or of another format
        """
        body = checksums.strip(data, name)
        if not body.startswith(_MAGIC):
            raise exceptions.FormatError(
                f'{name} is not a catalogue of a version store.')
        try:
            text, code = _inflated(body[len(_MAGIC):])
            fields = json.loads(text)
            if fields['format'] == FORMAT:
                head = cls._from_fields(fields)
                head.seal = _Seal(hashlib.sha256(
                    body[:len(body) - len(code)]).digest(), code)
                head.digest = digest_of(data)
                return head
        except (ValueError, KeyError, TypeError, AttributeError,
                RecursionError) as exc:
            raise exceptions.FormatError(
                f'{name} is not a valid catalogue: restore it from a copy of '
                f'the store.') from exc
        raise exceptions.FormatError(
            f'{name} has format {fields["format"]}, this program reads format '
            f'{FORMAT}: use the release that wrote it.')

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> 'Catalogue':
        versions = map(Version.from_dict, fields['versions'])
        return cls(
            number=_number(fields['number']), store_id=fields['store_id'],
            block_size=_number(fields['block_size']),
            key_check=fields['key_check'],
            key_number=_number(fields['key_number']),
            key_id=_text(fields['key_id']),
            former_keys={
                _number(int(number)): bytes.fromhex(key) for number, key
                in fields['former_keys'].items()},
            next_pack=_number(fields['next_pack']),
            next_map=_number(fields['next_map']),
            next_version=_number(fields['next_version']),
            versions={version.id: version for version in versions},
            packs={_number(int(number)): _checked(Pack(**pack))
                   for number, pack in fields['packs'].items()},
            maps={_number(int(number)): _checked(Blob(**blob))
                  for number, blob in fields['maps'].items()},
            bases={base_id: _checked(Blob(**blob))
                   for base_id, blob in fields['bases'].items()},
            manifests={version_id: _checked(Blob(**blob)) for version_id, blob
                       in fields['manifests'].items()},
            hooks={_number(int(number)): _checked(Blob(**blob))
                   for number, blob in fields['hooks'].items()})


def _fields_of(records: dict[Any, Pack] | dict[Any, Blob]
               ) -> dict[Any, dict[str, Any]]:
    return {key: dataclasses.asdict(record)
            for key, record in records.items()}


def digest_of(data: bytes) -> str:
    """Return the checksum that a catalogue's blob ends with, in hex."""
    return data[-hashlib.sha256().digest_size:].hex()


def _number(value: Any, most: int = _MOST_NUMBER) -> int:
    """Return a number of a catalogue.

    :raises ValueError: it is none, negative, or larger than any
    """
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f'{value!r} is not a number from 0 to {most}')
    return value


_Record = TypeVar('_Record', Version, Pack, Blob)


def _checked(record: _Record) -> _Record:
    """Return a record of a catalogue whose numbers and names are valid.

    :raises ValueError: one is not
    """
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.type is int:
            most = _MOST_SIZE if field.name != 'size' else _MOST_DISK
            if field.name in ('number', 'generation', 'origin', 'level',
                              'key'):
                most = _MOST_NUMBER
            _number(value, most)
        elif field.type is float and type(value) not in (int, float):
            raise ValueError(f'{value!r} is not a number')
        elif field.type is str and not isinstance(value, str):
            raise ValueError(f'{value!r} is not a text')
        if field.name == 'check':
            _refuse_other_checksums(value)
        elif field.name == 'disk_format' and value not in _DISK_FORMATS:
            raise ValueError('a disk has an unknown format')
    return record


def _refuse_other_checksums(value: Any) -> None:
    if len(bytes.fromhex(value)) != hashlib.sha256().digest_size:
        raise ValueError(f'{value!r} is not a checksum')


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f'{value!r} is not a text')
    return value


def _code(key: bytes, digest: bytes) -> bytes:
    """Return the code that seals a catalogue with a digest."""
    own = hmac.digest(key, b'diffcache version store catalogue', 'sha256')
    return hmac.digest(own, digest, 'sha256')


def _inflated(packed: bytes) -> tuple[bytes, bytes]:
    """Decompress a catalogue; return it, and the bytes behind it.

    :raises ValueError: it is damaged, or longer than any catalogue
    """
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(packed, MOST_BYTES)
    except zlib.error as exc:
        raise ValueError(str(exc)) from exc
    if not inflater.eof:
        raise ValueError('the compressed data is incomplete or too long')
    return text, inflater.unused_data
