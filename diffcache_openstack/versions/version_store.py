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
"""Stores of versions, the interface for the toolbox and the service.

:class:`VersionStore` may be used from several threads; whether two writers may
use one store at a time depends on its blob store (:meth:`BlobStore.lock`).
"""

import dataclasses
import pathlib
import threading
from typing import Any
from typing import Callable
from typing import Sequence

from diffcache_openstack.common import exceptions
from diffcache_openstack.runtime import directories
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.disks import rollback_journal
from diffcache_openstack.versions.guests import guest_views
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.guests import volume_points
from diffcache_openstack.versions.restore import descriptions
from diffcache_openstack.versions.restore import reading
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.restore import rollback
from diffcache_openstack.versions.restore import rollback_plan
from diffcache_openstack.versions.restore import volume_rollback
from diffcache_openstack.versions.restore import volumes
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.copies import blob_copying
from diffcache_openstack.versions.store.copies import replication
from diffcache_openstack.versions.store.inbox import acceptance
from diffcache_openstack.versions.store.indexes import manifests
from diffcache_openstack.versions.store.upkeep import key_rotation
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import retention
from diffcache_openstack.versions.store.upkeep import verification


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk to save or roll back."""

    path: pathlib.Path
    # Name of the versions of this disk.
    series: str
    # Its base image, raw or qcow2, if it has one.
    base: pathlib.Path | None = None
    # The base's content id, if it is known; otherwise the image is read.
    base_id: str | None = None
    # The version to compare with; the series' newest if None.
    parent: str | None = None
    # An internal snapshot to save, taken if there is none of this name; if
    # None the store chooses a name, and keeps the last one.
    snapshot: str | None = None
    # Read the disk itself: nothing writes to it meanwhile.
    without_snapshot: bool = False
    # ``raw`` or ``qcow2``. If None it is the one that a version of the series
    # records, or else detected by the first bytes, which the guest of a raw
    # disk may have written: then a header that names a backing file is
    # refused.
    format: str | None = None
    # Keep manifests of its versions from this one on, see :mod:`.manifests`.
    manifest: bool = False


@dataclasses.dataclass(frozen=True)
class Job:
    """Progress, rate and cancellation of a long job."""

    # Called with (bytes done, bytes in total), about five times a second,
    # from any thread. An exception ends the job and is passed on.
    progress: Callable[[int, int], object] | None = None
    # Bytes per second that are read of a disk at most.
    rate: float | None = None
    # Set from any thread: the job ends with ``Cancelled``.
    cancel: threading.Event | None = None

    def report(self, done: int, total: int) -> None:
        """Report progress to the caller.

        :raises Cancelled: the caller cancelled the job
        """
        if self.progress is not None:
            self.progress(done, total)
        if self.cancel is not None and self.cancel.is_set():
            raise exceptions.Cancelled('The caller cancelled the job.')


_QUIET = Job()


@dataclasses.dataclass(frozen=True)
class GuestVolume:
    """A volume of a guest, to save with its disks."""

    volume: volume_points.Volume
    # Name of the versions of this volume.
    series: str


@dataclasses.dataclass(frozen=True)
class GuestVolumes:
    """Volumes of a guest, and where QEMU keeps their moment."""

    volumes: Sequence[GuestVolume]
    scratch: volume_points.Scratch
    # What has those of a stopped guest open, without running.
    opened: snapshots.Guest | None = None
    # Raises an error if the stopped guest was started.
    check: Callable[[], None] | None = None


class VersionStore:
    """A store of versions.

    Methods raise what :mod:`diffcache_openstack.common.exceptions` has:
    ``NotFound`` (no such version, disk, snapshot), ``InvalidInput`` (a disk
    that is refused, a wrong key), ``Busy`` (another writer, or a guest that
    has the disk), ``BaseMismatch``, ``IntegrityError`` (the store is
    damaged), ``NoSpace``, ``Cancelled``, ``ServiceUnavailable`` (a monitor
    or an object server). The retryable ones may be tried again as they are.
    """

    def __init__(self, access: store_access.StoreAccess) -> None:
        self._access = access

    @classmethod
    def open(cls, store: base.BlobStore, key: bytes | None = None, *,
             block_size: int = store_access.BLOCK_SIZE,
             level: int = store_access.LEVEL) -> 'VersionStore':
        """Open the versions in a blob store.

        :param key: 32 bytes; None for a store in the clear
        :param block_size: for a store that does not exist yet
        :param level: zstd level of new packs
        """
        return cls(store_access.StoreAccess(store, key, block_size, level))

    def versions(self, series: str | None = None) -> list[entries.Version]:
        """Return all versions, or those of a series, oldest first.

        :raises NotFound: nothing was saved to the store yet
        """
        head = self._access.head()
        return sorted((version for version in head.versions.values()
                       if series in (None, version.series)),
                      key=lambda version: version.number)

    def version(self, name: str) -> entries.Version:
        """Return the version whose id is, or starts with, a name."""
        return self._access.head().find(name)

    def bytes_stored(self) -> int:
        """Return the bytes of all that the store holds."""
        return self._access.head_or_new().bytes_stored()

    def save(self, disks: Sequence[Disk], guest: snapshots.Guest | None = None,
             alpha: float | str = 0.0, job: Job = _QUIET,
             token: str | None = None,
             volumes: GuestVolumes | None = None) -> list[entries.Version]:
        """Save the state of disks at one moment: all become versions, or none.

        A running guest's raw disks are read from copies that share their
        extents, created while it is paused; those of a stopped one, too, where
        that is possible, so that it may be started meanwhile.
        The snapshot of its qcow2 disks is taken in the same pause.

        :param guest: the running guest that has the disks, if one has
        :param alpha: 0 (incremental) to 1 (differential), or ``'auto'``
        :param token: identifies this save: if it was completed before, its
            versions are returned; if it was interrupted after its snapshot,
            the state of that moment is saved, unless it has volumes
        :param volumes: of the guest
        :returns: the versions, in the order of the disks and the volumes
        """
        requests = self._requests(disks, guest, alpha, job)
        raw = [request.disk for request in requests
               if request.snapshotter is None and not request.without_snapshot]
        points = opened = None
        if volumes is not None:
            opened = volumes.opened
            points = volume_points.VolumePoints(
                [each.volume for each in volumes.volumes], volumes.scratch,
                volumes.check)
            requests += [save_request.SaveRequest(
                pathlib.Path(each.volume.id), each.series, alpha=alpha,
                rate=job.rate, disk_format='raw',
                point=save_request.VolumePoint(points, each.volume.id))
                for each in volumes.volumes]
        with guest_views.GuestViews(raw, guest, token, points,
                                    opened) as views:
            return saving.save_disks(
                self._access,
                [dataclasses.replace(request, views=views)
                 if request.disk in raw or request.point else request
                 for request in requests], job.report, token)

    def save_volume(self, descriptor: int, series: str, *,
                    alpha: float | str = 0.0, job: Job = _QUIET,
                    token: str | None = None) -> entries.Version:
        """Save a volume that the caller has opened, and that does not change.

        :param descriptor: of a block device or a raw file
        :param series: the name of the volume's versions
        :param token: as for :meth:`save`
        """
        request = save_request.SaveRequest(
            directories.descriptor_path(descriptor), series, alpha=alpha,
            rate=job.rate, disk_format='raw', descriptor=descriptor)
        return saving.save_disks(self._access, [request], job.report,
                                 token)[0]

    def write_volume(self, name: str, descriptor: int, job: Job = _QUIET
                     ) -> volumes.Written:
        """Write a version to a volume; see :func:`.volumes.write`."""
        return volumes.write(self._access, name, descriptor, job.report)

    def volume_rollback(self, targets: Sequence[volume_rollback.Target],
                        opened: volume_rollback.Opened, job: Job = _QUIET
                        ) -> volume_rollback.VolumeRollback:
        """Return what rolls volumes of a stopped guest back to versions."""
        return volume_rollback.VolumeRollback(
            self._access, targets, opened, job.report, job.rate)

    def saved_with(self, token: str) -> list[str]:
        """Return the ids of the versions of the save that had a token."""
        return [version.id for version
                in self._access.head_or_new().of_token(token)]

    def _requests(self,
                  disks: Sequence[Disk],
                  guest: snapshots.Guest | None,
                  alpha: float | str,
                  job: Job) -> list[save_request.SaveRequest]:
        disks = [self._with_format(disk) for disk in disks]
        together = _running(disks, guest)
        return [save_request.SaveRequest(
            disk.path, disk.series, disk.parent, alpha, disk.snapshot,
            job.rate, disk.base, disk.base_id, _snapshotter(disk, together),
            without_snapshot=disk.without_snapshot, disk_format=disk.format,
            manifest=disk.manifest) for disk in disks]

    def _with_format(self, disk: Disk) -> Disk:
        if disk.format is not None:
            return disk
        recorded = self._access.head_or_new().disk_format_of(disk.series)
        return dataclasses.replace(disk, format=recorded)

    def restore(self, name: str, output: pathlib.Path,
                disk_format: str | None = None,
                base: pathlib.Path | None = None,
                base_id: str | None = None, job: Job = _QUIET
                ) -> restoring.Restored:
        """Write a version to a new disk, which appears when it is complete.

        :param disk_format: ``raw`` or ``qcow2``; if None raw, and qcow2 for
            a version with a base
        :param base: the version's base image, if it has one; a qcow2 file
            names it as its backing file
        :param base_id: its content id, if it is known; otherwise the image
            is read
        """
        chosen = disk_format or ('qcow2' if base else 'raw')
        return restoring.restore(
            self._access, name, restoring.Output(output, chosen), base,
            base_id, job.report)

    def export(self, name: str, output: restoring.Output,
               base: pathlib.Path | None = None, base_id: str | None = None,
               job: Job = _QUIET) -> restoring.Restored:
        """Write a version to a new file without a backing file: an image.

        The parameters are those of :meth:`restore`.
        """
        alone = dataclasses.replace(output, backed=False)
        return restoring.restore(self._access, name, alone, base, base_id,
                                 job.report)

    def create_manifest(self, name: str, output: pathlib.Path,
                        base: pathlib.Path | None = None,
                        base_id: str | None = None, job: Job = _QUIET
                        ) -> dict[str, Any]:
        """Write the manifest of a version to a file; see :mod:`.manifests`.

        :param base: the version's base image, if it has one
        :param base_id: its content id, if it is known; otherwise the image
            is read
        :returns: ``content_id``, ``size``, ``data_size``, ``leaves``,
            ``zero_leaves``
        """
        return manifests.create(self._access, name, output, base, base_id,
                                job.report)

    def keep_manifest(self, name: str, path: pathlib.Path) -> None:
        """Keep a manifest of a version; later saves carry it on."""
        manifests.keep(self._access, name, path)

    def load_manifest(self, name: str, output: pathlib.Path) -> None:
        """Write the manifest that the store keeps of a version to a file.

        :raises NotFound: it keeps none
        """
        head = self._access.head()
        manifests.load(self._access, head, head.find(name), output)

    def read(self, name: str, base: pathlib.Path | None = None
             ) -> reading.VersionReader:
        """Open a version to read it at any place.

        :param base: its base image, if it has one
        """
        return reading.VersionReader(self._access, name, base)

    def describe(self, name: str) -> descriptions.Described:
        """Open what a version is read from, for diffcached."""
        return descriptions.describe(self._access, name)

    def write_description(self, name: str, output: pathlib.Path) -> bool:
        """Write where a version's blocks are to a file, for diffcached.

        :returns: False if the store has a key, or no files on this host
        """
        return descriptions.write(self._access, name, output)

    def plan_rollback(self, name: str, disk: Disk, job: Job = _QUIET
                      ) -> rollback_plan.RollbackPlan:
        """Return what rolling a disk back would write; change nothing."""
        [request] = self._requests([disk], None, 0.0, job)
        return rollback_plan.plan(self._access, name, request, job.report)

    def roll_back(self, name: str, disk: Disk, keep: bool = True,
                  job: Job = _QUIET) -> rollback.DiskRollback:
        """Roll the disk of a stopped guest back to a version, in place.

        After a crash the same call resumes; see :meth:`unfinished_rollback`.

        :param keep: save the state before as a version of the disk's series
        """
        [request] = self._requests([disk], None, 0.0, job)
        return rollback.roll_back(self._access, name, request, keep,
                                  job.report)

    def roll_back_disks(self, targets: Sequence[tuple[str, Disk]],
                        method: str = rollback_plan.AUTO, job: Job = _QUIET
                        ) -> rollback.RollbackResult:
        """Roll the disks of a stopped guest back to versions: all or none.

        After a crash the same call resumes; see :meth:`unfinished_rollback`.

        :param targets: versions' names, and the disks
        :param method: ``rollback`` in place, ``rebuild``, or ``auto`` for the
            cheaper one
        """
        disks = [disk for _, disk in targets]
        requests = self._requests(disks, None, 0.0, job)
        return rollback.roll_back_disks(
            self._access, [(name, request) for (name, _), request
                           in zip(targets, requests)], method,
            progress=job.report)

    @staticmethod
    def unfinished_rollback(
            disk: pathlib.Path) -> dict[str, str | None] | None:
        """Return what an interrupted rollback of a disk was doing, if any.

        The keys are ``version``, ``kept`` (the version that has the state
        before, or None) and ``series``. Such a disk must not be started.
        """
        return rollback_journal.read(disk)

    def diff(self, old: str, new: str) -> restoring.Difference:
        """Return the blocks in which two versions differ."""
        return restoring.diff(self._access, old, new)

    def verify(self, job: Job = _QUIET) -> verification.Verified:
        """Read all that the store holds, and report what is damaged."""
        return verification.verify(self._access, job.report)

    def delete(self, names: Sequence[str]) -> list[str]:
        """Delete versions, all or none; prune frees their space."""
        return pruning.delete(self._access, names)

    def prune(self, policies: dict[str | None, retention.Policy]
              | None = None, rule: pruning.PruneRule = pruning.PruneRule(),
              dry_run: bool = False, job: Job = _QUIET) -> pruning.Pruned:
        """Delete versions that no policy keeps; free dead space.

        :param policies: by series; None means all others
        :param rule: which packs are rewritten
        """
        return pruning.prune(self._access, policies, rule, dry_run, job.report)

    def accept(self, inbox: base.BlobStore, rules: acceptance.Rules,
               job: Job = _QUIET) -> acceptance.Accepted:
        """Accept what hosts that may only add have put into an inbox."""
        return acceptance.accept(self._access, inbox, rules, job.report)

    def lag(self, copy: base.BlobStore) -> replication.Lag:
        """Return what a copy of the store lacks."""
        return replication.lag(self._access.head(), copy)

    def replicate(self, copy: base.BlobStore, job: Job = _QUIET
                  ) -> replication.Replicated:
        """Have a copy follow the store."""
        return replication.replicate(self._access, copy,
                                     blob_copying.Work(job.report, job.rate))

    def rebuild(self, target: base.BlobStore, job: Job = _QUIET
                ) -> replication.Replicated:
        """Create a store that was lost, of this one, which is its copy."""
        return replication.rebuild(self._access, target,
                                   blob_copying.Work(job.report, job.rate))

    def repair(self, copy: base.BlobStore, damaged: Sequence[str]
               ) -> list[str]:
        """Replace damaged blobs by those of a copy; return which."""
        return replication.repair(self._access, copy, damaged)

    def keys(self) -> key_rotation.KeyState:
        """Return which keys the store has, and what is left to rewrite."""
        return key_rotation.state(self._access.head())

    def has_key(self, key: bytes) -> bool:
        """Return whether the store is opened with a key."""
        return self._access.key == key

    def rotate_key(self, new: bytes, key_id: str | None = None
                   ) -> 'VersionStore':
        """Replace the key; return the store opened with the new one.

        :param new: 32 bytes
        :param key_id: its id in the key manager, if one keeps it
        """
        return VersionStore(key_rotation.rotate(self._access, new, key_id))

    def rewrite_keys(self, most_bytes: float, job: Job = _QUIET
                     ) -> key_rotation.KeyState:
        """Seal some packs that have a former key with the present one."""
        return key_rotation.rewrite(self._access, most_bytes, job.report)

    def rewrite_all_keys(self, job: Job = _QUIET) -> key_rotation.KeyState:
        """Seal all packs that have a former key with the present one."""
        return key_rotation.rewrite_all(self._access, job.report, job.rate)

    def retire_keys(self) -> key_rotation.KeyState:
        """Drop former keys, which no pack has any more."""
        return key_rotation.retire(self._access)


def _running(disks: Sequence[Disk], guest: snapshots.Guest | None
             ) -> snapshots.RunningSnapshotter | None:
    """Return what takes one snapshot of all disks of a running guest."""
    if guest is None:
        return None
    paths = [disk.path for disk in disks
             if not disk.without_snapshot
             and snapshots.supports_snapshots(disk.path, disk.format)]
    return snapshots.RunningSnapshotter(guest.monitor, paths, guest.agent)


def _snapshotter(disk: Disk, together: snapshots.RunningSnapshotter | None
                 ) -> snapshots.Snapshotter | None:
    if disk.without_snapshot:
        return None
    if together is not None:
        kept = snapshots.supports_snapshots(disk.path, disk.format)
        return together if kept else None
    return snapshots.for_stopped_guest(disk.path, disk.format)
