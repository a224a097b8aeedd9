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
"""Comparing a disk with a version, and choosing how to roll it back.

In place only what differs is written, the *reverse delta* of the CloudVS
paper, section 3.7; where that is much, writing new disks is faster.
"""

import dataclasses
from typing import Any
from typing import Callable
from typing import Sequence

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import disk_files
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.store.access import shared_commits
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.indexes import base_images

Progress = Callable[[int, int], object] | None
# How disks are rolled back; ``AUTO`` chooses the faster method.
ROLLBACK, REBUILD, AUTO = 'rollback', 'rebuild', 'auto'
METHODS = (AUTO, ROLLBACK, REBUILD)
# Writing in place moves the disk's head; a rebuild writes sequentially.
_IN_PLACE_FACTOR = 2.0
# Replacing a range of blocks costs at least a write of this many bytes.
_WRITE_OVERHEAD = 16 << 10
# A new disk has tables, and is synced under a name of its own.
_DISK_OVERHEAD = 1 << 20


@dataclasses.dataclass(frozen=True)
class RollbackPlan:
    """The bytes that a rollback would write, and those of a rebuild."""

    version: str
    # Ranges of blocks (first, count).
    ranges: list[tuple[int, int]]
    bytes_differing: int
    bytes_rebuild: int
    bytes_read: int

    @property
    def cheaper(self) -> str:
        """The faster method: ``rollback`` or ``rebuild``."""
        return choose_method([self])

    def summary(self) -> dict[str, Any]:
        """Return the fields that users see."""
        return {
            'version': self.version, 'dry_run': True,
            'bytes_to_write': self.bytes_differing,
            'ranges': len(self.ranges), 'bytes_rebuild': self.bytes_rebuild,
            'cheaper': self.cheaper, 'bytes_read': self.bytes_read}


def _costs(plans: Sequence[RollbackPlan]) -> tuple[int, int]:
    """Estimate both methods' costs, in bytes written sequentially."""
    in_place = sum(plan.bytes_differing * _IN_PLACE_FACTOR
                   + len(plan.ranges) * _WRITE_OVERHEAD for plan in plans)
    rebuild = sum(plan.bytes_rebuild + _DISK_OVERHEAD for plan in plans)
    return int(in_place), rebuild


def choose_method(plans: Sequence[RollbackPlan]) -> str:
    """Return the faster method for all disks."""
    in_place, rebuild = _costs(plans)
    return ROLLBACK if in_place <= rebuild else REBUILD


def explain(plans: Sequence[RollbackPlan]) -> str:
    """Explain the choice of the faster method."""
    in_place, rebuild = _costs(plans)
    return (f'{sum(plan.bytes_differing for plan in plans)} bytes in'
            f' {sum(len(plan.ranges) for plan in plans)} ranges cost as much'
            f' as {in_place} bytes written sequentially; new disks cost'
            f' {rebuild}.')


def plan(access: store_reader.StoreReader, name: str,
         request: save_request.SaveRequest, progress: Progress = None
         ) -> RollbackPlan:
    """Return what rolling a disk back would write; change nothing.

    :param request: the disk, its series and its base image
    """
    head = access.head()
    version = head.find(name)
    base_images.check(version, request.base, request.base_id)
    with access.opened(head) as opened:
        return compare(opened, head, version, request, progress)


def _find_anchor(opened: _native.BlockStore, head: catalogue.Catalogue,
                 version: entries.Version, info: dict[str, Any]
                 ) -> tuple[entries.Version, entries.Snapshot] | None:
    """Return the newest version whose state a snapshot of the disk has."""
    existing = {(name, fingerprint) for _, name, fingerprint
                in info['snapshots']}
    for candidate in sorted(head.versions.values(),
                            key=lambda each: -each.number):
        for snapshot in candidate.snapshots:
            if ((snapshot.name, snapshot.fingerprint) in existing
                    and base_images.same(candidate.base, version.base)
                    and shared_commits.is_usable(opened, candidate)):
                return candidate, snapshot
    return None


def compare(opened: _native.BlockStore, head: catalogue.Catalogue,
            version: entries.Version, request: save_request.SaveRequest,
            progress: Progress) -> RollbackPlan:
    """Find in what a disk's present state differs from a version.

    :raises InvalidInput: the disk and the version have different sizes
    """
    info = snapshots.disk_info(request.disk, request.disk_format)
    if info['size'] != version.size:
        raise exceptions.InvalidInput(
            f'Cannot roll back {request.disk}: it has {info["size"]} bytes '
            f'and version {version.id} has {version.size}. Resize the disk, '
            f'or restore the version to a new file.')
    against, snapshot = _find_anchor(
        opened, head, version, info) or (version, None)
    with (disk_files.reading(request.disk) as opened_disk,
          native_errors.translated()):
        source = _native.DiskSource(
            opened_disk, info['format'], has_base=version.base is not None,
            base_id=version.base.id if version.base else None,
            rate=request.rate)
        found = opened.compare_disk(
            source,
            _native.Reference(
                against.root, against.size,
                (snapshot.name, snapshot.fingerprint) if snapshot else None),
            _native.Reference(version.root, version.size), progress)
    differing = sum(count for _, count in found.ranges)
    return RollbackPlan(version.id, found.ranges, differing * head.block_size,
                        found.blocks_stored * head.block_size,
                        found.bytes_read)
