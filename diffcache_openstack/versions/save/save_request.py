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
"""The request to save a disk."""

import contextlib
import dataclasses
import pathlib

from diffcache_openstack.versions.guests import guest_views
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.guests import volume_points

# Blocks of a chunk group, as in the CloudVS paper's experiment 5.
GROUP_BLOCKS = 500
# With alpha 'auto' a restore of any version costs at most this multiple of
# what it would cost if the version were stored as differential.
FACTOR = 1.15


@dataclasses.dataclass(frozen=True)
class VolumePoint:
    """One moment of one of a running guest's volumes."""

    points: volume_points.VolumePoints
    volume_id: str

    @property
    def export(self) -> volume_points.Export:
        """Where it is read, once it is kept."""
        return self.points.export(self.volume_id)

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """See :meth:`.volume_points.VolumePoints.reading`."""
        return self.points.reading(self.volume_id)


@dataclasses.dataclass(frozen=True)
class SaveRequest:
    """A disk to save, and how."""

    disk: pathlib.Path
    series: str
    # A version's id; the series' newest if None.
    parent: str | None = None
    # 0 (incremental) to 1 (differential), or 'auto'.
    alpha: float | str = 0.0
    # The internal snapshot to save. Taken if there is none of this name.
    snapshot: str | None = None
    # Bytes per second that are read of the disk at most.
    rate: float | None = None
    # The disk's base image, and its content id if the caller knows it: then
    # the image is not read to compute it.
    base: pathlib.Path | None = None
    base_id: str | None = None
    # Takes internal snapshots; None: the disk is read as it is.
    snapshotter: snapshots.Snapshotter | None = None
    # With alpha 'auto': how much a restore may cost, as a multiple of what a
    # differential version's would.
    factor: float = FACTOR
    # Nothing writes to the disk meanwhile: it needs no view either.
    without_snapshot: bool = False
    # ``raw`` or ``qcow2``; if None it is detected by the first bytes, and a
    # header that names a backing file is refused.
    disk_format: str | None = None
    # Read in place of raw disks.
    views: guest_views.GuestViews | None = None
    group_blocks: int = GROUP_BLOCKS
    # Keep a manifest of the version, though none of an earlier one is kept.
    manifest: bool = False
    # Of a volume that the caller has opened; ``disk`` is its name then.
    descriptor: int | None = None
    # Of a volume of a running guest; ``disk`` is its name then.
    point: VolumePoint | None = None
