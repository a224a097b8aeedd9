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
"""What a catalogue records of versions, packs and other blobs."""

import dataclasses
from typing import Any

from diffcache_openstack.versions.store.catalogue import record_checks

# A tree's root: kind (0 zeroes, 1 the base image, 2 a node), map, index.
Root = tuple[int, int, int]
ZERO_ROOT: Root = (0, 0, 0)
BASE_ROOT: Root = (1, 0, 0)
_MOST_KIND = 2


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
        snapshots = tuple(record_checks.checked(Snapshot(**each))
                          for each in fields['snapshots'])
        kind, map_id, index = fields['root']
        root = (record_checks.number(kind, _MOST_KIND),
                record_checks.number(map_id), record_checks.number(index))
        return record_checks.checked(cls(**(fields | {
            'root': root, 'snapshots': snapshots,
            'base': None if base is None else record_checks.checked(
                Base(**base))})))


def bytes_of(record: Pack | Blob | Version) -> int:
    """Return the bytes of the blobs that a record names."""
    if isinstance(record, Version):
        return 0
    if isinstance(record, Pack):
        return record.data_bytes + record.index_bytes
    return record.bytes
