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
"""Backups of volumes: versions that Cinder's backup service requests.

Each is begun here, by a service whose key allows that, and performed by the
agent that this names, to which cinder-backup gives the open volume.
"""

import datetime
import uuid

from oslo_log import log
import oslo_messaging
from sqlalchemy import orm

from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor.versions import dispatch
from diffcache_openstack.conductor.versions import service
from diffcache_openstack.conductor.versions import transactions
from diffcache_openstack.db import engine
from diffcache_openstack.db import models
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack.db.versions import tasks as db_tasks
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.objects import versions
from diffcache_openstack.remote_calls import conductor_backups_api
from diffcache_openstack.rpc import agent_versions_api

LOG = log.getLogger(__name__)


class Backups:
    """The RPC endpoint of cinder-backup.

    :class:`.conductor_backups_api.BackupsAPI` is the contract.

    :param agents: RPC client, which cancels tasks
    """

    target = conductor_backups_api.BackupsAPI.target()

    def __init__(self, database: engine.Database,
                 dispatcher: dispatch.Dispatcher,
                 agents: agent_versions_api.AgentVersionsAPI) -> None:
        self._database = database
        self._dispatcher = dispatcher
        self._agents = agents

    @oslo_messaging.expose
    def begin_backup(self, ctxt: contexts.RequestContext,
                     new: objects.NewVersion, agent: str) -> str | None:
        """Return the id of the task that saves a volume; None if it is saved.

        :raises Busy: another task has to end before
        :raises Conflict: the backup is being deleted, or another one has the
            id
        """
        if new.volume_id is None or new.server_id is not None:
            raise exceptions.InvalidInput(
                f'Version {new.id} is no backup of a volume.')
        now = versioned.now()
        lease = dispatch.hook_lease((new.project_id, new.volume_id))
        try:
            task_id = self._database.write(
                _begin, new, agent, now, self._dispatcher.alone)
        except exceptions.Busy:
            # No queued task comes before it: cinder-backup repeats the call.
            self._database.write(plans.take_lease, lease, agent, now,
                                 now + service.HOOK_LEASE_TIME)
            raise
        self._database.write(plans.drop_lease, lease, agent)
        return task_id

    @oslo_messaging.expose
    def begin_restore(self, ctxt: contexts.RequestContext, backup_id: str,
                      project_id: str, volume_id: str, agent: str
                      ) -> list[str]:
        """Return the id of a task that writes a backup, and its metadata.

        :raises NotFound: the project has no such backup
        :raises Conflict: it is not complete
        """
        task = objects.VersionTask(
            id=str(uuid.uuid4()), kind=versions.RESTORE_VOLUME,
            project_id=project_id, volume_id=volume_id, version_id=backup_id)
        return self._database.write(_begin_restore, task, agent,
                                    versioned.now())

    @oslo_messaging.expose
    def delete_backup(self, ctxt: contexts.RequestContext, backup_id: str,
                      project_id: str) -> None:
        """Cancel the work on a backup, and start to delete it."""
        cancelled = self._database.write(_delete, backup_id, project_id,
                                         versioned.now())
        for task_id, host in cancelled:
            self._agents.cancel(ctxt, host, task_id)
        self._dispatcher.wake()

    @oslo_messaging.expose
    def verify_backup(self, ctxt: contexts.RequestContext, backup_id: str,
                      project_id: str) -> None:
        """Check that a backup can be restored.

        :raises NotFound: the project has no such backup
        :raises Conflict: it is not complete
        """
        self._database.write(_complete, backup_id, project_id)


def _begin(session: orm.Session, new: objects.NewVersion, agent: str,
           when: datetime.datetime, alone: tuple[str, ...]) -> str | None:
    row = _find(session, new.id)
    if row is not None:
        _check_same(row, new)
        if row.state == versions.AVAILABLE:
            return None
        if row.state == versions.SAVING:
            running = db_tasks.work_on(session, new.id, [versions.SAVE])
            if running and running[0].host == agent \
                    and not running[0].cancelling:
                return running[0].id
            raise exceptions.Busy(
                f'Backup {new.id} is being saved by host'
                f' {running[0].host if running else None}; try again when it'
                f' has ended.')
    task = objects.VersionTask(
        id=str(uuid.uuid4()), kind=versions.SAVE, project_id=new.project_id,
        volume_id=new.volume_id, version_id=new.id, alpha=new.alpha)
    transactions.check_not_excluded(session, task, alone,
                                    f'back up volume {new.volume_id}')
    if row is None:
        db.create(session, new, when)
    else:
        row.state, row.updated_at = versions.SAVING, when
        row.error = row.error_code = None
    db_tasks.create(session, task, when)
    db_tasks.sent(session, task.id, agent, when)
    LOG.info('Backup %s of volume %s: task %s of host %s', new.id,
             new.volume_id, task.id, agent)
    return task.id


def _check_same(row, new):
    if (row.project_id, row.volume_id) != (new.project_id, new.volume_id):
        raise exceptions.Conflict(
            f'Version {new.id} exists, and is none of volume {new.volume_id}'
            f' of project {new.project_id}.')
    if row.state == versions.DELETING:
        raise exceptions.Conflict(f'Backup {new.id} is being deleted.')


def _begin_restore(session, task, agent, when):
    row = _complete(session, task.version_id, task.project_id)
    task.disks = db.disks(row)
    db_tasks.create(session, task, when)
    db_tasks.sent(session, task.id, agent, when)
    LOG.info('Restore of backup %s to volume %s: task %s of host %s',
             task.version_id, task.volume_id, task.id, agent)
    return [task.id, row.volume_metadata]


def _complete(session, backup_id, project_id):
    row = _find(session, backup_id)
    if row is None or row.project_id != project_id:
        raise exceptions.NotFound(
            f'Project {project_id} has no backup {backup_id} in the version'
            f' store.')
    if row.state != versions.AVAILABLE:
        raise exceptions.Conflict(
            f'Backup {backup_id} is {row.state} in the version store'
            f'{": " + row.error if row.error else ""}.')
    return row


def _delete(session, backup_id, project_id, when):
    """Start to delete a backup; return the tasks to cancel, and their hosts.

    The task that removes it from the store comes after the one that saves it.
    """
    row = _find(session, backup_id)
    if row is None or row.project_id != project_id:
        return []
    cancelled = db_tasks.cancel_work(
        session, backup_id, (versions.SAVE, versions.RESTORE_VOLUME), when)
    if row.state == versions.SAVING:
        row.state, row.updated_at = versions.ERROR, when
    transactions.forget(session, backup_id, when)
    return cancelled


def _find(session, backup_id) -> models.ServerVersion | None:
    """Return the row of a backup; no server's version is one."""
    try:
        row = db.need(session, backup_id)
    except exceptions.NotFound:
        return None
    return None if row.volume_id is None else row
