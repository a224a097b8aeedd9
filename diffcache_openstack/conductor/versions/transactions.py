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
"""Changes of the catalogue of versions, each in one transaction."""

import datetime
import hashlib
import json
import uuid

from oslo_log import log
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor.versions import project_shares
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.versions import heads as db_heads
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack.db.versions import tasks as db_tasks
from diffcache_openstack import objects
from diffcache_openstack.objects import versions

LOG = log.getLogger(__name__)

# The ids of tasks that save versions are computed from the versions' ids.
_SAVES = uuid.UUID('5b0a8d7e-4c53-4e0f-9a35-0d3f7c6f1b52')


def save_task(new: objects.NewVersion) -> objects.VersionTask:
    """Create the task of saving a version, always with the same ID."""
    return objects.VersionTask(
        id=str(uuid.uuid5(_SAVES, new.id)), kind=versions.SAVE,
        project_id=new.project_id, server_id=new.server_id,
        version_id=new.id, alpha=new.alpha, rate=new.rate,
        base_image=new.base_image, volumes=new.volumes)


def forget(session: orm.Session, version_id: str,
           when: datetime.datetime) -> None:
    """Start to delete a version, in a transaction; it may be repeated."""
    if db.need(session, version_id).state == versions.DELETING:
        if not db_tasks.is_being_forgotten(session, version_id):
            _queue_forget(session, version_id, when)  # It failed before.
        return
    if plans.leased(session, read_lease(version_id), when):
        raise exceptions.Conflict(
            f'Cannot delete version {version_id}: a server boots from it while'
            f' it arrives. Try again when it is whole at the host of the'
            f' server, or some minutes after the server was deleted.')
    plans.drop_leases(session, read_lease(version_id))
    if db.begin_deleting(session, version_id, when):
        _queue_forget(session, version_id, when)


def _queue_forget(session, version_id, when):
    row = db.need(session, version_id)
    db_tasks.create(session, objects.VersionTask(
        id=str(uuid.uuid4()), kind=versions.FORGET, project_id=row.project_id,
        server_id=row.server_id, volume_id=row.volume_id,
        version_id=version_id, disks=db.disks(row)), when)


def report(session, report, when, host, maintaining) -> bool:
    """Store a report and what follows from it; return whether it counts."""
    wanted = db_tasks.report(session, report, when, host)
    if maintaining:
        _follow_up(session, report, wanted, when, maintaining)
    return wanted


def _follow_up(session, report, first, when, maintaining):
    """Have what a host added accepted; note what was refused.

    :param first: whether the report is of a task that had not ended
    """
    task, host = db_tasks.find(session, report.task_id)
    if task is None:
        return
    if (first and report.state in versions.ENDED
            and task.kind in versions.AT_THE_DISK):
        db_tasks.create(session, objects.VersionTask(
            id=str(uuid.uuid5(_SAVES, f'accept {task.id}')),
            kind=versions.ACCEPT, project_id=task.project_id), when)
    result = json.loads(report.result)
    refused, void = set(result.get('refused', ())), result.get('void')
    if refused and host in maintaining:
        LOG.error('Versions of project %s were refused by the store: %s',
                  task.project_id, ', '.join(sorted(refused)))
        db.refuse(session, task.project_id, refused, when)
    if void and host in maintaining:
        db_heads.forget_void(session, task.project_id, *void)


def create(session: orm.Session, new: objects.NewVersion,
           task: objects.VersionTask, when: datetime.datetime) -> None:
    """Create a version, and the task that saves it."""
    if db_tasks.is_known(session, task.id):
        return
    _not_restored(session, new.server_id)
    if db.create(session, new, when):
        db_tasks.create(session, task, when)


def _not_restored(session, server_id):
    """Refuse to touch a server that is being restored.

    :raises Conflict: it is
    """
    task_id = db_tasks.busy_server(session, server_id, [versions.RESTORE])
    if task_id is not None:
        raise exceptions.Conflict(
            f'Server {server_id} is being restored by task {task_id}; wait'
            f' until that task completes.')


def _complete(session, version_id):
    """Return the row of a version that can be restored.

    :raises Conflict: the store does not have all of it
    """
    row = db.need(session, version_id)
    if row.state != versions.AVAILABLE:
        raise exceptions.Conflict(
            f'Version {version_id} is {row.state}; use a version that is'
            f' available.')
    return row


def owner(session, version_id):
    """Return project and server of a version."""
    row = db.need(session, version_id)
    return row.project_id, row.server_id


def restore(session: orm.Session, version_id: str,
            task: objects.VersionTask, when: datetime.datetime) -> None:
    """Create the task of restoring a server to a version."""
    row = _complete(session, version_id)
    if db_tasks.is_known(session, task.id):
        return
    _not_restored(session, row.server_id)
    if task.keep_version is not None:
        db.create(session, objects.NewVersion(
            id=task.keep_version, server_id=row.server_id,
            project_id=row.project_id, trigger=versions.ROLLBACK,
            description=f'Before the restore of {version_id}',
            base_image=row.base_image), when)
    task.project_id, task.disks = row.project_id, db.disks(row)
    db_tasks.create(session, task, when)


def export(session: orm.Session, task: objects.VersionTask,
           device: str | None, when: datetime.datetime) -> None:
    """Create the task of exporting a disk of a version, or its first."""
    row = _complete(session, task.version_id)
    found = db.disks(row)
    task.disks = [disk for disk in found
                  if device is None or disk.device == device][:1]
    if not task.disks:
        raise exceptions.NotFound(
            f'Version {row.id} has no disk {device}; it has'
            f' {", ".join(disk.device for disk in found)}.')
    task.server_id = row.server_id
    if task.disks[0].version == found[0].version:
        task.image_id, task.base_image = row.image_id, row.base_image
    db_tasks.create(session, task, when)


def open_version(session: orm.Session, host: str, version_id: str,
                 project_id: str, when: datetime.datetime
                 ) -> objects.VersionDisk:
    """Lease a version to a host that reads it."""
    row = _complete(session, version_id)
    if row.project_id != project_id:
        raise exceptions.NotFound(
            f'Project {project_id} has no version {version_id}.')
    found = db.disks(row)
    if len(found) != 1:
        raise exceptions.Conflict(
            f'Version {version_id} has {len(found)} disks, and a server boots'
            f' from one: export the version as an image.')
    plans.take_lease(
        session, read_lease(version_id, host), host, when,
        when + datetime.timedelta(seconds=versions.READ_SECONDS))
    return found[0]


def reads(session, host, version_id, when):
    """Return whether a host has the lease of a version."""
    return bool(plans.leased(session, read_lease(version_id, host), when))


def read_lease(version_id: str, host: str | None = None) -> str:
    """Return the lease of a host that reads a version.

    Without a host, what the leases of all hosts begin with.
    """
    # Names of hosts may be too long.
    digest = '' if host is None else hashlib.sha256(
        host.encode()).hexdigest()[:16]
    return f'version-read:{version_id}:{digest}'


def diff(session: orm.Session, version_id: str, against: str, task_id: str,
         when: datetime.datetime) -> None:
    """Create the task of comparing two versions."""
    one, other = (_complete(session, each) for each in (version_id, against))
    if one.project_id != other.project_id:
        raise exceptions.Conflict(
            f'Cannot compare versions {version_id} and {against}: they'
            f' belong to different projects.')
    db_tasks.create(session, objects.VersionTask(
        id=task_id, kind=versions.DIFF, project_id=one.project_id,
        server_id=one.server_id, version_id=version_id, disks=db.disks(one),
        others=db.disks(other)), when)


def begin_local(session, new, task, host, when, alone) -> None:
    """Create a version, and have a host perform the task that saves it."""
    if db_tasks.is_known(session, task.id):
        return
    check_not_excluded(session, task, alone, f'save server {new.server_id}')
    create(session, new, task, when)
    db_tasks.sent(session, task.id, host, when)


def check_not_excluded(session: orm.Session, task: objects.VersionTask,
                       alone: tuple[str, ...], what: str) -> None:
    """Check that no running task has to end before a new one begins.

    :param alone: kinds of tasks beside which no other writes
    :param what: is to be done, for the message
    :raises Busy: one has
    """
    alive = {each.name for each in host_rows.list_hosts(session) if each.alive}
    running = [entry for entry in db_tasks.open_tasks(session)
               if entry.state == versions.RUNNING and entry.host in alive
               and project_shares.excludes(entry.task, task, alone)]
    if running:
        raise exceptions.Busy(
            f'Cannot {what} yet: task {running[0].task.id} of its project is'
            f' running; try again when it has ended.')
