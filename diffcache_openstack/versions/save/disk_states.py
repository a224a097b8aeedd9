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
"""The states of disks that a save reads, kept by snapshots and views."""

import contextlib
import dataclasses
import hashlib
import logging
import os
import pathlib
from typing import Any
from typing import Iterator
from typing import Sequence
import uuid

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.runtime import directories
from diffcache_openstack.versions.disks import disk_files
from diffcache_openstack.versions.disks import locks
from diffcache_openstack.versions.guests import guest_views
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.store.catalogue import entries

LOG = logging.getLogger(__name__)

# What the names of a version store's snapshots begin with.
PREFIX = 'dc'


@dataclasses.dataclass
class DiskState:
    """The state of a disk that a save reads."""

    # The file to read: the disk, or a view of it.
    path: pathlib.Path
    # What its tables say, see :func:`.snapshots.disk_info`.
    info: dict[str, Any]
    pause: snapshots.GuestPause
    # The internal snapshot to read; None: the file's present state.
    snapshot: str | None = None
    # The snapshot was taken by a save, not by the user.
    owned: bool = False
    # By which to read it, if the caller has opened it.
    descriptor: int | None = None
    # The moment of a running guest's volume, in place of a file.
    point: save_request.VolumePoint | None = None

    @classmethod
    def of_point(cls, point: save_request.VolumePoint, name: pathlib.Path,
                 pause: snapshots.GuestPause) -> 'DiskState':
        """Return the state of a volume that QEMU keeps."""
        info = {'format': 'raw', 'size': point.export.size, 'backing': None,
                'snapshots': ()}
        return cls(name, info, pause, point=point)

    @classmethod
    def of_volume(cls, descriptor: int) -> 'DiskState':
        """Return the state of a raw volume that the caller has opened."""
        path = directories.descriptor_path(descriptor)
        with native_errors.translated():
            info = _native.version_disk_info(path, 'raw')
        return cls(path, info, snapshots.GuestPause(), descriptor=descriptor)

    def mark(self) -> disk_files.Mark | None:
        """Return what changes when the state is written to; None: nothing."""
        if self.snapshot is not None or self.point is not None:
            return None
        if self.descriptor is not None:
            return disk_files.mark(os.fstat(self.descriptor))
        return disk_files.mark_of(self.path)

    @contextlib.contextmanager
    def reading(self) -> Iterator[pathlib.Path
                                  | tuple[pathlib.Path, str, str]]:
        """Yield where this process can read the state.

        That is a path, or the socket of an NBD server and the names of the
        exports of a volume and its scratch file.

        :raises NoSpace: the guest overwrote too much of a volume meanwhile
        """
        if self.point is not None:
            with self.point.reading():
                export = self.point.export
                yield export.socket, export.name, export.scratch
            return
        if self.descriptor is not None:
            yield self.path
            return
        with disk_files.reading(self.path) as path:
            yield path

    def snapshots(self) -> tuple[entries.Snapshot, ...]:
        """Return the snapshots of the disk that have this state."""
        return tuple(entries.Snapshot(name, fingerprint)
                     for _, name, fingerprint in self.info['snapshots']
                     if name == self.snapshot)


@dataclasses.dataclass(frozen=True)
class _TakenSnapshot:
    """A snapshot of all disks of a snapshotter."""

    snapshotter: snapshots.Snapshotter
    name: str
    pause: snapshots.GuestPause


class DiskStates:
    """The snapshots and views of one save, which may have several disks.

    :param store_id: part of the snapshots' names
    :param token: of a save that may be attempted again: an attempt after an
        interruption uses the snapshot that the interrupted one took
    """

    def __init__(self, store_id: str, token: str | None) -> None:
        self._prefix = f'{PREFIX}-{store_id}-'
        self._token = token
        self._taken: list[_TakenSnapshot] = []
        self._kept = False

    def keep_all(self, requests: Sequence[save_request.SaveRequest]) -> None:
        """Keep the state of a guest's disks and volumes in one pause.

        Does nothing for a guest without volumes that has disks of one kind
        only: these are kept together when the first one is opened. Again it
        changes nothing.
        """
        if self._kept:
            return
        self._kept = True
        views = next((request.views for request in requests if request.views
                      is not None and (request.views.running
                                       or request.views.has_volumes)), None)
        qcow2 = [request for request in requests if request.snapshot is None
                 and isinstance(request.snapshotter,
                                snapshots.RunningSnapshotter)]
        if views is None or not (qcow2 or views.has_volumes):
            return
        if not qcow2:
            views.create_with(None)
            return
        name = self._name(str(uuid.uuid4()))
        running = qcow2[0].snapshotter
        assert isinstance(running, snapshots.RunningSnapshotter)
        if self._token is not None:
            if (not views.has_volumes and views.has_all()
                    and all(_has_snapshot(request, name)
                            for request in qcow2)):
                return
            # Of an attempt that was interrupted before it had both.
            running.delete(name)
        pause = views.create_with(guest_views.PairedSnapshot(running, name))
        self._taken.append(_TakenSnapshot(running, name, pause))

    def open(self, request: save_request.SaveRequest) -> DiskState:
        """Return the present state of a disk, or a view's.

        :raises Busy: it is to be read itself, and a guest writes to it
        """
        if request.descriptor is not None:
            return DiskState.of_volume(request.descriptor)
        if request.point is not None:
            assert request.views is not None
            return DiskState.of_point(request.point, request.disk,
                                      request.views.pause)
        if request.without_snapshot:
            locks.check_idle(request.disk)
        path, pause = request.disk, snapshots.GuestPause()
        if request.views is not None:
            path, pause = request.views.open(request.disk)
        info = snapshots.disk_info(path, request.disk_format)
        return DiskState(path, info, pause)

    def take_snapshot(self, request: save_request.SaveRequest,
                      state: DiskState, version_id: str) -> None:
        """Return the state of a qcow2 disk's snapshot, taken if needed.

        :raises NotFound: the requested snapshot does not exist, and there is
            no snapshotter to take it
        """
        if state.info['format'] != 'qcow2':
            return
        names = [name for _, name, _ in state.info['snapshots']]
        if request.snapshot in names:
            state.snapshot = request.snapshot
        elif request.snapshotter is not None:
            name = request.snapshot or self._name(version_id)
            if name in names and not self._taken_by(request.snapshotter):
                LOG.info('Resuming the interrupted save of %s that took the '
                         'snapshot %s', request.disk, name)
            else:
                taken = self._take(request.snapshotter, name)
                name, state.pause = taken.name, taken.pause
            state.snapshot, state.owned = name, True
            state.info = snapshots.disk_info(state.path, request.disk_format)
        elif request.snapshot is not None:
            raise exceptions.NotFound(
                f'{request.disk} has no snapshot {request.snapshot!r}')

    def _name(self, version_id: str) -> str:
        """Return the name of the snapshot that this save takes."""
        unique = version_id
        if self._token is not None:
            unique = hashlib.sha256(self._token.encode()).hexdigest()
        return f'{self._prefix}{unique[:8]}'

    def _take(self, snapshotter: snapshots.Snapshotter, name: str
              ) -> _TakenSnapshot:
        """Take a snapshot once for all disks of a snapshotter."""
        taken = self._taken_by(snapshotter)
        if taken is None:
            taken = _TakenSnapshot(snapshotter, name,
                                   snapshotter.create(name))
            self._taken.append(taken)
        return taken

    def _taken_by(self, snapshotter: snapshots.Snapshotter
                  ) -> _TakenSnapshot | None:
        return next((taken for taken in self._taken
                     if taken.snapshotter is snapshotter), None)

    def discard(self) -> None:
        """Delete the snapshots of a save that failed."""
        for taken in self._taken:
            _delete(taken.snapshotter, taken.name)

    def delete_older(
            self, saved: Sequence[tuple[save_request.SaveRequest, DiskState]]
            ) -> None:
        """Delete the snapshots that those of this save replace."""
        older: dict[tuple[int, str], snapshots.Snapshotter] = {}
        for request, state in saved:
            if not state.owned:
                continue
            assert request.snapshotter is not None
            for _, name, _ in state.info['snapshots']:
                if name.startswith(self._prefix) and name != state.snapshot:
                    older[id(request.snapshotter), name] = request.snapshotter
        for (_, name), snapshotter in older.items():
            _delete(snapshotter, name)


def _has_snapshot(request: save_request.SaveRequest, name: str) -> bool:
    info = snapshots.disk_info(request.disk, request.disk_format)
    return any(each == name for _, each, _ in info['snapshots'])


def _delete(snapshotter: snapshots.Snapshotter, name: str) -> None:
    try:
        snapshotter.delete(name)
    except exceptions.DiffCacheError as exc:
        # It takes up space in the disk, and goes with the next save.
        LOG.warning('Could not delete snapshot %s, will retry with the next '
                    'save: %s', name, exc)
