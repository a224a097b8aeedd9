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
is the *head* of the store; see :mod:`.heads` for how one follows another.
"""

import dataclasses
import hashlib
import hmac
import json
import re
from typing import Any
from typing import Callable
from typing import Mapping
from typing import MutableMapping
from typing import TypeVar
import zlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import blob_parts
from diffcache_openstack.versions.blobs import checksums
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.catalogue import record_checks
from diffcache_openstack.versions.store.catalogue import record_tables
from diffcache_openstack.versions.store.catalogue import version_tables

FORMAT = 1
_MAGIC = b'DCVHEAD1'
_SEGMENT = re.compile(r'records-\d{8,}-[a-z0-9]+')
# More than any catalogue has once it is decompressed: some hundred thousand
# versions. A few bytes of a forged one could become more than memory holds.
MOST_BYTES = 256 << 20


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
    versions: version_tables.VersionTable[entries.Version] = dataclasses.field(
        default_factory=version_tables.VersionTable)
    packs: record_tables.RecordTable[entries.Pack] = dataclasses.field(
        default_factory=record_tables.RecordTable)
    maps: record_tables.RecordTable[entries.Blob] = dataclasses.field(
        default_factory=record_tables.RecordTable)
    bases: dict[str, entries.Blob] = dataclasses.field(default_factory=dict)
    # Of some versions, by their ids; see :mod:`.manifests`.
    manifests: dict[str, entries.Blob] = dataclasses.field(
        default_factory=dict)
    # The newest has the highest number; see :mod:`.hook_files`.
    hooks: dict[int, entries.Blob] = dataclasses.field(default_factory=dict)
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
    # The numbers that the pointers had when it was read, by their names; None
    # if they were not read. See :mod:`.heads`.
    pointers: dict[str, int] | None = dataclasses.field(
        default=None, repr=False, compare=False)
    # As it was before a writer changed it; see :mod:`.rebasing`.
    before: 'Catalogue | None' = dataclasses.field(
        default=None, repr=False, compare=False)

    def copy(self) -> 'Catalogue':
        """Return a catalogue that is changed without changing this one."""
        return dataclasses.replace(
            self, packs=self.packs.copy(), maps=self.maps.copy(),
            former_keys=dict(self.former_keys), versions=self.versions.copy(),
            bases=dict(self.bases), manifests=dict(self.manifests),
            hooks=dict(self.hooks), before=None)

    def tables(self) -> tuple[record_tables.RecordTable, ...]:
        """Return the tables whose records may be in segments."""
        return self.packs, self.maps, self.versions.table

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
        found |= {blob.blob for records in (self.maps, self.manifests)
                  for blob in records.values()}
        found |= self.recent_blobs()
        return {blob_parts.whole(name) for name in found}

    def recent_blobs(self) -> set[str]:
        """Return the names of the blobs that it needs, but for old ones.

        Those are left out that only segments of records name.
        """
        found = {name for table in self.tables()
                 for segment in table.segments for name in segment.blobs}
        for pack in self.packs.recent().values():
            found |= {pack.blob, pack.index}
        for records in (self.maps.recent(), self.manifests, self.hooks,
                        self.bases):
            found |= {blob.blob for blob in records.values()}
        return {blob_parts.whole(name) for name in found}

    def replaceable_blobs(self) -> set[str]:
        """Return the names of the blobs that a save may replace."""
        return {blob.blob for records in (self.hooks, self.bases)
                for blob in records.values()}

    @property
    def is_large(self) -> bool:
        """Whether some records are in segments, which are not all read."""
        return bool(self.packs.segments or self.maps.segments)

    def largest_pack(self) -> int:
        """Return the bytes of the largest pack with its index."""
        return self.packs.totals(entries.bytes_of)[1]

    def rename(self, names: dict[str, str]) -> None:
        """Give other names to files, by the names that they have."""
        for number, pack in self.packs.recent().items():
            if pack.index in names:
                self.packs[number] = dataclasses.replace(
                    pack, blob=names.get(pack.blob, pack.blob),
                    index=names[pack.index])
        for records in (self.maps, self.manifests, self.hooks, self.bases):
            _rename(records, names)

    def bytes_stored(self) -> int:
        """Return the bytes of all blobs that this catalogue needs."""
        blobs: list[entries.Pack | entries.Blob] = [*self.packs.values()]
        for records in (self.maps, self.bases, self.manifests, self.hooks):
            blobs += records.values()
        return sum(entries.bytes_of(blob) for blob in blobs)

    def of_series(self, series: str) -> list[entries.Version]:
        """Return the versions of a series, oldest first."""
        found = [version for version in self.versions.values()
                 if version.series == series]
        return sorted(found, key=lambda version: version.number)

    def disk_format_of(self, series: str) -> str | None:
        """Return the format of a series' disk, if it was recorded."""
        return next((version.disk_format for version
                     in reversed(self.of_series(series))
                     if version.disk_format is not None), None)

    def of_token(self, token: str) -> list[entries.Version]:
        """Return the versions that the save with a token created."""
        found = [version for version in self.versions.values()
                 if version.token == token]
        return sorted(found, key=lambda version: version.number)

    def find(self, name: str) -> entries.Version:
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
            f'No version of the store has an ID that starts with {name!r}:'
            f' "diffcache version list" shows all.')

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
            'versions': _fields_of(self.versions.table.changes()),
            'packs': _fields_of(self.packs.changes()),
            'maps': _fields_of(self.maps.changes()),
            'segments': {
                name: [dataclasses.asdict(each) for each in table.segments]
                for name, table in zip(('packs', 'maps', 'versions'),
                                       self.tables())},
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
    def decode(cls, data: bytes, name: str,
               read: Callable[[str], bytes] | None = None) -> 'Catalogue':
        """Parse what :meth:`encode` returned.

        :param name: of the blob, for messages
        :param read: returns the bytes of a blob, by its name: of the segments
            of the catalogue, where these are needed
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
                head = cls._from_fields(fields, read)
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
    def _from_fields(cls, fields: dict[str, Any],
                     read: Callable[[str], bytes] | None) -> 'Catalogue':
        return cls(
            number=record_checks.number(fields['number']),
            store_id=record_checks.required_text(fields['store_id']),
            block_size=record_checks.number(fields['block_size']),
            key_check=record_checks.text(fields['key_check']),
            key_number=record_checks.number(fields['key_number']),
            key_id=record_checks.text(fields['key_id']),
            former_keys={
                record_checks.number(int(number)): bytes.fromhex(key)
                for number, key in fields['former_keys'].items()},
            next_pack=record_checks.number(fields['next_pack']),
            next_map=record_checks.number(fields['next_map']),
            next_version=record_checks.number(fields['next_version']),
            versions=version_tables.VersionTable(
                _table(fields, 'versions', entries.Version, read)),
            packs=_table(fields, 'packs', entries.Pack, read),
            maps=_table(fields, 'maps', entries.Blob, read),
            bases={base_id: record_checks.checked(entries.Blob(**blob))
                   for base_id, blob in fields['bases'].items()},
            manifests={
                version_id: record_checks.checked(entries.Blob(**blob))
                for version_id, blob in fields['manifests'].items()},
            hooks=_records(fields['hooks'], entries.Blob))


_Record = TypeVar('_Record', entries.Version, entries.Pack, entries.Blob)


def _fields_of(records: Mapping[Any, Any]
               ) -> dict[Any, dict[str, Any] | None]:
    return {key: None if record is None else dataclasses.asdict(record)
            for key, record in records.items()}


def _table(fields: dict[str, Any], name: str, kind: type[_Record],
           read: Callable[[str], bytes] | None
           ) -> record_tables.RecordTable[_Record]:
    """Return the records of a catalogue that are in a table."""
    segments = [_checked_segment(record_tables.Segment(**segment))
                for segment in fields['segments'][name]]
    numbers = [number for segment in segments
               for number in (segment.first, segment.last)]
    if numbers != sorted(numbers) or segments and read is None:
        raise ValueError('segments overlap, or cannot be read')

    def load(segment: record_tables.Segment) -> dict[int, _Record]:
        assert read is not None
        found = record_tables.read(read, segment)
        try:
            return _records(found, kind)
        except (ValueError, TypeError) as exc:
            raise exceptions.FormatError(
                f'{segment.blob} has no valid records: restore it from a copy '
                f'of the store.') from exc

    recent = fields[name].items()
    changes: dict[int, _Record | None] = {
        record_checks.number(int(number)): None
        for number, each in recent if each is None}
    changes |= _records({number: each for number, each in recent
                         if each is not None}, kind)
    return record_tables.RecordTable(changes, segments, load)


def _records(fields: dict[str, Any], kind: type[_Record]
             ) -> dict[int, _Record]:
    def record(each: dict[str, Any]) -> Any:
        if kind is entries.Version:
            return entries.Version.from_dict(each)
        return record_checks.checked(kind(**each))

    return {
        record_checks.number(int(number)): record(each)
        for number, each in fields.items()}


def _checked_segment(segment: record_tables.Segment) -> record_tables.Segment:
    for number in (segment.first, segment.last, segment.records):
        record_checks.number(number)
    for size in (segment.bytes, segment.most_bytes):
        record_checks.number(size, record_checks.MOST_SIZE)
    record_checks.refuse_other_checksums(segment.check)
    if not _SEGMENT.fullmatch(segment.blob):
        raise ValueError(f'{segment.blob!r} is no name of a segment')
    return segment


def _rename(records: MutableMapping[Any, entries.Blob],
            names: dict[str, str]) -> None:
    recent = (records.recent() if isinstance(
        records, record_tables.RecordTable) else records)
    for key, blob in list(recent.items()):
        if blob.blob in names:
            records[key] = dataclasses.replace(blob, blob=names[blob.blob])


def digest_of(data: bytes) -> str:
    """Return the checksum that a catalogue's blob ends with, in hex."""
    return data[-hashlib.sha256().digest_size:].hex()


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
