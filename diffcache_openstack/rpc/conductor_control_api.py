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

from diffcache_openstack.common import contexts
from diffcache_openstack import objects
from diffcache_openstack.objects import fields
from diffcache_openstack.objects import plan
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.remote_calls import wire

_MOST_SECONDS = 600.0


class ControlAPI(remote.API):
    """Client side of the API for plans and precache jobs."""

    NAMESPACE = 'control'

    @remote.call(remote.CONTROLLER, {
        'site': wire.SITE,
        'solver': fields.StringField('[a-z0-9_-]{1,64}', nullable=True),
        'time_limit': wire.within(0, _MOST_SECONDS, nullable=True)})
    def propose_plan(self, ctxt: contexts.RequestContext, site: str,
                     solver: str | None, time_limit: float | None) -> str:
        """Start computing a proposal: a plan that hosts do not carry out.

        :param solver: None for the configuration's
        :param time_limit: seconds; None for the configuration's
        :returns: the plan's id; its state is computing
        :raises NotFound: no host of the site was ever registered
        :raises InvalidInput: there is no such solver
        """

    @remote.call(remote.CONTROLLER, {
        'plan_id': wire.UUID, 'generation': wire.GENERATION})
    def apply_plan(self, ctxt: contexts.RequestContext, plan_id: str,
                   generation: int | None) -> None:
        """Make a proposed plan current and send it to its hosts.

        :param generation: of the current plan that the caller has seen
        :raises NotFound: there is no such plan
        :raises Conflict: it is not a proposal
        :raises Busy: another plan was applied since
        """

    @remote.call(remote.CONTROLLER, {'plan_id': wire.UUID})
    def cancel_plan(self, ctxt: contexts.RequestContext, plan_id: str
                    ) -> None:
        """Drop a proposed plan, or stop computing it; idempotent.

        :raises NotFound: there is no such plan
        :raises Conflict: it is or was the current plan
        """

    @remote.call(remote.CONTROLLER, {'plan_id': wire.UUID},
                 prepare=remote.solver_runs(1), changes=False)
    def explain_plan(self, ctxt: contexts.RequestContext, plan_id: str
                     ) -> list[dict[str, typing.Any]]:
        """Explain why a plan places each object, by today's demand.

        :raises NotFound: there is no such plan, or nothing to plan for
        """

    @remote.call(remote.CONTROLLER, {
        'site': wire.SITE,
        'changes': wire.record(
            add_hosts=wire.within(0, 1000),
            capacity_bytes=wire.within(-2 ** 60, 2 ** 60),
            repository_mbps=wire.within(0, 10 ** 9),
            peer_mbps=wire.within(0, 10 ** 9),
            demand_factor=wire.within(0, 10 ** 6)),
        'objective': fields.EnumField(plan.PLAN_OBJECTIVES, nullable=True)},
        prepare=remote.solver_runs(2), changes=False)
    def what_if(self, ctxt: contexts.RequestContext, site: str,
                changes: dict[str, typing.Any],
                objective: str | None = None) -> dict[str, typing.Any]:
        """Estimate the cost change if a host or link were different.

        :param objective: what placements minimize; None for what the plans
            of the site do
        :raises NotFound: the site has no living host, or no image is known
        :raises InvalidInput: the change is contradictory
        """

    @remote.call(remote.CONTROLLER, {
        'job': fields.ObjectField('PrecacheJob'),
        'boot_set': fields.BooleanField(nullable=True)})
    def create_precache_job(self, ctxt: contexts.RequestContext,
                            job: objects.PrecacheJob,
                            boot_set: bool = False) -> None:
        """Store a job, and start working on it.

        A job whose id is known is left alone.

        :param boot_set: whether it wants the boot sets of its images
        :raises InvalidInput: its time window cannot be read
        """

    @remote.call(remote.CONTROLLER, {
        'job_id': wire.UUID, 'generation': wire.COUNT,
        'values': wire.record(
            name=wire.LABEL, priority=wire.COUNT, rate=wire.RATE,
            window=fields.StringField(nullable=True), pinned=wire.BOOLEAN,
            expires_at=fields.StringField(nullable=True))})
    def update_precache_job(self, ctxt: contexts.RequestContext, job_id: str,
                            generation: int,
                            values: dict[str, typing.Any]) -> None:
        """Change some of a job's fields.

        :param generation: the one that the caller has seen
        :raises NotFound: there is no such job
        :raises Busy: it was changed since
        :raises Conflict: it has ended
        """

    @remote.call(remote.CONTROLLER, {
        'job_id': wire.UUID, 'generation': wire.GENERATION})
    def cancel_precache_job(self, ctxt: contexts.RequestContext, job_id: str,
                            generation: int | None) -> None:
        """Cancel a job; idempotent.

        :raises NotFound: there is no such job
        :raises Busy: it was changed since the generation given
        """

    @remote.call(remote.CONTROLLER, {'job_id': wire.UUID})
    def retry_precache_job(self, ctxt: contexts.RequestContext, job_id: str
                           ) -> None:
        """Make hosts retry missing objects at once.

        :raises NotFound: there is no such job
        :raises Conflict: it has ended
        """
