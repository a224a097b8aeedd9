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
"""Applying version policies: schedules, retention; the upkeep of stores."""

import datetime
import types
import typing
import uuid

from oslo_config import cfg
from oslo_log import log

from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor.versions import keeping
from diffcache_openstack.conductor.versions import policy_servers
from diffcache_openstack.conductor.versions import service
from diffcache_openstack.conductor.versions import transactions
from diffcache_openstack.db import engine
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.versions import policies as db_policies
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack.db.versions import stores as db_stores
from diffcache_openstack.db.versions import tasks as db_tasks
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.objects import versions
from diffcache_openstack.versions.store.upkeep import retention

LOG = log.getLogger(__name__)

LEASE = 'version-upkeep'
_LEASE_TIME = datetime.timedelta(seconds=120)
# Checks whether servers are due, in the time between two saves.
_LOOKS = 10
_LONGEST_LOOK_SECONDS = 300.0
# Between two attempts at what failed.
_RETRY = datetime.timedelta(hours=1)
# Servers in these states have disks that can be saved.
_SAVEABLE = ('ACTIVE', 'PAUSED', 'SHUTOFF', 'SUSPENDED')


class Upkeep:
    """Applies policies; prunes, verifies and copies stores, in rounds.

    :param owner: the unique name of this conductor
    """

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database,
                 worker: service.VersionService,
                 servers: policy_servers.PolicyServers, owner: str):
        self._conf = conf
        self._database = database
        self._versions = worker
        self._context = contexts.RequestContext.for_service('upkeep')
        self._servers = servers
        self._owner = owner
        self._keeping = keeping.Keeping(database)
        self._looked: dict[str, datetime.datetime] = {}

    def round(self) -> None:
        """Run a round, unless another conductor does."""
        now = versioned.now()
        if self._database.write(plans.take_lease, LEASE, self._owner, now,
                                now + _LEASE_TIME) is not None:
            return
        policies = self._database.read(db_policies.all_policies)
        own = {policy.server_id for policy in policies if policy.server_id}
        self._keeping.begin(policies)
        self._looked = {policy.id: self._looked[policy.id]
                        for policy in policies if policy.id in self._looked}
        for policy in policies:
            try:
                self._save_due(policy, own, now)
            except exceptions.DiffCacheError as error:
                LOG.warning('Version policy %s: %s', policy.id, error)
            self._drop(policy, now)
        self._keeping.end(now)
        for version_id in self._database.read(db.undeleted, now - _RETRY):
            self._forget(version_id, now)
        self._queue_due(now)

    def tidy(self) -> None:
        """End tasks that wait for too long; delete what ended long ago."""
        now = versioned.now()
        before = now - datetime.timedelta(
            seconds=self._conf.versions.task_lifetime)
        for task_id in self._database.write(db_tasks.expire, before, now):
            LOG.warning('Task %s failed: no host could perform it for %d s'
                        ' ([versions] task_lifetime)', task_id,
                        self._conf.versions.task_lifetime)
        self._database.write(db_tasks.prune, before)
        self._database.write(db.forget_failed, before)
        self._database.write(plans.drop_expired, now)

    def _save_due(self, policy, own, now):
        if not policy.every or not self._is_time_to_look(policy, now):
            return
        servers = self._servers.of(policy, own)
        last = self._database.read(db.last_saves,
                                   [server.id for server in servers])
        saving = self._database.read(db_tasks.servers_saving)
        for server in servers:
            if server.id in saving:
                continue  # Its host may be away for long.
            when = last.get(server.id)
            if when and (now - when).total_seconds() < policy.every:
                continue
            if server.status in _SAVEABLE and server.host:
                self._save(policy, server)

    def _is_time_to_look(self, policy, now):
        """Return whether to list servers; not in each round."""
        interval = min(policy.every / _LOOKS, _LONGEST_LOOK_SECONDS)
        last = self._looked.get(policy.id)
        if last and (now - last).total_seconds() < interval:
            return False
        self._looked[policy.id] = now
        return True

    def _save(self, policy, server):
        try:
            volumes = self._servers.volumes(server) if policy.volumes else []
            self._versions.create_version(self._context, objects.NewVersion(
                id=str(uuid.uuid4()), server_id=server.id,
                project_id=server.project_id, trigger=versions.SCHEDULE,
                alpha=policy.alpha, base_image=server.image_id,
                volumes=volumes))
        except (exceptions.Conflict,
                exceptions.ServiceUnavailable) as error:
            LOG.info('Postponing the save of server %s: %s', server.id, error)
        except exceptions.QuotaExceeded as error:
            LOG.warning('Postponing the save of server %s: %s', server.id,
                        error)

    def _drop(self, policy, now):
        """Delete the versions that a policy does not keep."""
        kept = retention.Policy(
            policy.keep_last, policy.keep_hourly, policy.keep_daily,
            policy.keep_weekly, policy.keep_monthly)
        if kept.keeps_all:
            return
        for server_id in self._keeping.servers(policy):
            found: typing.Any = [
                types.SimpleNamespace(**version._asdict()) for version
                in self._database.read(db.prunable, server_id)]
            for version in retention.dropped(found, kept):
                LOG.info('Deleting version %s of server %s by policy %s',
                         version.id, server_id, policy.id)
                if not self._forget(version.id, now):
                    self._keeping.postpone(policy, server_id)
        self._keeping.done(policy)

    def _forget(self, version_id, now):
        """Delete a version; return whether that is possible now."""
        try:
            self._database.write(transactions.forget, version_id, now)
        except exceptions.DiffCacheError as error:
            # A server boots from it; a later round deletes it.
            LOG.info('Version %s is not deleted now: %s', version_id, error)
            return False
        return True

    def _queue_due(self, now):
        """Queue what stores are due for."""
        found = [(versions.REKEY, project_id) for project_id
                 in self._database.read(db_stores.to_rekey)]
        for kind, seconds, due in (
                (versions.PRUNE, self._conf.versions.prune_interval,
                 db_stores.to_prune),
                (versions.VERIFY, self._conf.versions.verify_interval,
                 db_stores.to_verify),
                (versions.REPLICATE, self._conf.versions.copy_interval,
                 db_stores.to_replicate)):
            if seconds:
                interval = datetime.timedelta(seconds=seconds)
                found += [(kind, project_id) for project_id
                          in self._database.read(
                              due, interval, min(interval, _RETRY), now)]
        for kind, project_id in found:
            self._database.write(_queue, kind, project_id, now)


def _queue(session, kind, project_id, now):
    """Queue a task of the upkeep, unless one is open."""
    if db_tasks.open_of_kind(session, kind, project_id):
        return
    db_stores.note_attempt(session, kind, project_id, now)
    db_tasks.create(session, objects.VersionTask(
        id=str(uuid.uuid4()), kind=kind, project_id=project_id), now)
