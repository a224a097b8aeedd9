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
"""Rolling disks back to versions, all or none.

In place only what differs is written; where that is much, new disks are built
beside the old ones and replace them. Either way nothing is written before all
disks were compared, and a journal beside each disk exists until all of them
are complete. Disks are locked from before the comparison to the end, and
compared disks that were changed all the same are not written to. The state
before is kept as a version unless the caller decides otherwise; then after a
crash both the old state and the new can be restored.
"""

import contextlib
import dataclasses
import logging
import os
import pathlib
import time
from typing import Any
from typing import Sequence

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.runtime import directories
from diffcache_openstack.versions.disks import block_nodes
from diffcache_openstack.versions.disks import disk_files
from diffcache_openstack.versions.disks import disk_writers
from diffcache_openstack.versions.disks import locks
from diffcache_openstack.versions.disks import rollback_journal
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.restore import rollback_plan
from diffcache_openstack.versions.save import disk_states
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.indexes import base_images

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class DiskRollback:
    """The rollback of one disk. Sizes in bytes."""

    version: str
    # The version that has the state before; None if it was not kept.
    kept: str | None
    bytes_differing: int
    bytes_written: int
    bytes_read: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, as the toolbox prints them."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class RollbackResult:
    """The method by which disks were rolled back, and why it was chosen."""

    method: str
    reason: str
    disks: list[DiskRollback]


@dataclasses.dataclass(frozen=True)
class _Target:
    """One disk to roll back."""

    version: entries.Version
    request: save_request.SaveRequest
    info: dict[str, Any]
    plan: rollback_plan.RollbackPlan
    # What changes when the disk is written to, before it was compared.
    mark: disk_files.Mark

    @property
    def disk(self) -> pathlib.Path:
        """The file."""
        return self.request.disk

    @property
    def format(self) -> str:
        """``qcow2`` or ``raw``."""
        return self.info['format']

    def content(self) -> _native.Content:
        """Return what the disk will have."""
        return _native.Content(self.version.root, self.version.size,
                               self.request.base)

    def result(self, written: int, started: float) -> DiskRollback:
        """Return the result, given the bytes written and the start time."""
        return DiskRollback(
            self.version.id, None, self.plan.bytes_differing, written,
            self.plan.bytes_read, round(time.monotonic() - started, 3))


def roll_back(access: store_access.StoreAccess, name: str,
              request: save_request.SaveRequest, keep: bool = True,
              progress: rollback_plan.Progress = None) -> DiskRollback:
    """Roll a disk back to a version, in place.

    After a crash the same call, or one with another version, completes the
    rollback: the disk is compared with the version again. A disk in the middle
    of a rollback is not saved, since it has neither state.

    :param keep: save the state before as a version of the request's series
    :raises Busy: a guest uses the disk
    :raises InvalidInput: the disk and the version have different sizes
    """
    started = time.monotonic()
    version = access.head().find(name)
    base_images.check(version, request.base, request.base_id)
    with locks.hold_alone(request.disk):
        unfinished = rollback_journal.read(request.disk)
        kept = unfinished['kept'] if unfinished else None
        if keep and unfinished is None:
            kept = saving.save(access, request, progress).id
        result = roll_back_disks(access, [(version.id, request)],
                                 rollback_plan.ROLLBACK, kept, progress)
    return dataclasses.replace(
        result.disks[0], kept=kept,
        seconds=round(time.monotonic() - started, 3))


def roll_back_disks(access: store_access.StoreAccess,
                    requests: Sequence[tuple[str, save_request.SaveRequest]],
                    method: str = rollback_plan.AUTO, kept: str | None = None,
                    progress: rollback_plan.Progress = None
                    ) -> RollbackResult:
    """Roll disks back to versions, all of them or none.

    After a crash the same call, or one with other versions, completes.

    :param requests: the versions' names, and the disks
    :param method: one of :data:`.rollback_plan.METHODS`
    :param kept: the version that has the state before, for the journal
    :raises Busy: a guest uses a disk, or something wrote to it meanwhile
    :raises Conflict: a disk to rebuild has internal snapshots of others
    :raises InvalidInput: a disk and its version have different sizes
    :raises NoSpace: a rebuild was requested, and has no room for new disks
    :raises PermanentError: a rebuild was requested, and new disks cannot have
        the owner of the old ones
    """
    with contextlib.ExitStack() as held:
        # All, before any is compared: a guest may use one of them.
        for _name, request in requests:
            held.enter_context(locks.hold_alone(request.disk))
        head = access.head()
        with access.opened(head) as opened:
            targets = [_compare(opened, head, name, request, progress)
                       for name, request in requests]
            chosen, why = _choose(targets, method)
            if chosen == rollback_plan.REBUILD:
                try:
                    done = _rebuild(opened, targets, kept, held, progress)
                except (exceptions.NoSpace, disk_files.OwnerError) as exc:
                    if method != rollback_plan.AUTO:
                        raise
                    chosen, why = (rollback_plan.ROLLBACK,
                                   f'New disks cannot be built: {exc}')
            if chosen == rollback_plan.ROLLBACK:
                done = _write_in_place(opened, head, targets, kept, progress)
        LOG.info('Rolled back %s with the method %s, %d bytes differed. Reason'
                 ' of the method: %s',
                 ', '.join(str(target.disk) for target in targets), chosen,
                 sum(target.plan.bytes_differing for target in targets), why)
        rollback_journal.remove(target.disk for target in targets)
        for target in targets:
            if (target.format == 'qcow2'
                    and target.request.snapshotter is not None):
                _take_anchor(access, target.version, target.request)
    return RollbackResult(chosen, why, done)


def _compare(opened: _native.BlockStore, head: catalogue.Catalogue,
             name: str, request: save_request.SaveRequest,
             progress: rollback_plan.Progress) -> _Target:
    version = head.find(name)
    base_images.check(version, request.base, request.base_id)
    disk_files.access().remove_room(request.disk)
    mark = disk_files.mark_of(request.disk)
    info = snapshots.disk_info(request.disk, request.disk_format)
    _check_layers(request.disk, info, version)
    return _Target(version, request, info, rollback_plan.compare(
        opened, head, version, request, progress), mark)


def _check_layers(disk: pathlib.Path, info: dict[str, Any],
                  version: entries.Version) -> None:
    """Check that a disk names a backing file only if its version has a base.

    :raises InvalidInput: it does
    """
    if info['backing'] is not None and version.base is None:
        raise exceptions.InvalidInput(
            f'Cannot roll back {disk} to version {version.id}, which has no '
            f'base image: the disk names the backing file '
            f'{info["backing"]!r}. If the disk is raw, state --disk-format '
            f'raw; otherwise restore the version to a new file.')


def _choose(targets: list[_Target], method: str) -> tuple[str, str]:
    """Return the method for all disks, and the reason.

    :raises InvalidInput: the method is unknown
    :raises Conflict: it would lose snapshots of others
    """
    if method not in rollback_plan.METHODS:
        raise exceptions.InvalidInput(
            f'Unknown rollback method {method!r}: choose one of '
            f'{", ".join(rollback_plan.METHODS)}.')
    foreign = [str(target.disk) for target in targets
               if any(not name.startswith(f'{disk_states.PREFIX}-')
                      for _, name, _ in target.info['snapshots'])]
    if method == rollback_plan.REBUILD and foreign:
        raise exceptions.Conflict(
            f'Cannot rebuild {", ".join(foreign)}: internal snapshots taken '
            f'by others would be lost. Roll back in place.')
    if method != rollback_plan.AUTO:
        return method, 'The request names this method.'
    if foreign:
        return (rollback_plan.ROLLBACK,
                'Internal snapshots taken by others would be lost.')
    plans = [target.plan for target in targets]
    return rollback_plan.choose_method(plans), rollback_plan.explain(plans)


def _write_in_place(opened: _native.BlockStore, head: catalogue.Catalogue,
                    targets: list[_Target], kept: str | None,
                    progress: rollback_plan.Progress) -> list[DiskRollback]:
    """Write what differs."""
    done = []
    _begin(targets, kept)
    for target in targets:
        started = time.monotonic()
        if target.format == 'qcow2':
            _delete_snapshots(target.request, head, target.info)
        with disk_writers.open_disk(target.disk, target.format,
                                    target.request.base) as disk:
            with (files.space_errors(target.disk),
                  native_errors.translated()):
                written = opened.write_ranges(target.content(),
                                              target.plan.ranges, disk,
                                              progress)
                disk.flush()
        done.append(target.result(written, started))
    return done


def _begin(targets: list[_Target], kept: str | None) -> None:
    """Write the journals of disks that are locked and as they were compared.

    :raises Busy: one was written to by what takes no lock; none is changed
    """
    for target in targets:
        if disk_files.mark_of(target.disk) != target.mark:
            raise exceptions.Busy(
                f'{target.disk} was written to while it was compared: stop '
                f'what writes to it, and roll it back again.')
    for target in targets:
        rollback_journal.write(target.disk, target.request.series,
                               target.version.id, kept)


def _rebuild(opened: _native.BlockStore, targets: list[_Target],
             kept: str | None, held: contextlib.ExitStack,
             progress: rollback_plan.Progress) -> list[DiskRollback]:
    """Build new disks, and replace the old ones by them.

    :param held: has the locks of disks, and gets those of the new ones
    :raises NoSpace: there is no room for both; nothing is changed
    """
    access = disk_files.access()
    done = []
    try:
        for target in targets:
            started = time.monotonic()
            written = _build(opened, target, progress)
            done.append(target.result(written, started))
        for target in targets:
            held.enter_context(locks.hold_alone(
                disk_files.adopted(target.disk)))
        _begin(targets, kept)
        for target in targets:
            access.replace(target.disk)
    finally:
        for target in targets:
            access.remove_room(target.disk)
    return done


def _build(opened: _native.BlockStore, target: _Target,
           progress: rollback_plan.Progress) -> int:
    """Write a version to a file that can replace a disk.

    :returns: bytes written
    """
    access, base = disk_files.access(), target.request.base
    room = access.create_room(target.disk)
    try:
        path = directories.descriptor_path(room) / target.disk.name
        with files.space_errors(target.disk), native_errors.translated():
            if target.format == 'raw':
                written = opened.restore_raw(target.content(), path, progress)
            else:
                backing = None
                if base is not None and target.info['backing'] is not None:
                    # By the same name as before, which Nova and others know.
                    backing = (target.info['backing'],
                               block_nodes.format_of_base(base))
                written = opened.restore_qcow2(target.content(), path,
                                               backing, progress)
    finally:
        os.close(room)
    access.adopt(target.disk)
    return written


def _delete_snapshots(request: save_request.SaveRequest,
                      head: catalogue.Catalogue, info: dict[str, Any]) -> None:
    """Delete this store's snapshots, so that clusters are written in place.

    QEMU would copy each cluster that a snapshot shares. The next save takes a
    new snapshot.
    """
    if request.snapshotter is None:
        return
    for _, name, _ in info['snapshots']:
        if name.startswith(f'{disk_states.PREFIX}-{head.store_id}-'):
            request.snapshotter.delete(name)


def _take_anchor(access: store_access.StoreAccess, version: entries.Version,
                 request: save_request.SaveRequest) -> None:
    """Take a snapshot of the disk, which now has the version's state.

    The next save then reads only what changed since.
    """
    assert request.snapshotter is not None
    if access.store.append_only:
        LOG.info('The next save of %s reads all of it: this host may not note '
                 'in the store that it has the state of version %s',
                 request.disk, version.id)
        return
    name = f'{disk_states.PREFIX}-{access.head().store_id}-{version.id[:8]}'
    try:
        with access.writing() as writing:
            head = writing.head or access.head()
            request.snapshotter.create(name)
            info = snapshots.disk_info(request.disk, request.disk_format)
            fingerprints = {each: fingerprint for _, each, fingerprint
                            in info['snapshots']}
            taken = entries.Snapshot(name, fingerprints[name])
            head.versions[version.id] = dataclasses.replace(
                head.find(version.id), snapshots=(*version.snapshots, taken))
            access.commit(head)
    except exceptions.DiffCacheError as exc:
        LOG.warning('The next save of %s reads all of it: could not note in '
                    'the store that it has the state of version %s: %s',
                    request.disk, version.id, exc)
