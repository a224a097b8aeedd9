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
"""Driver of cinder-backup: volumes as versions in the version store.

The conductor begins each task, and the agent of this host performs it on the
volume that Cinder has opened, and that is passed on to it. A task that was cut
off, by the end of the agent or of a connection, is begun again and resumes.
"""

import collections.abc
import contextlib
import logging
import os
import time
import typing

from cinder.backup import driver
from cinder import exception
from cinder import interface
from cinder.objects import fields
from cinder.volume import volume_utils
from oslo_config import cfg

from diffcache_openstack.agent_client import volume_client
from diffcache_openstack.cinder import conductors
from diffcache_openstack.cinder import options
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.remote_calls import conductor_backups_api

LOG = logging.getLogger(__name__)
CONF = cfg.CONF

# Between calls while another task of the project changes its store, and
# while the agent is restarted.
_AGAIN_S = 2.0
_PROGRESS_S = 10.0
_DELETED = (fields.BackupStatus.DELETING, fields.BackupStatus.DELETED)
_RETRIED = (exceptions.Busy, exceptions.Cancelled,
            exceptions.ServiceUnavailable)

Result = typing.TypeVar('Result')


class _Deleted(Exception):
    """The backup was deleted while it was made."""


@interface.backupdriver
class VersionStoreDriver(driver.BackupDriver):
    """Keeps backups as versions of their volumes."""

    def __init__(self, context: typing.Any) -> None:
        super().__init__(context)
        self.support_force_delete = True
        options.register_opts(CONF)
        self._caller = contexts.RequestContext.for_request(
            getattr(context, 'request_id', None))
        self._api: conductor_backups_api.BackupsAPI | None = None

    @staticmethod
    def get_driver_options() -> list[cfg.Opt]:
        """Return the options of backups."""
        return options.BACKUP_OPTS

    def check_for_setup_error(self) -> None:
        """Check that the agent of this host answers, and the conductor's bus.

        :raises BackupDriverException: it does not
        """
        with _translated('Cannot use the version store'):
            self._agent.host()
            self._conductor

    def backup(self, backup: typing.Any, volume_file: typing.Any,
               backup_metadata: bool = True) -> None:
        """Save a volume; a backup that is deleted meanwhile is cancelled."""
        new = objects.NewVersion(
            id=backup.id, volume_id=backup.volume_id,
            project_id=backup.project_id, name=backup.display_name or '',
            alpha=CONF.diffcache.backup_alpha,
            volume_metadata=self.get_metadata(backup.volume_id)
            if backup_metadata else '')

        def watch(done: int, total: int) -> None:
            with backup.as_read_deleted():
                backup.refresh()
            if backup.status in _DELETED:
                raise _Deleted()
            volume_utils.notify_about_backup_usage(
                self.context, backup, 'createprogress', extra_usage_info={
                    'backup_percent': done * 100 / max(total, 1)})

        def save() -> bool:
            """Save what is not saved; return whether there was something."""
            task_id = self._conductor.begin_backup(self._caller, new,
                                                   self._agent.host())
            if task_id is not None:
                saved = self._agent.perform(task_id, volume,
                                            progress=_seldom(watch))
                LOG.info('Backup %s: %s', backup.id, saved)
            return task_id is not None

        with _translated(f'Cannot back up volume {backup.volume_id}'):
            volume = _descriptor(volume_file)
            try:
                # Until the conductor has the report on it.
                while self._retried(save, lambda: watch(0, 1)):
                    pass
                watch(1, 1)
            except _Deleted:
                LOG.info('Backup %s is deleted, and not completed', backup.id)
                self.delete_backup(backup)

    def restore(self, backup: typing.Any, volume_id: str,
                volume_file: typing.Any, volume_is_new: bool) -> None:
        """Write a backup to a volume, where it differs from it.

        :raises BackupRestoreCancel: the backup's status was changed meanwhile
        """
        def watch(_done: int, _total: int) -> None:
            with backup.as_read_deleted():
                backup.refresh()
            if backup.status != fields.BackupStatus.RESTORING:
                raise exception.BackupRestoreCancel(
                    back_id=backup.id, vol_id=volume_id)

        with (_translated(f'Cannot restore backup {backup.id}'),
              _readable(volume_file) as volume):
            def write() -> str:
                task_id, metadata = self._conductor.begin_restore(
                    self._caller, backup.id, backup.project_id, volume_id,
                    self._agent.host())
                written = self._agent.perform(task_id, volume,
                                              progress=_seldom(watch))
                LOG.info('Restore of backup %s to volume %s: %s', backup.id,
                         volume_id, written)
                return metadata

            metadata = self._retried(write, lambda: watch(0, 1))
        if metadata:
            self.put_metadata(volume_id, metadata)

    def delete_backup(self, backup: typing.Any) -> None:
        """Cancel the work on a backup, and have it deleted."""
        with _translated(f'Cannot delete backup {backup.id}'):
            self._conductor.delete_backup(self._caller, backup.id,
                                          backup.project_id)

    def import_record(self, backup: typing.Any,
                      driver_info: dict[str, typing.Any]) -> None:
        """Check that the version store has a backup that is imported.

        :raises BackupDriverException: it has not
        """
        with _translated(f'Cannot import backup {backup.id}'):
            self._conductor.verify_backup(self._caller, backup.id,
                                          backup.project_id)

    @property
    def _agent(self) -> volume_client.VolumeClient:
        return volume_client.VolumeClient(
            CONF.diffcache.socket, request_id=lambda: getattr(
                self.context, 'request_id', None))

    @property
    def _conductor(self) -> conductor_backups_api.BackupsAPI:
        if self._api is None:
            self._api = conductors.connect(conductor_backups_api.BackupsAPI)
        return self._api

    def _retried(self, work: collections.abc.Callable[[], Result],
                 watch: collections.abc.Callable[[], None]) -> Result:
        """Do work, again after errors that pass.

        Waiting for other tasks of the project is not limited, as these are
        done one after the other.

        :param watch: raises an error to end it
        """
        ends = None
        while True:
            try:
                return work()
            except _RETRIED as error:
                watch()
                now = time.monotonic()
                if isinstance(error, exceptions.Busy):
                    ends = None
                elif ends is None:
                    ends = now + CONF.diffcache.restart_timeout
                elif now > ends:
                    raise
                LOG.info('Trying again in %s s: %s', _AGAIN_S, error)
            time.sleep(_AGAIN_S)


@contextlib.contextmanager
def _translated(what: str) -> collections.abc.Iterator[None]:
    """Raise errors of ours as Cinder's."""
    try:
        yield
    except exceptions.DiffCacheError as error:
        raise exception.BackupDriverException(
            reason=f'{what}: {error}') from error


def _descriptor(volume_file: typing.Any) -> int:
    """Return the descriptor of a volume.

    :raises InvalidInput: Cinder reads it by a library
    """
    try:
        return volume_file.fileno()
    except OSError as error:
        raise exceptions.InvalidInput(
            'the volume is no device or file of this host, as with RBD: use'
            ' another backup_driver for it') from error


@contextlib.contextmanager
def _readable(volume_file: typing.Any) -> collections.abc.Iterator[int]:
    """Yield a descriptor of a volume that is open for reading, too.

    Cinder opens volumes for writing only.
    """
    descriptor = os.open(f'/proc/self/fd/{_descriptor(volume_file)}',
                         os.O_RDWR)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _seldom(watch: collections.abc.Callable[[int, int], None]
            ) -> collections.abc.Callable[[int, int], None]:
    """Return what calls a function with the progress, but not each time."""
    due = time.monotonic() + _PROGRESS_S

    def progress(done: int, total: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            watch(done, total)
            due = time.monotonic() + _PROGRESS_S

    return progress
