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
"""Records of a catalogue by number, most of them in blobs of their own.

A catalogue is read and written whole at each commit. So it has only the
records that were added or changed last; the others are in *segments*: blobs of
successive records, which are never changed. A segment is read when a record of
it is needed.
"""

import bisect
import collections.abc
import dataclasses
import json
import logging
from typing import Any
from typing import Callable
from typing import Generic
from typing import Iterator
from typing import Mapping
from typing import TypeVar
import zlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import checksums

LOG = logging.getLogger(__name__)

_MAGIC = b'DCVRECS1'
# Records that a catalogue has itself, at most; and those of a segment.
MOST_RECENT = 256
SEGMENT_RECORDS = 512
_MOST_SEGMENT_BYTES = 16 << 20

_Record = TypeVar('_Record')


@dataclasses.dataclass(frozen=True)
class Segment:
    """Successive records in a blob, and what counts of them together."""

    # What the names of the blob and of its copy begin with.
    blob: str
    # The checksum that it ends with, in hex.
    check: str
    # Numbers of the first and the last record.
    first: int
    last: int
    records: int
    # Bytes of all that the records name, and of the one that has most.
    bytes: int
    most_bytes: int

    @property
    def blobs(self) -> tuple[str, str]:
        """Return the names of the blob, and of a copy with the same bytes."""
        return f'{self.blob}a', f'{self.blob}b'


class RecordTable(collections.abc.MutableMapping[int, _Record],
                  Generic[_Record]):
    """Records by number, ascending.

    :param recent: those that are in no segment, or not as they are there; None
        for those that are gone
    :param segments: ascending; they do not overlap
    :param load: returns the records of a segment
    """

    def __init__(self, recent: dict[int, _Record | None] | None = None,
                 segments: list[Segment] | None = None,
                 load: Callable[[Segment], dict[int, _Record]] | None = None
                 ) -> None:
        self._recent = dict(recent or {})
        self._segments = list(segments or [])
        self._firsts = [segment.first for segment in self._segments]
        self._load = load
        self._read: dict[str, dict[int, _Record]] = {}

    def _of(self, segment: Segment) -> dict[int, _Record]:
        if segment.blob not in self._read:
            assert self._load is not None
            self._read[segment.blob] = self._load(segment)
        return self._read[segment.blob]

    def _kept(self, number: int) -> _Record | None:
        """Return the record that a segment has."""
        at = bisect.bisect_right(self._firsts, number) - 1
        if at < 0 or number > self._segments[at].last:
            return None
        return self._of(self._segments[at]).get(number)

    def __getitem__(self, number: int) -> _Record:
        found = (self._recent[number] if number in self._recent
                 else self._kept(number))
        if found is None:
            raise KeyError(number)
        return found

    def __setitem__(self, number: int, record: _Record) -> None:
        self._recent[number] = record

    def __delitem__(self, number: int) -> None:
        if number not in self:
            raise KeyError(number)
        self._recent.pop(number, None)
        if self._kept(number) is not None:
            self._recent[number] = None

    def __iter__(self) -> Iterator[int]:
        kept = {number for segment in self._segments
                for number in self._of(segment)}
        gone = {number for number, record in self._recent.items()
                if record is None}
        return iter(sorted((kept | self._recent.keys()) - gone))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f'RecordTable({self._recent!r}, {self._segments!r})'

    def copy(self) -> 'RecordTable[_Record]':
        """Return a table that is changed without changing this one."""
        copied = RecordTable(self._recent, self._segments, self._load)
        copied._read = self._read
        return copied

    def differences(self, other: 'RecordTable[_Record]') -> set[int]:
        """Return the numbers of records that another table has otherwise.

        Segments that both have are not read.
        """
        kept = ({segment.blob for segment in self._segments}
                & {segment.blob for segment in other._segments})
        numbers = self._recent.keys() | other._recent.keys()
        for table in (self, other):
            for segment in table._segments:
                if segment.blob not in kept:
                    numbers |= table._of(segment).keys()
        return {number for number in numbers
                if self.get(number) != other.get(number)}

    @property
    def segments(self) -> list[Segment]:
        """Return the segments, which are empty for a small table."""
        return list(self._segments)

    def recent(self) -> dict[int, _Record]:
        """Return the records that were added or changed last."""
        return {number: record for number, record in self._recent.items()
                if record is not None}

    def changes(self) -> dict[int, _Record | None]:
        """Return what a catalogue has beside the segments."""
        return dict(self._recent)

    def totals(self, size: Callable[[_Record], int]) -> tuple[int, int]:
        """Return the bytes of all records, and those of the largest.

        Where records of segments were changed, those count that they were.

        :param size: returns the bytes of one
        """
        sizes = [size(record) for record in self.recent().values()]
        kept = [segment.bytes for segment in self._segments]
        most = [segment.most_bytes for segment in self._segments]
        return sum(kept) + sum(sizes), max((*most, *sizes), default=0)

    def is_full(self) -> bool:
        """Return whether a catalogue should not have this many records."""
        return len(self._recent) > MOST_RECENT

    def replace_segments(
            self, segments: list[tuple[Segment, dict[int, _Record]]]) -> None:
        """Have all records in other segments, and none beside.

        :param segments: with the records of new ones
        """
        self._segments = [segment for segment, _ in segments]
        self._firsts = [segment.first for segment in self._segments]
        self._read = self._read | {segment.blob: records for segment, records
                                   in segments if records}
        self._recent.clear()

    def packed(self) -> list[tuple[Segment | None, dict[int, _Record]]]:
        """Divide all records into segments: those that stay, and new ones.

        :returns: segments that stay, with no records, and records of new ones
        """
        out: list[tuple[Segment | None, dict[int, _Record]]] = []
        changes = dict(sorted(self._recent.items()))
        for at, segment in enumerate(self._segments):
            is_last = at + 1 == len(self._segments)
            end = None if is_last else self._segments[at + 1].first
            own = {number: changes[number] for number in changes
                   if end is None or number < end}
            for number in own:
                del changes[number]
            if not own:
                out.append((segment, {}))
                continue
            if is_last and min(own) > segment.last \
                    and segment.records >= SEGMENT_RECORDS:
                out.append((segment, {}))
                merged: dict[int, _Record | None] = {}
            else:
                merged = dict(self._of(segment))
            merged |= own
            out += _divided(merged)
        return out + _divided(changes)


def _divided(records: dict[int, _Record | None]
             ) -> list[tuple[Segment | None, dict[int, _Record]]]:
    left = sorted((number, record) for number, record in records.items()
                  if record is not None)
    return [(None, dict(left[at:at + SEGMENT_RECORDS]))
            for at in range(0, len(left), SEGMENT_RECORDS)]


def encode(records: Mapping[int, Any]) -> bytes:
    """Return records, which are dataclasses, as the bytes of a segment."""
    text = json.dumps({number: dataclasses.asdict(record) for number, record
                       in records.items()}, separators=(',', ':'))
    return checksums.append(_MAGIC + zlib.compress(text.encode(), 6))


def read(read_blob: Callable[[str], bytes], segment: Segment
         ) -> dict[str, Any]:
    """Return what :func:`decode` does, of the first copy that is intact.

    :param read_blob: returns the bytes of a blob, by its name
    :raises NotFound: the second copy is missing, and the first damaged
    """
    first, second = segment.blobs
    try:
        return decode(read_blob(first), segment)
    except (exceptions.NotFound, exceptions.IntegrityError) as exc:
        LOG.warning('Reading the copy of a segment of the catalogue: %s', exc)
        return decode(read_blob(second), segment)


def decode(data: bytes, segment: Segment) -> dict[str, Any]:
    """Return the fields of the records of a segment, by number.

    :raises IntegrityError: it is not the one that the catalogue names
    """
    body = checksums.strip(data, segment.blob)
    if data[len(body):].hex() != segment.check:
        raise exceptions.IntegrityError(
            f'{segment.blob} is not the one that the catalogue names.')
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(body[len(_MAGIC):], _MOST_SEGMENT_BYTES)
        fields = json.loads(text)
    except (zlib.error, ValueError) as exc:
        raise _invalid(segment) from exc
    if not body.startswith(_MAGIC) or not isinstance(fields, dict):
        raise _invalid(segment)
    return fields


def _invalid(segment: Segment) -> exceptions.FormatError:
    return exceptions.FormatError(
        f'{segment.blob} has no valid records: restore it from a copy of the '
        f'store.')
