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

import collections
import contextlib
import dataclasses
import functools
import json
import logging
import pathlib
import shutil
import typing

from diffcache_openstack.agent.versions import base_files
from diffcache_openstack.agent.versions import bases
from diffcache_openstack.agent.versions import guest_volumes
from diffcache_openstack.agent.versions import guests
from diffcache_openstack.agent.versions import project_stores
from diffcache_openstack.agent.versions import server_restores
from diffcache_openstack.agent.versions import version_images
from diffcache_openstack.agent.versions import version_tasks
from diffcache_openstack.agent.versions import volumes
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from diffcache_openstack.versions.disks import rollback_journal
from diffcache_openstack.versions.guests import guest_agent
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.guests import view_cleanup
from diffcache_openstack.versions.guests import volume_points
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions import version_store

LOG = logging.getLogger(__name__)

# Between attempts while another writer holds the store, or a service is down.
_WAITS_SECONDS = (1.0, 3.0, 9.0, 27.0, 60.0)
_RETRYABLE = (exceptions.Busy, exceptions.ServiceUnavailable)
_MAX_RANGES = 1000
# The note of what was refused of an inbox, which the conductor has to know
# whatever else becomes of the task.
_REFUSED = 'refused'


class Limits(typing.NamedTuple):
    """Limits of tasks.

    :ivar rate: bytes per second that are read of a disk at most, or None
    :ivar min_rate: bytes per second that a task may ask for at least
    :ivar scratch: bytes that a running guest may overwrite of a volume while
        it is read
    """

    rate: int | None = None
    min_rate: int = 1
    scratch: int = 10 * 1000 ** 3


class Worker:
    """Performs tasks.

    :ivar base_files: finds base images
    :ivar volumes: that clients have opened
    :ivar base_indexes: how many indexes of base images, which other hosts
        added, were compared with their images: ``checked`` (they match),
        ``refused`` (they do not), ``unchecked`` (there is no such image)
    :param agent: provides base images
    :param directory: for temporary files of tasks
    """

    def __init__(self, stored: project_stores.ProjectStores,
                 found: guests.Guests, agent: base_files.ImageSource,
                 glance: version_images.VersionImages,
                 directory: pathlib.Path, limits: Limits) -> None:
        self._stores = stored
        self._guests = found
        self._glance = glance
        self._directory = directory
        self._bases = bases.BaseIds(directory.parent / 'bases.json')
        self.base_files = base_files.BaseFiles(agent, found, self._bases)
        self.base_indexes = collections.Counter(
            checked=0, refused=0, unchecked=0)
        self.volumes = volumes.OpenVolumes()
        self._limits = limits
        self._methods: dict[str, version_tasks.Perform] = {
            versions.SAVE: self._save,
            versions.RESTORE: server_restores.ServerRestores(
                found, stored, self).perform,
            versions.EXPORT: self._export, versions.DIFF: self._diff,
            versions.FORGET: self._forget, versions.PRUNE: self._prune,
            versions.VERIFY: self._verify, versions.REKEY: self._rekey,
            versions.ACCEPT: self._accept,
            versions.REPLICATE: self._replicate,
            versions.RECOVER: self._recover,
            versions.RESTORE_VOLUME: self._restore_volume}

    def perform(self, running: version_tasks.RunningTask) -> None:
        """Perform a task and set the results of its report.

        :raises DiffCacheError: it failed
        """
        try:
            method = self._methods[running.task.kind]
            _with_retries(running, lambda: method(running))
        except exceptions.DiffCacheError:
            if running.cancelled or not running.interrupted:
                self._discard_views(running.task)
            raise
        finally:
            _report_refused(running)

    def abandon(self, running: version_tasks.RunningTask) -> None:
        """Remove what an earlier process left of a task; thaw its guest."""
        task = running.task
        shutil.rmtree(self._directory / task.id, ignore_errors=True)
        self._discard_views(task)
        if 'begun' not in running.notes:
            return
        try:
            guest = self._guests.find(task.server_id)
            if guest.agent is not None:
                guest_agent.thaw(guest.agent)
        except (exceptions.DiffCacheError, OSError) as error:
            LOG.warning('Could not thaw the filesystems of server %s: %s',
                        task.server_id, error)

    # -- saving

    def _discard_views(self, task) -> None:
        """Remove the views that a save left; resume its guest if need be."""
        if task.server_id is None or task.kind not in (
                versions.SAVE, versions.RESTORE):
            return
        try:
            guest = self._guests.find(task.server_id)
            running = _running_guest(guest)
            view_cleanup.recover([disk.path for disk in guest.disks], running,
                                 None)
            if running is not None and task.volumes:
                with snapshots.connect(running.monitor) as monitor:
                    volume_points.clear(monitor)
        except (exceptions.DiffCacheError, OSError) as error:
            LOG.warning('Could not remove copies of disks of server %s, nor'
                        ' resume it if a save left it paused: %s',
                        task.server_id, error)

    def _save(self, running):
        running.report.saved = (
            self._saved(running) if running.task.volume_id is None
            else self._backed_up(running))

    def _backed_up(self, running) -> objects.SavedVersion:
        """Save a volume; a later attempt resumes, or finds what is saved."""
        task = running.task
        volume = self.volumes.of(task.id)
        self._accept(running)
        store = self._stores.open_for_save(task.project_id, task.id)
        saved = store.save_volume(
            volume, volumes.series(task.volume_id), alpha=_alpha(task.alpha),
            job=self.job(running), token=task.version_id)
        running.report.store_bytes = store.bytes_stored()
        return _summary([_disk('volume', saved)], [saved])

    def _restore_volume(self, running):
        task = running.task
        [disk] = task.disks
        written = self._stores.open(task.project_id).write_volume(
            disk.version, self.volumes.of(task.id), self.job(running))
        running.report.result = version_tasks.result(
            bytes_read=written.bytes_read, bytes_written=written.bytes_written,
            seconds=written.seconds)

    def _saved(self, running) -> objects.SavedVersion:
        guest = self._guests.find(running.task.server_id)
        with guest_volumes.opened(self._guests, guest,
                                  running.task.volumes) as attached:
            return self.save_opened(running, guest, attached)

    def save_opened(self, running, guest, attached) -> objects.SavedVersion:
        """Save a server with volumes that are open."""
        task = running.task
        for disk in guest.disks:
            rollback_journal.refuse_unfinished(disk.path)
        if attached.guest is not None:
            guest_volumes.journals(self._guests, guest,
                                   attached).refuse_unfinished()
        _thaw_leftover(running, guest)
        self._accept(running)
        store = self._stores.open_for_save(task.project_id, task.id)
        found = self._save_once(running, store, guest, attached)
        running.report.store_bytes = store.bytes_stored()
        saved = [*(_disk(disk.device, version) for disk, version
                   in zip(guest.disks, found)),
                 *(_disk(each.device, version, each.id) for each, version
                   in zip(attached.volumes, found[len(guest.disks):]))]
        # The disk that the server boots from is the first.
        saved.sort(key=lambda disk: (len(disk.device), disk.device))
        return _summary(saved, found)

    def _save_once(self, running, store, guest, attached
                   ) -> list[entries.Version]:
        """Save, or return the versions if an earlier attempt was completed."""
        manifest = self._stores.keeps_manifests(running.task.project_id)
        disks = [dataclasses.replace(self.engine_disk(running, guest, disk),
                                     manifest=manifest)
                 for disk in guest.disks]
        return store.save(disks, _running_guest(guest),
                          _alpha(running.task.alpha), self.job(running),
                          token=running.task.id,
                          volumes=guest_volumes.to_save(
                              attached, self.scratch_files(),
                              lambda: guest_volumes.check_stopped(
                                  self._guests, guest)))

    def scratch_files(self) -> volume_points.Scratch:
        """Return where QEMU keeps moments of volumes."""
        self._directory.mkdir(parents=True, exist_ok=True)
        return volume_points.Scratch(self._directory, self._limits.scratch)

    def engine_disk(self, running, guest, disk) -> version_store.Disk:
        """Return a disk as a version store knows it."""
        base_id = None
        if disk.base is not None:
            base_id = self._bases.content_id(disk.base, running.go_on)
        return version_store.Disk(disk.path, _series(guest, disk), disk.base,
                                  base_id=base_id, format=disk.format)

    def job(self, running) -> version_store.Job:
        """Return progress, rate and cancellation of a task."""
        requested = running.task.rate and max(running.task.rate,
                                              self._limits.min_rate)
        rates = [rate for rate in (self._limits.rate, requested) if rate]
        return version_store.Job(
            progress=running.progress, cancel=running.cancel,
            rate=float(min(rates)) if rates else None)

    # -- images

    def _export(self, running):
        task = running.task
        if task.image_id and self._glance.is_there(task.image_id):
            running.report.result = version_tasks.result(
                image_id=task.image_id, uploaded=0)
            return
        [disk] = task.disks
        with self._scratch(task) as scratch:
            image = scratch / 'qcow2'
            base, base_id = self.base_files.bring(disk, scratch / 'base',
                                                  running.cancel)
            self._stores.open(task.project_id).export(
                disk.version, restoring.Output(image, 'qcow2'), base,
                base_id, self.job(running))
            size = image.stat().st_size
            image_id = self._glance.upload(image, version_images.NewImage(
                id=task.id, owner=task.project_id,
                name=task.name or f'version {task.version_id}',
                family=task.base_image, version_id=task.version_id,
                min_disk=-(-disk.size // 2 ** 30)), running.progress)
        running.report.result = version_tasks.result(image_id=image_id,
                                                     uploaded=size)

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

    def open_to_change(self, running) -> version_store.VersionStore:
        """Open the store of a task's project."""
        self._accept(running)
        return self._stores.open(running.task.project_id, running.task.id)

    def open_to_restore(self, running) -> version_store.VersionStore:
        """Open the store of a task's project, or its copy if that is lost."""
        project_id = running.task.project_id
        if self._stores.is_readable(project_id):
            return self.open_to_change(running)
        return self._stores.open(project_id)

    def _accept(self, running):
        """Accept what hosts that may only add have added, if this one does.

        :raises Busy: some of it was refused: the next attempt follows when the
            conductor knows which
        """
        found = self._stores.accept(
            running.task.project_id,
            functools.partial(self._base_image, running),
            self.job(running), running.task.id)
        self.base_indexes.update(
            checked=found.indexes_checked, refused=found.indexes_refused,
            unchecked=found.indexes_unchecked)
        if found.reasons:
            before = running.notes.get(_REFUSED, {})
            running.note(**{_REFUSED: {
                'refused': [*before.get('refused', ()), *found.refused],
                'reasons': [*before.get('reasons', ()), *found.reasons],
                'void': found.void or before.get('void')}})
            _report_refused(running)
            raise exceptions.Busy(
                f'What a host added to the store of project'
                f' {running.task.project_id} was refused: {found.reasons[0]}')

    @contextlib.contextmanager
    def _base_image(self, running, content_id: str
                    ) -> typing.Iterator[pathlib.Path | None]:
        """Give a base image of the catalogue as a file, if it is there."""
        with self._scratch(running.task) as scratch:
            path = scratch / 'base'
            yield path if self.base_files.deliver(
                content_id, path, running.cancel) else None

    def _diff(self, running):
        task = running.task
        store = self._stores.open(task.project_id)
        others = {disk.device: disk.version for disk in task.others}
        found = {disk.device: store.diff(disk.version, others[disk.device])
                 for disk in task.disks if disk.device in others}
        if not found:
            raise exceptions.InvalidInput(
                'The versions have no disk in common.')
        running.report.result = version_tasks.result(
            bytes=sum(each.bytes for each in found.values()),
            disks=[{'device': device, 'bytes': each.bytes,
                    'ranges': each.ranges[:_MAX_RANGES],
                    'ranges_in_all': len(each.ranges)}
                   for device, each in found.items()])

    def _forget(self, running):
        store = self.open_to_change(running)
        there = {version.id for version in _all(store)}
        gone = [disk.version for disk in running.task.disks
                if disk.version in there]
        if running.task.volume_id is not None and not gone and there:
            # The conductor may not know of a backup that was interrupted.
            gone = store.saved_with(running.task.version_id)
        if gone:
            store.delete(gone)
        running.report.store_bytes = store.bytes_stored() if there else 0

    def _prune(self, running):
        store = self.open_to_change(running)
        if not _all(store):
            return
        pruned = store.prune(rule=self._stores.prune_rule,
                             job=self.job(running))
        running.report.store_bytes = store.bytes_stored()
        running.report.result = version_tasks.result(
            bytes_before=pruned.bytes_before, bytes_after=pruned.bytes_after)

    def _rekey(self, running):
        """Replace the store's key if the task says so; rewrite some packs."""
        store = self.open_to_change(running)
        if not _all(store):
            return
        if running.task.name == versions.ROTATE \
                and 'rotated' not in running.notes:
            # Not again before the packs of former keys are rewritten.
            if not store.keys().former_keys:
                store = self._rotate(running, store)
            running.note(rotated=True)
        now = store.rewrite_keys(self._stores.rewrite_limit,
                                 self.job(running))
        if not now.packs_left:
            now = store.retire_keys()
        running.report.store_bytes = store.bytes_stored()
        running.report.result = version_tasks.result(**now.to_dict())

    def _rotate(self, running, store):
        """Replace the key of a store; return the store with the new one."""
        project_id = running.task.project_id
        if 'key_id' not in running.notes:
            running.note(key_id=self._stores.create_key(project_id))
        key, key_id = self._stores.key_to_rotate_to(
            project_id, running.notes['key_id'])
        if store.has_key(key):
            LOG.info('Versions of project %s have the present key already',
                     project_id)
            return store
        store = store.rotate_key(key, key_id)
        LOG.info('Versions of project %s have key %d now%s', project_id,
                 store.keys().key_number, f': {key_id}' if key_id else '')
        return store

    def _verify(self, running):
        found = self._stores.verify(running.task.project_id,
                                    self.job(running))
        for damage in found.damage:
            LOG.error('Versions of project %s: %s: %s',
                      running.task.project_id, damage.object, damage.reason)
        running.report.result = version_tasks.result(
            intact=found.intact, bytes_checked=found.bytes_checked,
            damage=[{'object': each.object, 'reason': each.reason}
                    for each in found.damage],
            disks_damaged=found.versions_damaged)

    def _replicate(self, running):
        running.report.result = version_tasks.result(**self._stores.replicate(
            running.task.project_id, self.job(running)).to_dict())

    def _recover(self, running):
        running.report.result = version_tasks.result(**self._stores.rebuild(
            running.task.project_id, self.job(running)).to_dict())


def _with_retries(running, work):
    """Perform a task, with some more attempts after retryable errors.

    Every kind of task can be repeated, and resumes where it was.
    """
    waits = list(_WAITS_SECONDS)
    while waits:
        try:
            work()
            return
        except store_reader.Distrusted as error:
            LOG.info('Repeating task %s: %s', running.task.id, error)
        except _RETRYABLE as error:
            seconds = waits.pop(0)
            LOG.info('Retrying task %s in %d s: %s', running.task.id,
                     seconds, error)
            if running.cancel.wait(seconds):
                raise exceptions.Cancelled('It was cancelled.') from error
    work()


def _report_refused(running) -> None:
    """Add what the task has refused of an inbox to its result."""
    if _REFUSED in running.notes:
        running.report.result = version_tasks.result(
            **(json.loads(running.report.result) | running.notes[_REFUSED]))


def _series(guest, disk) -> str:
    """Return the name of a disk's series in the store."""
    return f'{guest.server_id}-{disk.device}'


def _all(store) -> list[entries.Version]:
    try:
        return store.versions()
    except store_reader.NothingSaved:
        return []


def _running_guest(guest) -> snapshots.Guest | None:
    if not guest.running:
        return None
    return snapshots.Guest(guest.monitor, guest.agent)


def _alpha(text: str) -> float | str:
    return text if text == 'auto' else float(text)


def _summary(disks: list[objects.VersionDisk],
             saved: list[entries.Version]) -> objects.SavedVersion:
    return objects.SavedVersion(
        disks=disks, size=sum(version.size for version in saved),
        bytes_changed=sum(version.blocks_changed for version in saved)
        * store_access.BLOCK_SIZE,
        bytes_read=sum(version.bytes_read for version in saved),
        bytes_stored=sum(version.bytes_stored for version in saved),
        seconds=sum(version.seconds for version in saved),
        pause_ms=max(version.pause_ms for version in saved),
        frozen_ms=max(version.frozen_ms for version in saved),
        quiesced=all(version.quiesced for version in saved))


def _disk(device: str, version: entries.Version,
          volume_id: str | None = None) -> objects.VersionDisk:
    return objects.VersionDisk(
        device=device, version=version.id, size=version.size,
        base_id=version.base.id if version.base else None,
        base_name=version.base.name if version.base else None,
        volume_id=volume_id)


def _thaw_leftover(running, guest) -> None:
    """Thaw a guest that an agent may have frozen before it was killed."""
    if guest.agent is None:
        return
    if 'begun' in running.notes:
        guest_agent.thaw(guest.agent)
    else:
        running.note(begun=True)
