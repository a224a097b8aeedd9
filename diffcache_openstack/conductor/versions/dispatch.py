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
"""Dispatching tasks on versions to hosts.

All state is in the database. A task is sent again until its host reports on
it, and hosts perform no task twice, so that an outage of a conductor, broker
or agent only delays it. Which tasks may run side by side is said by
:mod:`.project_shares`. Projects take turns, each with a share, so that no
queue of one delays another.
"""

import concurrent.futures
import datetime
import threading

from oslo_config import cfg
from oslo_log import log

from diffcache_openstack.cloud import servers as nova
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor.versions import project_shares
from diffcache_openstack.db import engine
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.versions import tasks as db
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.objects import versions
from diffcache_openstack.rpc import agent_versions_api

LOG = log.getLogger(__name__)

LEASE = 'versions'
_LEASE_TIME = datetime.timedelta(seconds=60)
# What a hook has that waits for a task to end.
_HOOK_LEASE = 'version-hook:'


def hook_lease(subject: project_shares.Subject) -> str:
    """Return the name of the lease of hooks that wait for a subject."""
    project_id, name = subject
    return f'{_HOOK_LEASE}{project_id[:100]}:{name[:100]}'


class Dispatcher:
    """Sends tasks, in rounds over all of them.

    :param owner: the unique name of this conductor
    """

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database,
                 agents: agent_versions_api.AgentVersionsAPI,
                 servers: nova.Servers, owner: str):
        self._conf = conf
        self._database = database
        self._agents = agents
        self._servers = servers
        self._owner = owner
        self._turns = project_shares.Turns()
        self._looked = self._listens_since = versioned.now()
        # The lease excludes other conductors, not threads of this one.
        self._lock = threading.Lock()
        self._context = contexts.RequestContext.for_service('conductor')
        self._pool = concurrent.futures.ThreadPoolExecutor(
            1, thread_name_prefix='versions')

    @property
    def alone(self) -> tuple[str, ...]:
        """The kinds of tasks beside which no other one writes."""
        return project_shares.alone(self._conf)

    def wake(self) -> None:
        """Start a round soon, without waiting for it."""
        self._pool.submit(self._look)

    def stop(self) -> None:
        """Start no more rounds."""
        self._pool.shutdown(cancel_futures=True)

    def look(self) -> None:
        """Run a round if there are tasks, unless another conductor does."""
        if not self._database.read(db.is_any_open):
            return
        with self._lock:
            self._take_turn()

    def _take_turn(self):
        now = versioned.now()
        holder = self._database.write(
            plans.take_lease, LEASE, self._owner, now, now + _LEASE_TIME)
        if holder is not None:
            return
        try:
            self._send_all(now)
        finally:
            self._database.write(plans.drop_lease, LEASE, self._owner)

    def _look(self):
        try:
            self.look()
        except Exception:
            LOG.exception('Could not send tasks, will retry in the next round')

    def _send_all(self, now):
        self._end_lapsed(now)
        tasks = self._database.read(db.open_tasks)
        if not tasks:
            return
        alive = {host.name: host for host
                 in self._database.read(host_rows.list_hosts) if host.alive}
        # A host that is not alive holds no other task of the project up:
        # should it be writing, the store's own locks decide.
        running = [entry.task for entry in tasks
                   if entry.state == versions.RUNNING and entry.host in alive]
        shares = project_shares.Shares(
            running, self._hooked(tasks, now),
            self._conf.versions.project_tasks, self.alone)
        for entry in tasks:
            if entry.state == versions.RUNNING:
                self._send_again(entry, alive, now)
        queued = {entry.task.id: entry for entry in tasks
                  if entry.state == versions.QUEUED}
        for task in self._turns.order([
                entry.task for entry in queued.values()]):
            if shares.admits(task):
                shares.attempt(task)
                self._turns.attempt(task)
                if self._send(queued[task.id], alive, now):
                    shares.start(task)

    def _end_lapsed(self, now):
        """Take tasks from hosts that do not report them any more.

        Only time in which the conductor could receive reports counts.
        """
        if now - self._looked > db.LEASE_TIME / 2:
            self._listens_since = now
        self._looked = now
        if now - db.LEASE_TIME < self._listens_since:
            return
        for task_id in self._database.write(db.end_lapsed, now):
            LOG.warning('Task %s is taken from its host, which has not'
                        ' reported it for %d s', task_id,
                        versions.LEASE_SECONDS)

    def _hooked(self, tasks, now):
        """Return the subjects whose next writer is a hook that waits."""
        leases = self._database.read(plans.leased, _HOOK_LEASE, now)
        projects = {lease.rpartition(':')[0] for lease in leases}
        subjects = {project_shares.subject(entry.task) for entry in tasks}
        return {each for each in subjects if hook_lease(each) in leases} | {
            (project_id, '') for project_id, _ in subjects
            if hook_lease((project_id, '')).rpartition(':')[0] in projects}

    def _send_again(self, entry, alive, now):
        """Send a task again whose host has not reported for a while."""
        last = max(filter(None, (entry.sent_at, entry.seen_at)))
        silence = (now - last).total_seconds()
        if silence < self._conf.versions.resend_interval:
            return
        host = entry.host
        if host not in alive:
            if entry.task.kind in versions.AT_THE_DISK:
                return  # Resumed if its host is back within its lease.
            host = self._any_host(entry, alive)
        if host is not None:
            self._hand_over(entry.task, host, now)

    def _send(self, entry, alive, now):
        task = entry.task
        try:
            host = self._host_of(entry, alive)
        except exceptions.NotFound as error:
            self._database.write(db.fail, task.id, error, now)
            return False
        except exceptions.RetryableError as error:
            LOG.warning('Postponing task %s (%s): %s', task.id, task.kind,
                        error)
            return False
        return self._hand_over(task, host, now)

    def _hand_over(self, task, host, now):
        """Send a task to a host; return whether it is marked as sent."""
        if not self._database.write(db.sent, task.id, host, now):
            return False
        LOG.info('Sending task %s, %s of version %s, to host %s', task.id,
                 task.kind, task.version_id, host)
        try:
            self._agents.perform(self._context, host, task)
        except exceptions.ServiceUnavailable as error:
            LOG.warning('Could not send task %s, will retry: %s', task.id,
                        error)
        return True

    def _host_of(self, entry, alive):
        """Return the host for a task.

        :raises NotFound: the server does not exist any more
        :raises RetryableError: no such host is alive
        """
        task = entry.task
        if task.kind in versions.AT_THE_DISK:
            host = self._servers.get(task.server_id).host
            if not host:
                raise exceptions.NotFound(
                    f'Server {task.server_id} is on no host: shelved servers'
                    f' and those that failed to start have no disks.')
            if host not in alive:
                raise exceptions.ServiceUnavailable(
                    f'the agent of host {host}, which has server'
                    f' {task.server_id}, is not alive')
            return host
        host = self._any_host(entry, alive)
        if host is None:
            raise exceptions.ServiceUnavailable(
                'no agent that may perform it is alive')
        return host

    def _any_host(self, entry: db.Open, alive: dict[str, objects.Host]
                  ) -> str | None:
        """Return a host for a task of any host, preferably the repository.

        The repository has all base images. A host that has lost the task
        comes last.
        """
        ordered = sorted(
            (host for host in alive.values()
             if self._may_perform(entry.task.kind, host)),
            key=lambda host: (host.name == entry.host,
                              host.role != objects.REPOSITORY, host.name))
        return ordered[0].name if ordered else None

    def _may_perform(self, kind: str, host: objects.Host) -> bool:
        if kind == versions.EXPORT:
            # Others have no account that may write to Glance.
            return host.role == objects.REPOSITORY
        maintaining = self._conf.versions.maintenance_hosts
        return kind not in versions.MAINTENANCE or not maintaining \
            or host.name in maintaining
