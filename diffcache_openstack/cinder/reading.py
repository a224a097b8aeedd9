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
"""Operations of Cinder that read volumes in use: these are held meanwhile."""

import collections.abc
import contextlib
import logging
import typing

from cinder import context as cinder_context
from cinder import exception
from cinder import objects
from cinder.objects import fields
from cinder.volume import group_types
from cinder.volume import volume_utils
from oslo_utils import excutils

from diffcache_openstack.cinder import holds

LOG = logging.getLogger(__name__)

# Does what a method of a backend does, and something of ours before or after:
# called with the driver, the method with its arguments, and the arguments.
Around = typing.Callable[..., typing.Any]
Proceed = typing.Callable[[], typing.Any]

# Of this process; a backend's driver is its only one.
HOLDS = holds.Holds()


def _create_snapshot(_driver: typing.Any, proceed: Proceed,
                     snapshot: typing.Any) -> typing.Any:
    return _made_of(snapshot.volume, 'snapshot', snapshot, proceed)


def _create_cloned_volume(_driver: typing.Any, proceed: Proceed,
                          volume: typing.Any, source: typing.Any
                          ) -> typing.Any:
    return _made_of(source, 'clone', volume, proceed)


def _made_of(volume: typing.Any, operation: str, made: typing.Any,
             proceed: Proceed) -> typing.Any:
    """Make something of a volume, of which Cinder can delete it.

    What the backend returns of it is kept if the hold has lapsed: without
    that, some cannot find it again.
    """
    changes = None
    try:
        with HOLDS.of([volume], operation):
            changes = proceed()
            return changes
    except Exception:
        with excutils.save_and_reraise_exception():
            if changes:
                made.update(changes)
                made.save()


def _copy_volume_to_image(_driver: typing.Any, proceed: Proceed,
                          _context: typing.Any, volume: typing.Any,
                          *_image: typing.Any) -> typing.Any:
    with HOLDS.of([volume], 'image'):
        return proceed()


def _get_backup_device(_driver: typing.Any, proceed: Proceed,
                       context: typing.Any, backup: typing.Any
                       ) -> typing.Any:
    if backup.snapshot_id:
        return proceed()
    volume = objects.Volume.get_by_id(context, backup.volume_id)
    try:
        with HOLDS.of([volume], 'backup'):
            found = device, is_snapshot = proceed()
            if not is_snapshot and device.id == volume.id:
                # It is no copy: cinder-backup reads what is in use.
                HOLDS.until(volume, 'backup', lambda: _is_made(backup.id),
                            lambda text: _fail_backup(backup.id, text))
            return found
    except Exception as error:
        with excutils.save_and_reraise_exception():
            _end_backup(backup, volume, error)


def _is_made(backup_id: str) -> bool:
    """Return whether cinder-backup may still read a volume."""
    try:
        found = _backup(backup_id)
    except exception.BackupNotFound:
        return False
    except Exception:
        # Any error of a database: the volume is held until it answers.
        LOG.exception('Could not look at backup %s', backup_id)
        return True
    return found.status == fields.BackupStatus.CREATING


def _fail_backup(backup_id: str, text: str) -> None:
    LOG.error('Backup %s: %s', backup_id, text)
    with contextlib.suppress(exception.BackupNotFound):
        volume_utils.update_backup_error(_backup(backup_id), text)


def _backup(backup_id: str) -> typing.Any:
    return objects.Backup.get_by_id(cinder_context.get_admin_context(),
                                    backup_id)


def _end_backup(backup: typing.Any, volume: typing.Any, error: Exception
                ) -> None:
    """Record that a backup failed, for cinder-backup does not hear of it.

    It has Cinder's manager call it back with the volume, which that does not
    after an error: the backup would be in creation for ever.
    """
    volume_utils.update_backup_error(backup, str(error))
    if volume.status == 'backing-up':
        volume.status = volume.previous_status
        volume.previous_status = 'error_backing-up'
        volume.save()


def _create_group_snapshot(driver: typing.Any, proceed: Proceed,
                           context: typing.Any, group_snapshot: typing.Any,
                           snapshots: collections.abc.Sequence[typing.Any]
                           ) -> typing.Any:
    """Snapshot a group, also where the backend leaves it to the manager.

    The manager snapshots one volume after the other, without what is held or
    waits for all of them; so that is done here.
    """
    volumes = [snapshot.volume for snapshot in snapshots]
    is_generic = not group_types.is_default_cgsnapshot_type(
        group_snapshot.group_type_id)
    with HOLDS.of(volumes, 'snapshot of a group'), \
            _one_moment(driver, volumes):
        try:
            return proceed()
        except NotImplementedError:
            if not is_generic:
                raise
        return _each(driver, snapshots)


def _create_cgsnapshot(driver: typing.Any, proceed: Proceed,
                       _context: typing.Any, _cgsnapshot: typing.Any,
                       snapshots: collections.abc.Sequence[typing.Any]
                       ) -> typing.Any:
    volumes = [snapshot.volume for snapshot in snapshots]
    with HOLDS.of(volumes, 'snapshot of a group'), \
            _one_moment(driver, volumes):
        return proceed()


def _create_group_from_source(_driver: typing.Any, proceed: Proceed,
                              _context: typing.Any, _group: typing.Any,
                              _volumes: typing.Any, _snapshot: typing.Any,
                              _snapshots: typing.Any, _source: typing.Any,
                              source_volumes: typing.Any) -> typing.Any:
    """Clone the volumes of a group.

    Where the backend leaves it to the manager, that clones each, which is
    held for itself: Cinder allows it of volumes that are not in use.
    """
    with HOLDS.of(source_volumes or (), 'clone of a group'):
        return proceed()


def _one_moment(driver: typing.Any,
                volumes: collections.abc.Iterable[typing.Any]
                ) -> typing.ContextManager[None]:
    """Have the writes of a group wait, unless the backend sees to that."""
    stats = driver.get_volume_stats() or {}
    reported = [stats, *(stats.get('pools') or ())]
    if any(each.get('consistent_group_snapshot_enabled')
           for each in reported):
        return HOLDS.queued(())
    return HOLDS.queued(volumes)


def _each(driver: typing.Any,
          snapshots: collections.abc.Iterable[typing.Any]
          ) -> tuple[dict[str, str], list[dict[str, typing.Any]]]:
    """Snapshot one volume after the other, as Cinder's manager does.

    :returns: what changes of the group snapshot, and of each snapshot
    """
    found, changes = fields.GroupSnapshotStatus.AVAILABLE, []
    for snapshot in snapshots:
        change = {'status': fields.SnapshotStatus.AVAILABLE}
        try:
            change |= driver.create_snapshot(snapshot) or {}
        except Exception:
            # Any error of a backend: Cinder's manager snapshots the rest, too.
            LOG.exception('Could not create snapshot %s', snapshot.id)
            change = {'status': fields.SnapshotStatus.ERROR}
            found = fields.GroupSnapshotStatus.ERROR
        changes.append({**change, 'id': snapshot.id})
    return {'status': found}, changes


AROUND: dict[str, Around] = {
    'create_snapshot': _create_snapshot,
    'create_cloned_volume': _create_cloned_volume,
    'copy_volume_to_image': _copy_volume_to_image,
    'get_backup_device': _get_backup_device,
    'create_group_snapshot': _create_group_snapshot,
    'create_cgsnapshot': _create_cgsnapshot,
    'create_group_from_src': _create_group_from_source,
    'create_consistencygroup_from_src': _create_group_from_source,
}
