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
"""Versions of disks, as programs use them: one object for one store.

What the toolbox's commands and the service do with versions, they do through
:class:`Engine`. It may be used from several threads; whether two writers may
use one store at a time is the store's matter (:meth:`BlobStore.lock`).
"""

import dataclasses
import pathlib
import threading
from typing import Callable
from typing import Sequence

from diffcache_openstack.common import exceptions
from diffcache_openstack.store import base
from diffcache_openstack.versions import guest_agent
from diffcache_openstack.versions import heads
from diffcache_openstack.versions import repository
from diffcache_openstack.versions import restoring
from diffcache_openstack.versions import retention
from diffcache_openstack.versions import rollback
from diffcache_openstack.versions import saving
from diffcache_openstack.versions import snapshots
from diffcache_openstack.versions import upkeep
from diffcache_openstack.versions import views

KEY_BYTES = 32


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk that is saved, or rolled back."""

    path: pathlib.Path
    # What the versions of one disk are called.
    series: str
    # The base image that it lies on, raw or qcow2, if it does.
    base: pathlib.Path | None = None
    # The base's content id, if it is known; otherwise the image is read.
    base_id: str | None = None
    # The version that the new one is told from; the series' newest if None.
    parent: str | None = None
    # An internal snapshot to save, made if there is none of this name. The
    # engine chooses one, and keeps the last, if None.
    snapshot: str | None = None
    # Take no snapshot: nothing writes to the disk meanwhile.
    as_it_is: bool = False
    # ``raw`` or ``qcow2``. If None, what the file begins with is believed: of
    # a raw disk, its guest may have written that.
    format: str | None = None


@dataclasses.dataclass(frozen=True)
class Guest:
    """The running guest that has the disks."""

    # Its monitor: a unix socket that speaks QMP, or what speaks to it.
    monitor: pathlib.Path | snapshots.Channel
    # The same of its guest agent, to keep filesystems still meanwhile.
    agent: pathlib.Path | guest_agent.Channel | None = None


@dataclasses.dataclass(frozen=True)
class Job:
    """How a long job runs."""

    # Called with (bytes done, bytes in total), about five times a second,
    # from any thread. What it raises ends the job and comes out of it.
    progress: Callable[[int, int], object] | None = None
    # Bytes per second that are read of a disk at most.
    rate: float | None = None
    # Set it from any thread: the job ends with ``Cancelled``.
    cancel: threading.Event | None = None

    def report(self, done: int, total: int) -> None:
        """Pass progress on.

        :raises Cancelled: the caller wants no more of it
        """
        if self.progress is not None:
            self.progress(done, total)
        if self.cancel is not None and self.cancel.is_set():
            raise exceptions.Cancelled('The caller cancelled the job.')


_QUIET = Job()


class Engine:
    """A store of versions.

    Methods raise what :mod:`diffcache_openstack.common.exceptions` has:
    ``NotFound`` (no such version, disk, snapshot), ``InvalidInput`` (a disk
    that is refused, a wrong key), ``Busy`` (another writer, or a guest that
    has the disk), ``BaseMismatch``, ``IntegrityError`` (the store is
    damaged), ``NoSpace``, ``Cancelled``, ``ServiceUnavailable`` (a monitor
    or an object server). The retryable ones may be tried again as they are.
    """

    def __init__(self, repo: repository.Repository) -> None:
        self._repo = repo

    @classmethod
    def open(cls, store: base.BlobStore, key: bytes | None = None, *,
             block_size: int = repository.BLOCK_SIZE,
             level: int = repository.LEVEL) -> 'Engine':
        """The engine of the versions in a store.

        :param key: 32 bytes; None for a store in the clear
        :param block_size: for a store that is yet to be made
        :param level: zstd level of new packs
        """
        return cls(repository.Repository(store, key, block_size, level))

    def versions(self, series: str | None = None) -> list[heads.Version]:
        """All versions, or those of a series, oldest first.

        :raises NotFound: nothing was saved to the store yet
        """
        head = self._repo.head()
        return sorted((version for version in head.versions.values()
                       if series in (None, version.series)),
                      key=lambda version: version.number)

    def version(self, name: str) -> heads.Version:
        """The version of an id, or of the beginning of one."""
        return self._repo.head().find(name)

    def bytes_stored(self) -> int:
        """Bytes of all that the store holds."""
        return self._repo.head_or_new().bytes_stored()

    def save(self, disks: Sequence[Disk], guest: Guest | None = None,
             alpha: float | str = 0.0, job: Job = _QUIET,
             token: str | None = None) -> list[heads.Version]:
        """Save disks at one moment: all become versions, or none.

        A running guest's raw disks are read from copies that share their
        extents, and that are made while it stands still; those of a stopped
        one, too, where that is possible, so that it may be started meanwhile.
        The snapshot of its qcow2 disks is taken in the same pause.

        :param guest: who has the disks; None for a guest that is stopped
        :param alpha: 0 (incremental) to 1 (differential), or ``'auto'``
        :param token: tells this save from others: if it was made already,
            the versions that it made are returned; if it was interrupted
            after its snapshot, the state of that moment is saved
        :returns: the versions, in the order of the disks
        """
        requests = self._requests(disks, guest, alpha, job)
        raw = [request.disk for request in requests
               if request.snapshotter is None and not request.as_it_is]
        owner = (None if guest is None
                 else views.Owner(guest.monitor, guest.agent))
        with views.Together(raw, owner, token) as seen:
            return saving.save_together(
                self._repo,
                [dataclasses.replace(request, view=seen)
                 if request.disk in raw else request for request in requests],
                job.report, token)

    def _requests(self, disks: Sequence[Disk], guest: Guest | None,
                  alpha: float | str, job: Job) -> list[saving.Request]:
        together = _running(disks, guest)
        return [saving.Request(
            disk.path, disk.series, disk.parent, alpha, disk.snapshot,
            job.rate, disk.base, disk.base_id, _snapshotter(disk, together),
            as_it_is=disk.as_it_is, disk_format=disk.format)
            for disk in disks]

    def restore(self, name: str, output: pathlib.Path,
                disk_format: str | None = None,
                base: pathlib.Path | None = None,
                base_id: str | None = None, job: Job = _QUIET
                ) -> restoring.Restored:
        """Write a version to a new disk, which appears when it is whole.

        :param disk_format: ``raw`` or ``qcow2``; if None raw, and qcow2 for
            a version with a base
        :param base: the version's base image, if it has one; a qcow2 file
            names it as its backing file
        :param base_id: its content id, if it is known; otherwise the image
            is read
        """
        chosen = disk_format or ('qcow2' if base else 'raw')
        return restoring.restore(
            self._repo, name, restoring.Output(output, chosen), base, base_id,
            job.report)

    def export(self, name: str, output: restoring.Output,
               base: pathlib.Path | None = None, base_id: str | None = None,
               job: Job = _QUIET) -> restoring.Restored:
        """Write a version to a new file that lies on nothing: an image.

        The parameters are those of :meth:`restore`.
        """
        alone = dataclasses.replace(output, backed=False)
        return restoring.restore(self._repo, name, alone, base, base_id,
                                 job.report)

    def plan_rollback(self, name: str, disk: Disk, job: Job = _QUIET
                      ) -> rollback.Plan:
        """What rolling a disk back would write; changes nothing."""
        [request] = self._requests([disk], None, 0.0, job)
        return rollback.plan(self._repo, name, request, job.report)

    def roll_back(self, name: str, disk: Disk, keep: bool = True,
                  job: Job = _QUIET) -> rollback.RolledBack:
        """Make the disk of a stopped guest be what a version was.

        After a crash the same call goes on; see :meth:`interrupted`.

        :param keep: save the state before as a version of the disk's series
        """
        [request] = self._requests([disk], None, 0.0, job)
        return rollback.roll_back(self._repo, name, request, keep, job.report)

    def go_back(self, targets: Sequence[tuple[str, Disk]],
                way: str = rollback.AUTO, job: Job = _QUIET
                ) -> rollback.Back:
        """Make the disks of a stopped guest be what versions were: all.

        After a crash the same call goes on; see :meth:`interrupted`.

        :param targets: versions' names, and the disks
        :param way: ``rollback`` in place, ``rebuild``, or ``auto`` for the
            cheaper one
        """
        disks = [disk for _, disk in targets]
        requests = self._requests(disks, None, 0.0, job)
        return rollback.go_back(
            self._repo, [(name, request) for (name, _), request
                         in zip(targets, requests)], way,
            progress=job.report)

    @staticmethod
    def interrupted(disk: pathlib.Path) -> dict[str, str | None] | None:
        """What a rollback of a disk that was cut short was doing, if one was.

        The keys are ``version``, ``kept`` (the version that has the state
        before, or None) and ``series``. Such a disk must not be started.
        """
        return rollback.interrupted(disk)

    def diff(self, old: str, new: str) -> restoring.Difference:
        """In what two versions differ."""
        return restoring.diff(self._repo, old, new)

    def verify(self, job: Job = _QUIET) -> upkeep.Verified:
        """Read all that the store holds, and name what is damaged."""
        return upkeep.verify(self._repo, job.report)

    def delete(self, names: Sequence[str]) -> list[str]:
        """Forget versions, all or none; prune gives their space back."""
        return upkeep.delete(self._repo, names)

    def prune(self, policies: dict[str | None, retention.Policy]
              | None = None, rule: upkeep.Rule = upkeep.Rule(),
              dry_run: bool = False, job: Job = _QUIET) -> upkeep.Pruned:
        """Drop versions that no policy keeps; give back dead space.

        :param policies: by series; None stands for all others
        :param rule: which packs are written anew
        """
        return upkeep.prune(self._repo, policies, rule, dry_run, job.report)


def _running(disks: Sequence[Disk], guest: Guest | None
             ) -> snapshots.Running | None:
    """What takes one snapshot of all disks of a running guest."""
    if guest is None:
        return None
    paths = [disk.path for disk in disks
             if not disk.as_it_is
             and snapshots.can_keep(disk.path, disk.format)]
    return snapshots.Running(guest.monitor, paths, guest.agent)


def _snapshotter(disk: Disk, together: snapshots.Running | None
                 ) -> snapshots.Snapshots | None:
    if disk.as_it_is:
        return None
    if together is not None:
        kept = snapshots.can_keep(disk.path, disk.format)
        return together if kept else None
    return rollback.snapshots_for(disk.path, disk.format)


def read_key(path: pathlib.Path) -> bytes:
    """The key in a file: 32 bytes, or 64 hex digits.

    :raises InvalidInput: there is none in it
    """
    data = path.read_bytes()
    if len(data) == KEY_BYTES:
        return data
    try:
        key = bytes.fromhex(data.decode())
    except ValueError:
        key = b''
    if len(key) != KEY_BYTES:
        raise exceptions.InvalidInput(
            f'{path} is no key: write 64 hex digits into it')
    return key
