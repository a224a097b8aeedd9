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
"""Restoring servers: their disks and volumes go back to a version."""

import contextlib
import dataclasses
import typing

from diffcache_openstack.agent.versions import guest_volumes
from diffcache_openstack.agent.versions import guests
from diffcache_openstack.agent.versions import project_stores
from diffcache_openstack.agent.versions import version_tasks
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from diffcache_openstack.versions.disks import locks
from diffcache_openstack.versions.disks import rollback_journal
from diffcache_openstack.versions.guests import volume_points
from diffcache_openstack.versions.restore import rollback
from diffcache_openstack.versions.restore import rollback_plan
from diffcache_openstack.versions.restore import volume_rollback
from diffcache_openstack.versions import version_store


class Work(typing.Protocol):
    """What restores share with other tasks, see :mod:`.version_worker`."""

    def job(self, running: version_tasks.RunningTask) -> version_store.Job:
        """Return progress, rate and cancellation of a task."""

    def engine_disk(self, running: version_tasks.RunningTask,
                    guest: guests.Guest, disk: guests.Disk
                    ) -> version_store.Disk:
        """Return a disk as a version store knows it."""

    def scratch_files(self) -> volume_points.Scratch:
        """Return where QEMU keeps moments of volumes."""

    def open_to_restore(self, running: version_tasks.RunningTask
                        ) -> version_store.VersionStore:
        """Open the store of a task's project."""

    def save_opened(self, running: version_tasks.RunningTask,
                    guest: guests.Guest, attached: guest_volumes.Open
                    ) -> objects.SavedVersion:
        """Save a server with volumes that are open."""


class ServerRestores:
    """Restores servers of this host.

    :param found: servers
    :param stored: of projects
    """

    def __init__(self, found: guests.Guests,
                 stored: project_stores.ProjectStores, work: Work) -> None:
        self._guests = found
        self._stores = stored
        self._work = work

    def perform(self, running: version_tasks.RunningTask) -> None:
        """Restore a server, or report what that would write.

        :raises Conflict: it runs, or has other disks or volumes now
        """
        task = running.task
        guest = self._guests.find(task.server_id)
        if guest.running:
            raise exceptions.Conflict(
                f'Cannot restore server {task.server_id}: it is running. Stop'
                f' it first (openstack server stop {task.server_id}).')
        pairs = _pairs(guest, task.disks)
        with contextlib.ExitStack() as held:
            # What is kept is what is rolled back: nothing writes in between.
            if not task.dry_run:
                for disk in guest.disks:
                    held.enter_context(locks.hold_alone(disk.path))
            attached = held.enter_context(guest_volumes.opened(
                self._guests, guest, [disk.volume_id for disk in task.disks
                                      if disk.volume_id]))
            if task.dry_run:
                self._plan(running, pairs, guest, attached)
            else:
                self._keep(running, guest, attached)
                self._roll_back(running, pairs, guest, attached)

    def _roll_back(self, running, pairs, guest, attached):
        """Write disks and volumes; after a crash the same completes it."""
        store = self._work.open_to_restore(running)

        def write_disks() -> rollback.RollbackResult:
            return store.roll_back_disks(
                [(version, self._work.engine_disk(running, guest, disk))
                 for disk, version in pairs], running.task.method,
                self._work.job(running))
        if attached.guest is None:
            done = write_disks()
        else:
            done = self._roll_back_volumes(running, store, guest, attached,
                                           write_disks)
        running.report.result = version_tasks.result(
            method=done.method, reason=done.reason,
            bytes_differing=sum(each.bytes_differing for each in done.disks),
            bytes_written=sum(each.bytes_written for each in done.disks),
            bytes_read=sum(each.bytes_read for each in done.disks),
            seconds=sum(each.seconds for each in done.disks))

    def _roll_back_volumes(self, running, store, guest, attached, write_disks
                           ) -> rollback.RollbackResult:
        """Write volumes after disks; neither if one of them is refused."""
        journals = guest_volumes.journals(self._guests, guest, attached)
        targets = guest_volumes.to_roll_back(attached, running.task.disks)
        done = rollback.RollbackResult(
            versions.ROLLBACK, 'Volumes are restored in place.', [])

        def begin() -> None:
            nonlocal done
            unfinished = journals.any()
            journals.write(targets)
            try:
                guest_volumes.check_stopped(self._guests, guest)
                if guest.disks:
                    done = write_disks()
            except exceptions.DiffCacheError:
                if not unfinished and not any(
                        rollback_journal.read(disk.path)
                        for disk in guest.disks):
                    journals.remove()  # Nothing was changed.
                raise
        volumes = store.volume_rollback(targets, self._opened(attached),
                                        self._work.job(running))
        written = volumes.run(begin)
        journals.remove()
        return dataclasses.replace(done, disks=[*done.disks, *written])

    def _opened(self, attached) -> volume_rollback.Opened:
        return volume_rollback.Opened(attached.engine_guest(),
                                      self._work.scratch_files())

    def _keep(self, running, guest, attached):
        """Save the server's present state, once."""
        if running.task.keep_version is None:
            return
        if 'kept' in running.notes:
            running.report.kept = objects.SavedVersion.load(
                running.notes['kept'])
            return
        running.report.kept = self._work.save_opened(running, guest, attached)
        running.note(kept=running.report.kept.obj_to_primitive())

    def _plan(self, running, pairs, guest, attached):
        store = self._stores.open(running.task.project_id)
        plans = [store.plan_rollback(
            version, self._work.engine_disk(running, guest, disk),
            self._work.job(running))
            for disk, version in pairs]
        found = [] if attached.guest is None else store.volume_rollback(
            guest_volumes.to_roll_back(attached, running.task.disks),
            self._opened(attached), self._work.job(running)).plan()
        running.report.result = version_tasks.result(
            dry_run=True,
            bytes_differing=sum(plan.bytes_differing
                                for plan in (*plans, *found)),
            bytes_rebuild=sum(plan.bytes_rebuild for plan in plans),
            cheaper=rollback_plan.choose_method(plans),
            reason=rollback_plan.explain(plans))


def _pairs(guest, disks) -> list[tuple[guests.Disk, str]]:
    """Return each disk of a server with its version.

    :raises Conflict: the server has other disks now
    """
    wanted = {disk.device: disk.version for disk in disks
              if disk.volume_id is None}
    if wanted.keys() != {disk.device for disk in guest.disks}:
        raise exceptions.Conflict(
            f'Server {guest.server_id} has the disks'
            f' {", ".join(disk.device for disk in guest.disks)}, the version'
            f' has {", ".join(sorted(wanted))}: start a new server from it.')
    return [(disk, wanted[disk.device]) for disk in guest.disks]
