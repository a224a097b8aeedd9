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
"""Versions of servers: requests of users, policies and hosts."""

import contextlib
import datetime
import typing

from oslo_config import cfg
from oslo_log import log
import oslo_messaging

from diffcache_openstack.cloud import quotas
from diffcache_openstack.cloud import servers as nova
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor.versions import dispatch
from diffcache_openstack.conductor.versions import project_shares
from diffcache_openstack.conductor.versions import transactions
from diffcache_openstack.db import engine
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.versions import policies as db_policies
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack.db.versions import tasks as db_tasks
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.objects import versions
from diffcache_openstack.rpc import agent_versions_api
from diffcache_openstack.rpc import conductor_versions_api

LOG = log.getLogger(__name__)

# A hook that waits for its turn calls again within this time.
HOOK_LEASE_TIME = datetime.timedelta(seconds=15)

# What Nova calls the task of a server that it waits for to be saved.
_TASKS = {versions.SHUTDOWN: ('powering-off',),
          versions.DELETE: ('deleting',),
          versions.IMAGE: ('image_pending_upload',
                           'shelving_image_pending_upload')}

# While it does, Nova does not show the host that a server will be on.
_MOVES = 'migrating'


class VersionService:
    """Changes the catalogue of versions, and starts tasks on them.

    It is the RPC endpoint of the REST API and of agents;
    :class:`.conductor_versions_api.VersionsAPI` is the contract.

    :param agents: RPC client, which cancels tasks
    """

    target = conductor_versions_api.VersionsAPI.target()

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database,
                 dispatcher: dispatch.Dispatcher, servers: nova.Servers,
                 agents: agent_versions_api.AgentVersionsAPI) -> None:
        self._agents = agents
        self._conf = conf
        self._database = database
        self._dispatcher = dispatcher
        self._servers = servers
        self._quotas = quotas.Quotas(conf, database)

    @oslo_messaging.expose
    def create_version(self, ctxt: contexts.RequestContext,
                       new: objects.NewVersion) -> None:
        """Start to save a server.

        :raises InvalidInput: the rate is lower than the operator allows
        :raises QuotaExceeded: the project has as much as it may
        """
        lowest = self._conf.versions.min_rate
        if new.rate and new.rate < lowest:
            raise exceptions.InvalidInput(
                f'rate: {new.rate} bytes per second is too low; request at'
                f' least {lowest}, or none.')
        task = transactions.save_task(new)
        if self._database.read(db_tasks.is_known, task.id):
            return
        with self._quotas.admission(new.project_id, quotas.VERSIONS,
                                    quotas.VERSION_MIB, quotas.TASKS):
            self._database.write(transactions.create, new, task,
                                 versioned.now())
        LOG.info('Version %s of server %s: %s', new.id, new.server_id,
                 new.trigger)
        self._dispatcher.wake()

    @oslo_messaging.expose
    def update_version(self, ctxt: contexts.RequestContext, version_id: str,
                       generation: int, values: dict[str, typing.Any]
                       ) -> None:
        """Change the name, description or protection of a version."""
        self._database.write(db.update, version_id, generation, values,
                             versioned.now())

    @oslo_messaging.expose
    def delete_version(self, ctxt: contexts.RequestContext, version_id: str
                       ) -> None:
        """Start to delete a version."""
        self._database.write(transactions.forget, version_id, versioned.now())
        self._dispatcher.wake()

    @oslo_messaging.expose
    def restore_version(self, ctxt: contexts.RequestContext, version_id: str,
                        task_id: str, keep_version: str | None,
                        dry_run: bool, way: str = versions.AUTO) -> None:
        """Start to restore a server to a version."""
        project_id, server_id = self._database.read(
            transactions.owner, version_id)
        server = self._servers.get(server_id)
        if not server.stopped:
            raise exceptions.Conflict(
                f'Cannot restore server {server_id}: it is {server.status}'
                f'{", " + server.task if server.task else ""}. Stop it first'
                f' (openstack server stop {server_id}).')
        kept = (quotas.VERSIONS, quotas.VERSION_MIB) if keep_version else ()
        with self._admission_of(task_id, project_id, *kept):
            task = objects.VersionTask(
                id=task_id, kind=versions.RESTORE, server_id=server_id,
                version_id=version_id, keep_version=keep_version,
                dry_run=dry_run, method=way)
            self._database.write(transactions.restore, version_id, task,
                                 versioned.now())
        self._dispatcher.wake()

    @oslo_messaging.expose
    def export_version(self, ctxt: contexts.RequestContext, version_id: str,
                       task_id: str, name: str,
                       device: str | None = None) -> None:
        """Start to export a disk of a version as an image."""
        project_id, _server_id = self._database.read(
            transactions.owner, version_id)
        task = objects.VersionTask(
            id=task_id, kind=versions.EXPORT, project_id=project_id,
            version_id=version_id, name=name)
        with self._admission_of(task_id, project_id):
            self._database.write(transactions.export, task, device,
                                 versioned.now())
        self._dispatcher.wake()

    @oslo_messaging.expose
    def open_version(self, ctxt: contexts.RequestContext, host: str,
                     version_id: str, project_id: str
                     ) -> objects.VersionDisk:
        """Let a host read a version, which is not deleted meanwhile.

        :raises NotFound: the project has no such version
        :raises Conflict: it is not complete, or has several disks
        :raises Forbidden: the host has no server of the project
        :raises ServiceUnavailable: Nova does not say whether it has
        """
        try:
            self._check_has_server(host, project_id)
        except exceptions.RetryableError as error:
            if not self._database.read(transactions.reads, host, version_id,
                                       versioned.now()):
                raise
            LOG.warning('Host %s reads version %s on, unchecked: %s', host,
                        version_id, error)
        return self._database.write(transactions.open_version, host,
                                    version_id, project_id, versioned.now())

    def _check_has_server(self, host, project_id):
        """Check that a host has a server of a project, or is to get one.

        :raises Forbidden: it has none
        """
        if not any(server.host == host or server.task == _MOVES
                   for server in self._servers.of_project(project_id)):
            raise exceptions.Forbidden(
                f'Host {host} has no server of project {project_id}, and may'
                f' not read its versions.')

    @oslo_messaging.expose
    def close_version(self, ctxt: contexts.RequestContext, host: str,
                      version_id: str) -> None:
        """Note that a host reads a version no longer."""
        self._database.write(plans.drop_lease,
                             transactions.read_lease(version_id, host), host)

    @oslo_messaging.expose
    def diff_versions(self, ctxt: contexts.RequestContext, version_id: str,
                      against: str, task_id: str) -> None:
        """Start to compare two versions."""
        project_id, _server_id = self._database.read(
            transactions.owner, version_id)
        with self._admission_of(task_id, project_id):
            self._database.write(transactions.diff, version_id, against,
                                 task_id, versioned.now())
        self._dispatcher.wake()

    @oslo_messaging.expose
    def maintain_store(self, ctxt: contexts.RequestContext, project_id: str,
                       task_id: str, task_kind: str) -> None:
        """Start to verify the store of a project, to copy or rebuild it."""
        if not self._database.read(db.has_any, project_id):
            raise exceptions.NotFound(
                f'Project {project_id} has no versions.')
        self._database.write(db_tasks.create, objects.VersionTask(
            id=task_id, kind=task_kind, project_id=project_id),
            versioned.now())
        self._dispatcher.wake()

    @oslo_messaging.expose
    def rotate_key(self, ctxt: contexts.RequestContext, project_id: str,
                   task_id: str) -> None:
        """Start to replace the key of a project's store.

        The task seals a part of the packs with the new key; more tasks do the
        rest, see :mod:`.upkeep`.
        """
        if not self._database.read(db_tasks.is_known, task_id) \
                and not self._database.read(db.has_any, project_id):
            raise exceptions.NotFound(
                f'Project {project_id} has no versions.')
        self._database.write(db_tasks.create, objects.VersionTask(
            id=task_id, kind=versions.REKEY, project_id=project_id,
            name=versions.ROTATE), versioned.now())
        self._dispatcher.wake()

    def _admission_of(self, task_id, project_id, *names):
        """Return the context in which a user's task is created."""
        if self._database.read(db_tasks.is_known, task_id):
            return contextlib.nullcontext()  # The call is repeated.
        return self._quotas.admission(project_id, quotas.TASKS, *names)

    @oslo_messaging.expose
    def cancel_task(self, ctxt: contexts.RequestContext, task_id: str
                    ) -> None:
        """Cancel a task."""
        host = self._database.write(db_tasks.cancel, task_id, versioned.now())
        if host is not None:
            self._agents.cancel(ctxt, host, task_id)

    @oslo_messaging.expose
    def report_task(self, ctxt: contexts.RequestContext,
                    report: objects.TaskReport) -> bool:
        """Note the progress of a task; return whether it is still wanted."""
        wanted = self._database.write(
            transactions.report, report, versioned.now(), ctxt.bound_host,
            self._conf.versions.maintenance_hosts)
        if report.state in versions.ENDED:
            if report.error:
                LOG.warning('Task %s: %s: %s', report.task_id, report.state,
                            report.error)
            # Other tasks of its project may wait for it.
            self._dispatcher.wake()
        return wanted

    @oslo_messaging.expose
    def take_task(self, ctxt: contexts.RequestContext, host: str,
                  task_id: str) -> objects.VersionTask:
        """Return a task on a volume that a host begins to perform.

        :raises Forbidden: it is not to be performed there
        """
        return self._database.write(db_tasks.take, task_id, host,
                                    versioned.now())

    @oslo_messaging.expose
    def set_policy(self, ctxt: contexts.RequestContext,
                   policy: objects.VersionPolicy) -> str:
        """Set a policy; one that is replaced needs no quota."""
        with contextlib.ExitStack() as stack:
            if not self._database.read(db_policies.exists, policy.project_id,
                                       policy.server_id):
                stack.enter_context(self._quotas.admission(
                    policy.project_id, quotas.POLICIES))
            return self._database.write(db_policies.put, policy,
                                        versioned.now())

    @oslo_messaging.expose
    def unset_policy(self, ctxt: contexts.RequestContext, policy_id: str
                     ) -> None:
        """Remove a policy."""
        self._database.write(db_policies.remove, policy_id)

    @oslo_messaging.expose
    def begin_local(self, ctxt: contexts.RequestContext, host: str,
                    new: objects.NewVersion) -> list | None:
        """Return a task for a host on which Nova waits for a save.

        :raises NotFound: Nova has no such server
        :raises Forbidden: Nova does nothing with it there that waits
        :raises ServiceUnavailable: Nova does not answer
        :raises QuotaExceeded: the policy requires a version that the project
            may not save; one that is not required is left out
        """
        policy = self._database.read(db_policies.of_server, new.project_id,
                                     new.server_id)
        required = _is_required(new, policy)
        if required is None:
            return None
        server = self._servers.get(new.server_id)
        server.check_task(new.project_id, host, _TASKS[new.trigger])
        new.base_image = server.image_id
        if policy is not None:
            new.alpha = policy.alpha
        task = transactions.save_task(new)
        if not self._database.read(db_tasks.is_known, task.id):
            try:
                with self._quotas.admission(
                        new.project_id, quotas.VERSIONS, quotas.VERSION_MIB):
                    self._begin_hook(new, task, host)
            except exceptions.QuotaExceeded as error:
                LOG.warning('Could not save server %s before its %s: %s',
                            new.server_id, new.trigger, error)
                if required:
                    raise
                return None
            if new.trigger == versions.IMAGE:
                self._supersede(new)
        return [task, required]

    def _supersede(self, new):
        """Delete the versions that earlier images of a server were read of.

        Glance has those images. One version stays for the next to differ from.
        """
        now = versioned.now()
        for version_id in self._database.read(db.of_images, new.server_id):
            try:
                self._database.write(transactions.forget, version_id, now)
            except exceptions.DiffCacheError as error:
                LOG.info('Version %s stays until the next image of server %s:'
                         ' %s', version_id, new.server_id, error)

    def _begin_hook(self, new, task, host):
        now = versioned.now()
        lease = dispatch.hook_lease(project_shares.subject(task))
        try:
            self._database.write(transactions.begin_local, new, task, host,
                                 now, self._dispatcher.alone)
        except exceptions.Busy:
            # The hook tries again soon; no queued task comes before it.
            self._database.write(
                plans.take_lease, lease, host, now, now + HOOK_LEASE_TIME)
            raise
        self._database.write(plans.drop_lease, lease, host)
        LOG.info('Version %s of server %s: %s', new.id, new.server_id,
                 new.trigger)


def _is_required(new, policy) -> bool | None:
    """Return whether a save that a host asks for must succeed; None for none.

    :param policy: of the server; None for none
    """
    if new.trigger == versions.IMAGE:
        return True
    if policy is None or not {
            versions.SHUTDOWN: policy.on_shutdown,
            versions.DELETE: policy.on_delete}.get(new.trigger, False):
        return None
    return policy.required
