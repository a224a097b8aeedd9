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
"""Client side of the conductor RPC API for the REST API.

What agents call is in :mod:`.conductor_api`. The two change at different
times, so each has its own version.
"""

import typing

from oslo_config import cfg
import oslo_messaging

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import messaging
from diffcache_openstack.common import rpc_history
from diffcache_openstack import objects
from diffcache_openstack.rpc import conductor_api

NAMESPACE = 'control'
HISTORY = rpc_history.History({
    '1.0': ('propose_plan', 'apply_plan', 'cancel_plan', 'explain_plan',
            'what_if', 'create_precache_job', 'update_precache_job',
            'cancel_precache_job', 'retry_precache_job'),
})
VERSION = HISTORY.latest


class ControlAPI:
    """Client side of the API for plans and precache jobs.

    All methods raise ServiceUnavailable if no conductor answers.
    """

    def __init__(self, bus: messaging.Bus, conf: cfg.ConfigOpts):
        target = oslo_messaging.Target(
            topic=conductor_api.TOPIC, namespace=NAMESPACE)
        self._conf = conf
        self._client = bus.client(target, conf.conductor.rpc_timeout,
                                  HISTORY)

    def propose_plan(self, ctxt: contexts.RequestContext, site: str,
                     solver: str | None, time_limit: float | None) -> str:
        """Start computing a proposal: a plan that hosts do not carry out.

        :param solver: None for the configuration's
        :param time_limit: seconds; None for the configuration's
        :returns: the plan's id; its state is computing
        :raises NotFound: no host of the site was ever registered
        :raises InvalidInput: there is no such solver
        """
        return self._client.call(ctxt, 'propose_plan', site=site,
                                 solver=solver, time_limit=time_limit)

    def apply_plan(self, ctxt: contexts.RequestContext, plan_id: str,
                   generation: int | None) -> None:
        """Make a proposed plan current and send it to its hosts.

        :param generation: of the current plan that the caller has seen
        :raises NotFound: there is no such plan
        :raises Conflict: it is not a proposal
        :raises Busy: another plan was applied since
        """
        self._client.call(ctxt, 'apply_plan', plan_id=plan_id,
                          generation=generation)

    def cancel_plan(self, ctxt: contexts.RequestContext, plan_id: str
                    ) -> None:
        """Drop a proposed plan, or stop computing it; idempotent.

        :raises NotFound: there is no such plan
        :raises Conflict: it is or was the current plan
        """
        self._client.call(ctxt, 'cancel_plan', plan_id=plan_id)

    def explain_plan(self, ctxt: contexts.RequestContext, plan_id: str
                     ) -> list[dict[str, typing.Any]]:
        """Explain why a plan places each object, by today's demand.

        :raises NotFound: there is no such plan, or nothing to plan for
        """
        return self._slow().call(ctxt, 'explain_plan', plan_id=plan_id)

    def what_if(self, ctxt: contexts.RequestContext, site: str,
                changes: dict[str, typing.Any],
                objective: str | None = None) -> dict[str, typing.Any]:
        """Estimate the cost change if a host or link were different.

        :param objective: what placements minimize; None for what the plans
            of the site do
        :raises NotFound: the site has no living host, or no image is known
        :raises InvalidInput: the change is contradictory
        """
        return self._slow(2).call(ctxt, 'what_if', site=site,
                                  changes=changes, objective=objective)

    def create_precache_job(self, ctxt: contexts.RequestContext,
                            job: objects.PrecacheJob,
                            boot_set: bool = False) -> None:
        """Store a job, and start working on it.

        A job whose id is known is left alone.

        :param boot_set: whether it wants the boot sets of its images
        :raises InvalidInput: its time window cannot be read
        """
        self._client.call(ctxt, 'create_precache_job', job=job,
                          boot_set=boot_set)

    def update_precache_job(self, ctxt: contexts.RequestContext, job_id: str,
                            generation: int,
                            values: dict[str, typing.Any]) -> None:
        """Change some of a job's fields.

        :param generation: the one that the caller has seen
        :raises NotFound: there is no such job
        :raises Busy: it was changed since
        :raises Conflict: it has ended
        """
        self._client.call(ctxt, 'update_precache_job', job_id=job_id,
                          generation=generation, values=values)

    def cancel_precache_job(self, ctxt: contexts.RequestContext, job_id: str,
                            generation: int | None) -> None:
        """Cancel a job; idempotent.

        :raises NotFound: there is no such job
        :raises Busy: it was changed since the generation given
        """
        self._client.call(ctxt, 'cancel_precache_job', job_id=job_id,
                          generation=generation)

    def retry_precache_job(self, ctxt: contexts.RequestContext, job_id: str
                           ) -> None:
        """Make hosts retry missing objects at once.

        :raises NotFound: there is no such job
        :raises Conflict: it has ended
        """
        self._client.call(ctxt, 'retry_precache_job', job_id=job_id)

    def _slow(self, rounds: int = 1) -> messaging.Client:
        """Return a client that waits for a number of solver runs."""
        timeout = (rounds * self._conf.planner.time_limit
                   + conductor_api.PLANNING_SLACK_SECONDS)
        return self._client.prepared(timeout=timeout)
