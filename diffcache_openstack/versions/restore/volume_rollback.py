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
"""Rolling volumes of a stopped server back, in place.

QEMU has them open for this and nothing else: it serves the state that is
compared, and then takes what differs.
"""

import contextlib
import dataclasses
import time
from typing import Callable
from typing import Iterator
from typing import Sequence

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import nbd
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.guests import volume_points
from diffcache_openstack.versions.restore import rollback
from diffcache_openstack.versions.restore import rollback_plan
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries


@dataclasses.dataclass(frozen=True)
class Target:
    """A volume, and the version that it is rolled back to."""

    volume: volume_points.Volume
    version: str


@dataclasses.dataclass(frozen=True)
class Opened:
    """What has volumes open, and where QEMU keeps their state."""

    guest: snapshots.Guest
    scratch: volume_points.Scratch


@dataclasses.dataclass(frozen=True)
class _Compared:
    """A volume that was compared with its version."""

    volume: volume_points.Volume
    version: entries.Version
    plan: rollback_plan.RollbackPlan


class VolumeRollback:
    """Compares volumes with versions, and writes what differs.

    What a larger volume has behind the version's end stays. A rollback that
    was interrupted is repeated, and writes the rest.

    :param rate: bytes per second that are read of a volume at most
    """

    def __init__(self, access: store_reader.StoreReader,
                 targets: Sequence[Target], opened: Opened,
                 progress: rollback_plan.Progress = None,
                 rate: float | None = None) -> None:
        self._access = access
        self._targets = targets
        self._opened = opened
        self._progress = progress
        self._rate = rate

    def plan(self) -> list[rollback_plan.RollbackPlan]:
        """Return what a rollback would write; change nothing.

        Errors are those of :meth:`run`.
        """
        head = self._access.head()
        with self._access.opened(head) as opened:
            return [each.plan for each in self._compare(opened, head)]

    def run(self, begin: Callable[[], None]) -> list[rollback.DiskRollback]:
        """Write what differs, after all volumes were compared.

        :param begin: called in between; raises an error if nothing is to be
            written
        :raises NotFound: a version does not exist, or QEMU lacks a volume
        :raises InvalidInput: a volume is smaller than its version
        :raises IntegrityError: the store is damaged
        :raises ServiceUnavailable: QEMU has ended
        """
        head = self._access.head()
        with self._access.opened(head) as opened:
            compared = self._compare(opened, head)
            begin()
            return [self._write(opened, each) for each in compared]

    def _compare(self, opened: _native.BlockStore, head: catalogue.Catalogue
                 ) -> list[_Compared]:
        with self._kept() as points:
            found = []
            for target in self._targets:
                version = head.find(target.version)
                export = points.export(target.volume.id)
                if export.size < version.size:
                    raise exceptions.InvalidInput(
                        f'Cannot roll back volume {target.volume.id}: it has'
                        f' {export.size} bytes and version {version.id} has'
                        f' {version.size}. Extend the volume.')
                with points.reading(target.volume.id):
                    plan = self._compare_one(opened, head, version, export)
                found.append(_Compared(target.volume, version, plan))
            return found

    def _compare_one(self, opened: _native.BlockStore,
                     head: catalogue.Catalogue, version: entries.Version,
                     export: volume_points.Export
                     ) -> rollback_plan.RollbackPlan:
        present = _native.Reference(version.root, version.size)
        with native_errors.translated():
            source = _native.DiskSource(
                (export.socket, export.name, export.scratch), 'raw',
                rate=self._rate)
            found = opened.compare_disk(source, present, present,
                                        self._progress)
        differing = sum(count for _, count in found.ranges)
        return rollback_plan.RollbackPlan(
            version.id, found.ranges, differing * head.block_size,
            found.blocks_stored * head.block_size, found.bytes_read)

    @contextlib.contextmanager
    def _kept(self) -> Iterator[volume_points.VolumePoints]:
        """Have QEMU serve the volumes' state for a ``with`` block."""
        points = volume_points.VolumePoints(
            [target.volume for target in self._targets], self._opened.scratch)
        with snapshots.connect(self._opened.guest.monitor) as monitor:
            try:
                points.prepare(monitor)
                points.keep(monitor)
                points.publish(monitor)
                yield points
            finally:
                points.remove(monitor)

    def _write(self, opened: _native.BlockStore, each: _Compared
               ) -> rollback.DiskRollback:
        started = time.monotonic()
        written = 0
        if each.plan.ranges:
            with snapshots.connect(self._opened.guest.monitor) as monitor, \
                    volume_points.writing(monitor, each.volume) as connected:
                written = self._write_to(opened, each, connected)
        return rollback.DiskRollback(
            each.version.id, None, each.plan.bytes_differing, written,
            each.plan.bytes_read, round(time.monotonic() - started, 3))

    def _write_to(self, opened, each, connected) -> int:
        disk = nbd.open_export(connected)
        try:
            with native_errors.translated():
                written = opened.write_ranges(
                    _native.Content(each.version.root, each.version.size),
                    each.plan.ranges, disk, self._progress)
                disk.flush()
        finally:
            with native_errors.translated():
                disk.close()
        return written
