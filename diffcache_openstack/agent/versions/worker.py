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
"""What this host does with versions: one method for each kind of task."""

import contextlib
import logging
import pathlib
import shutil
import typing

from diffcache_openstack.agent.versions import bases
from diffcache_openstack.agent.versions import guests
from diffcache_openstack.agent.versions import images
from diffcache_openstack.agent.versions import stores
from diffcache_openstack.agent.versions import tasks
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from diffcache_openstack.versions import catalogue
from diffcache_openstack.versions import guest_agent
from diffcache_openstack.versions import restoring
from diffcache_openstack.versions import rollback_journal
from diffcache_openstack.versions import rollback_plan
from diffcache_openstack.versions import snapshots
from diffcache_openstack.versions import store_access
from diffcache_openstack.versions import version_store
from diffcache_openstack.versions import view_cleanup

LOG = logging.getLogger(__name__)

# Another writer of the store ends sooner or later, and a service comes back.
_WAITS_SECONDS = (1.0, 3.0, 9.0, 27.0, 60.0)
_PASSING = (exceptions.Busy, exceptions.ServiceUnavailable)
_MOST_RANGES = 1000


class Images(typing.Protocol):
    """Source of base images; see :class:`.images.serving.ImageServer`."""

    def deliver_content(self, content_id: str | None, output: pathlib.Path
                        ) -> bool:
        """Write the content with an id; False if no image has it."""


class Worker:
    """Does tasks.

    :param agent: delivers base images
    :param directory: for what is needed for the time of a task
    :param rate: bytes per second that are read of a disk at most, or None
    """

    def __init__(self, stored: stores.Stores, found: guests.Guests,
                 agent: Images, glance: images.Images,
                 directory: pathlib.Path, rate: int | None) -> None:
        self._stores = stored
        self._guests = found
        self._agent = agent
        self._glance = glance
        self._directory = directory
        self._bases = bases.Bases(directory.parent / 'bases.json')
        self._rate = rate
        self._ways: dict[str, tasks.Perform] = {
            versions.SAVE: self._save, versions.RESTORE: self._restore,
            versions.EXPORT: self._export, versions.DIFF: self._diff,
            versions.FORGET: self._forget, versions.PRUNE: self._prune,
            versions.VERIFY: self._verify}

    def perform(self, doing: tasks.Doing) -> None:
        """Do a task; what it came to is in its report.

        :raises DiffCacheError: it cannot be done
        """
        try:
            _again(doing, lambda: self._ways[doing.task.kind](doing))
        except exceptions.DiffCacheError:
            if not doing.interrupted:
                self._give_up(doing.task)
            raise

    # -- saving

    def _give_up(self, task) -> None:
        """Remove what a save left because it might have been tried again."""
        if task.kind not in (versions.SAVE, versions.RESTORE):
            return
        try:
            guest = self._guests.find(task.server_id)
            view_cleanup.discard([disk.path for disk in guest.disks], task.id)
        except (exceptions.DiffCacheError, OSError) as error:
            LOG.warning('Copies of disks of server %s may be left: %s',
                        task.server_id, error)

    def _save(self, doing):
        doing.report.saved = self._saved(doing)

    def _saved(self, doing) -> objects.SavedVersion:
        task = doing.task
        guest = self._guests.find(task.server_id)
        _refuse_interrupted(guest)
        _thaw_again(doing, guest)
        store = self._stores.open_or_make(task.project_id)
        found = self._save_once(doing, store, guest)
        return objects.SavedVersion(
            disks=[_disk(disk.device, version)
                   for disk, version in zip(guest.disks, found)],
            size=sum(version.size for version in found),
            bytes_changed=sum(version.blocks_changed for version in found)
            * store_access.BLOCK_SIZE,
            bytes_read=sum(version.bytes_read for version in found),
            bytes_stored=sum(version.bytes_stored for version in found),
            seconds=sum(version.seconds for version in found),
            pause_ms=max(version.pause_ms for version in found),
            quiesced=all(version.quiesced for version in found))

    def _save_once(self, doing, store, guest) -> list[catalogue.Version]:
        """Save, unless the agent died between that and knowing it."""
        disks = [self._engine_disk(guest, disk) for disk in guest.disks]
        return store.save(disks, _owner(guest), _alpha(doing.task.alpha),
                          self._job(doing), token=doing.task.id)

    def _engine_disk(self, guest, disk) -> version_store.Disk:
        base_id = None
        if disk.base is not None:
            base_id = self._bases.content_id(disk.base)
        return version_store.Disk(disk.path, _series(guest, disk), disk.base,
                                  base_id=base_id, format=disk.format)

    def _job(self, doing) -> version_store.Job:
        rates = [rate for rate in (self._rate, doing.task.rate) if rate]
        return version_store.Job(progress=doing.progress, cancel=doing.cancel,
                                 rate=float(min(rates)) if rates else None)

    # -- going back

    def _restore(self, doing):
        task = doing.task
        guest = self._guests.find(task.server_id)
        if guest.running:
            raise exceptions.Conflict(
                f'Server {task.server_id} runs on this host: stop it first.')
        pairs = _pairs(guest, task.disks)
        if task.dry_run:
            self._plan(doing, pairs, guest)
            return
        self._keep(doing, guest)
        store = self._stores.open(task.project_id)
        # The same call finishes what a crash cut short.
        back = store.roll_back_disks(
            [(version, self._engine_disk(guest, disk))
             for disk, version in pairs], task.method, self._job(doing))
        disks = back.disks
        doing.report.result = tasks.result(
            method=back.method, reason=back.reason,
            bytes_differing=sum(each.bytes_differing for each in disks),
            bytes_written=sum(each.bytes_written for each in disks),
            bytes_read=sum(each.bytes_read for each in disks),
            seconds=sum(each.seconds for each in disks))

    def _keep(self, doing, guest):
        """Save what the server is now, once."""
        if doing.task.keep_version is None:
            return
        if 'kept' in doing.notes:
            doing.report.kept = objects.SavedVersion.load(
                doing.notes['kept'])
            return
        doing.report.kept = self._saved(doing)
        doing.note(kept=doing.report.kept.obj_to_primitive())

    def _plan(self, doing, pairs, guest):
        store = self._stores.open(doing.task.project_id)
        plans = [store.plan_rollback(
            version, self._engine_disk(guest, disk), self._job(doing))
            for disk, version in pairs]
        doing.report.result = tasks.result(
            dry_run=True,
            bytes_differing=sum(plan.bytes_differing for plan in plans),
            bytes_rebuild=sum(plan.bytes_rebuild for plan in plans),
            cheaper=rollback_plan.choose_method(plans),
            reason=rollback_plan.explain(plans))

    # -- images

    def _export(self, doing):
        task = doing.task
        if task.image_id and self._glance.is_there(task.image_id):
            doing.report.result = tasks.result(image_id=task.image_id,
                                               uploaded=0)
            return
        [disk] = task.disks
        with self._scratch(task) as scratch:
            image = scratch / 'qcow2'
            base, base_id = self._base_of(disk, scratch)
            self._stores.open(task.project_id).export(
                disk.version, restoring.Output(image, 'qcow2'), base,
                base_id, self._job(doing))
            size = image.stat().st_size
            image_id = self._glance.upload(image, images.New(
                id=task.id, owner=task.project_id,
                name=task.name or f'version {task.version_id}',
                family=task.base_image, version_id=task.version_id,
                min_disk=-(-disk.size // 2 ** 30)), doing.progress)
        doing.report.result = tasks.result(image_id=image_id, uploaded=size)

    def _base_of(self, disk, scratch
                 ) -> tuple[pathlib.Path | None, str | None]:
        """The image that a disk lies on, as a file, and its content id.

        :raises ObjectMissing: neither the site nor this host has it
        """
        if disk.base_name is None:
            return None, None
        path = scratch / 'base'
        if self._agent.deliver_content(disk.base_id, path):
            return path, disk.base_id
        with contextlib.suppress(exceptions.InvalidInput):
            path = self._guests.check(pathlib.Path(disk.base_name))
            if path.is_file():
                return path, self._bases.content_id(path)
        raise exceptions.ObjectMissing(
            f'The version lies on the image {disk.base_name} (content'
            f' {disk.base_id}), which neither the catalogue nor this host'
            f' has; bring that image back.')

    @contextlib.contextmanager
    def _scratch(self, task) -> typing.Iterator[pathlib.Path]:
        path = self._directory / task.id
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    # -- the store

    def _diff(self, doing):
        task = doing.task
        store = self._stores.open(task.project_id)
        others = {disk.device: disk.version for disk in task.others}
        found = {disk.device: store.diff(disk.version, others[disk.device])
                 for disk in task.disks if disk.device in others}
        if not found:
            raise exceptions.InvalidInput(
                'The versions have no disk in common.')
        doing.report.result = tasks.result(
            bytes=sum(each.bytes for each in found.values()),
            disks=[{'device': device, 'bytes': each.bytes,
                    'ranges': each.ranges[:_MOST_RANGES],
                    'ranges_in_all': len(each.ranges)}
                   for device, each in found.items()])

    def _forget(self, doing):
        store = self._stores.open(doing.task.project_id)
        there = {version.id for version in _all(store)}
        gone = [disk.version for disk in doing.task.disks
                if disk.version in there]
        if gone:
            store.delete(gone)

    def _prune(self, doing):
        store = self._stores.open(doing.task.project_id)
        if not _all(store):
            return
        pruned = store.prune(rule=self._stores.prune_rule,
                             job=self._job(doing))
        doing.report.result = tasks.result(
            bytes_before=pruned.bytes_before, bytes_after=pruned.bytes_after)

    def _verify(self, doing):
        store = self._stores.open(doing.task.project_id)
        found = store.verify(self._job(doing))
        for damage in found.damage:
            LOG.error('Versions of project %s: %s: %s',
                      doing.task.project_id, damage.object, damage.reason)
        doing.report.result = tasks.result(
            intact=found.intact, bytes_checked=found.bytes_checked,
            damage=[{'object': each.object, 'reason': each.reason}
                    for each in found.damage],
            disks_damaged=found.versions_damaged)


def _again(doing, work):
    """Do a task, again for a while if what is in its way may pass.

    Every kind of task goes on where it was, so that an agent that was
    killed can do it again.
    """
    for seconds in _WAITS_SECONDS:
        try:
            work()
            return
        except _PASSING as error:
            LOG.info('Task %s waits %d s: %s', doing.task.id, seconds, error)
            if doing.cancel.wait(seconds):
                raise exceptions.Cancelled('It was cancelled.') from error
    work()


def _series(guest, disk) -> str:
    """What the versions of one disk are called in the store."""
    return f'{guest.server_id}-{disk.device}'


def _all(store) -> list[catalogue.Version]:
    try:
        return store.versions()
    except exceptions.NotFound:
        return []  # Nothing was ever saved to it.


def _owner(guest) -> snapshots.Guest | None:
    if not guest.running:
        return None
    return snapshots.Guest(guest.monitor, guest.agent)


def _alpha(text: str) -> float | str:
    return text if text == 'auto' else float(text)


def _disk(device: str, version: catalogue.Version) -> objects.VersionDisk:
    return objects.VersionDisk(
        device=device, version=version.id, size=version.size,
        base_id=version.base.id if version.base else None,
        base_name=version.base.name if version.base else None)


def _pairs(guest, disks) -> list[tuple[guests.Disk, str]]:
    """Each disk of a server, and its version.

    :raises Conflict: the server has other disks by now
    """
    wanted = {disk.device: disk.version for disk in disks}
    if wanted.keys() != {disk.device for disk in guest.disks}:
        raise exceptions.Conflict(
            f'Server {guest.server_id} has the disks'
            f' {", ".join(disk.device for disk in guest.disks)}, the version'
            f' has {", ".join(sorted(wanted))}: start a new server from it.')
    return [(disk, wanted[disk.device]) for disk in guest.disks]


def _thaw_again(doing, guest) -> None:
    """Let a guest go on that an agent froze before it was killed.

    If the snapshot was made by then, the guest is not frozen, and thawed,
    again.
    """
    if guest.agent is None:
        return
    if 'begun' in doing.notes:
        guest_agent.thaw(guest.agent)
    else:
        doing.note(begun=True)


def _refuse_interrupted(guest) -> None:
    """Refuse to save a disk that is neither one state nor the other.

    :raises Conflict: a rollback of a disk was cut short
    """
    for disk in guest.disks:
        if rollback_journal.read(disk.path) is not None:
            raise exceptions.Conflict(
                f'{disk.path} is in the middle of a restore, and no state that'
                f' could be saved: restore a version first, without keeping'
                f' what is now (--discard-current).')
