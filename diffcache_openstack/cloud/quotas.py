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
"""Quotas: what each project may use at most, and what it uses."""

import collections.abc
import contextlib
import typing

from oslo_concurrency import lockutils
from oslo_config import cfg

from diffcache_openstack.cloud import quota_errors
from diffcache_openstack.db import engine
from diffcache_openstack.db import quota_usage

VERSIONS = 'version_count_total'
VERSION_MIB = 'version_size_total'
POLICIES = 'version_policy_count_total'
TASKS = 'version_task_count_total'
JOBS = 'precache_job_count_total'
_USES = {VERSIONS: quota_usage.versions, VERSION_MIB: quota_usage.version_mib,
         POLICIES: quota_usage.policies, TASKS: quota_usage.open_tasks,
         JOBS: quota_usage.open_jobs}
NAMES = tuple(_USES)


class LimitSource(typing.Protocol):
    """Where the limits of projects come from."""

    def of_project(self, project_id: str,
                   names: collections.abc.Collection[str]) -> dict[str, int]:
        """Return the limits of a project by resource."""

    def enforce(self, project_id: str, deltas: dict[str, int]) -> None:
        """Refuse what exceeds a limit."""


class OptionLimits:
    """Limits of the group ``[quota]``, the same for each project."""

    def __init__(self, conf: cfg.ConfigOpts, usage: quota_errors.Usage
                 ) -> None:
        self._conf = conf
        self._usage = usage

    def of_project(self, project_id: str,
                   names: collections.abc.Collection[str]) -> dict[str, int]:
        """Return the limits of a project by resource."""
        return {name: self._conf.quota[name] for name in names}

    def enforce(self, project_id: str, deltas: dict[str, int]) -> None:
        """Refuse what exceeds a limit.

        :raises QuotaExceeded: it names the resource, its limit and its use
        """
        used = self._usage(project_id, deltas)
        for name, delta in deltas.items():
            most = self._conf.quota[name]
            if 0 <= most < used[name] + delta:
                raise quota_errors.exceeded(project_id, name, most,
                                            used[name])


class Quotas:
    """Enforces and shows the quotas of projects."""

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database
                 ) -> None:
        self._database = database
        self._limits = self._source(conf)

    def _source(self, conf: cfg.ConfigOpts) -> LimitSource:
        if not conf.quota.use_keystone_limits:
            return OptionLimits(conf, self._usage)
        # Not where it is not used: openstacksdk takes 15 MB.
        from diffcache_openstack.cloud import limits
        return limits.KeystoneLimits(conf, self._usage)

    @contextlib.contextmanager
    def admission(self, project_id: str | None, *names: str
                  ) -> collections.abc.Iterator[None]:
        """Hold the quotas while one more of each resource is created.

        Requests of a project to this conductor are admitted one after the
        other, so that none overtakes the count of another.

        :param project_id: None for the operator's own, which has no quota
        :raises QuotaExceeded: the project has as much as it may
        :raises ServiceUnavailable: the limits cannot be read
        """
        if project_id is None:
            yield
            return
        with lockutils.lock(f'diffcache-quota-{project_id}'):
            self._limits.enforce(project_id, dict.fromkeys(names, 1))
            yield

    def show(self, project_id: str) -> dict[str, dict[str, int]]:
        """Return limit and usage of each resource of a project.

        :raises ServiceUnavailable: the limits cannot be read
        """
        used = self._usage(project_id, NAMES)
        most = self._limits.of_project(project_id, NAMES)
        return {name: {'limit': most[name], 'usage': used[name]}
                for name in NAMES}

    def _usage(self, project_id: str | None,
               names: collections.abc.Collection[str]) -> dict[str, int]:
        return self._database.read(_use, project_id, tuple(names))


def _use(session, project_id, names):
    return {name: _USES[name](session, project_id) for name in names}
