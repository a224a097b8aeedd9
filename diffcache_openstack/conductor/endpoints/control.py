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
"""RPC endpoint for the REST API: plans and precache jobs."""

import typing

import oslo_messaging

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import messaging
from diffcache_openstack.conductor.planning import proposals
from diffcache_openstack.conductor import precache
from diffcache_openstack.db import engine
from diffcache_openstack.db import proposals as db_proposals
from diffcache_openstack import objects
from diffcache_openstack.rpc import conductor_control_api


class ControlManager:
    """The endpoint; :class:`.conductor_control_api.ControlAPI` calls it.

    :param database: the conductor's
    :param proposer: computes plans to be reviewed
    :param precacher: keeps precache jobs
    """

    target = oslo_messaging.Target(namespace=conductor_control_api.NAMESPACE,
                                   version=conductor_control_api.VERSION)

    def __init__(self, database: engine.Database,
                 proposer: proposals.Proposals,
                 precacher: precache.Precacher):
        self._database = database
        self._proposals = proposer
        self._precacher = precacher

    @messaging.exposed
    def propose_plan(self, ctxt: contexts.RequestContext, site: str,
                     solver: str | None, time_limit: float | None) -> str:
        """Start to compute a plan; return its ID."""
        return self._proposals.propose(site, solver, time_limit)

    @messaging.exposed
    def apply_plan(self, ctxt: contexts.RequestContext, plan_id: str,
                   generation: int | None) -> None:
        """Make a proposed plan the current one."""
        self._proposals.apply(plan_id, generation)

    @messaging.exposed
    def cancel_plan(self, ctxt: contexts.RequestContext, plan_id: str
                    ) -> None:
        """Drop a proposed plan."""
        self._database.write(db_proposals.cancel, plan_id)

    @messaging.exposed
    def explain_plan(self, ctxt: contexts.RequestContext, plan_id: str
                     ) -> list[dict[str, typing.Any]]:
        """Return the reasons for each object of a plan."""
        return self._proposals.explain(plan_id)

    @messaging.exposed
    def what_if(self, ctxt: contexts.RequestContext, site: str,
                changes: dict, objective: str | None = None
                ) -> dict[str, typing.Any]:
        """Estimate the cost change if a host or link were different."""
        return self._proposals.what_if(site, changes, objective)

    @messaging.exposed
    def create_precache_job(self, ctxt: contexts.RequestContext,
                            job: objects.PrecacheJob,
                            boot_set: bool | None = None) -> None:
        """Create a job."""
        self._precacher.create(job, bool(boot_set))

    @messaging.exposed
    def update_precache_job(self, ctxt: contexts.RequestContext, job_id: str,
                            generation: int, values: dict) -> None:
        """Change some of a job's fields."""
        self._precacher.update(job_id, generation, values)

    @messaging.exposed
    def cancel_precache_job(self, ctxt: contexts.RequestContext, job_id: str,
                            generation: int | None) -> None:
        """Cancel a job."""
        self._precacher.cancel(job_id, generation)

    @messaging.exposed
    def retry_precache_job(self, ctxt: contexts.RequestContext, job_id: str
                           ) -> None:
        """Make hosts retry a job's failed objects."""
        self._precacher.retry(job_id)
