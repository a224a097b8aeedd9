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
"""Plans on request: proposed, explained, compared, then applied."""

import collections.abc
import concurrent.futures
import datetime
import typing
import uuid

from oslo_config import cfg
from oslo_context import context as oslo_context
from oslo_log import log
import oslo_messaging

from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import units
from diffcache_openstack.conductor import agent_notifier
from diffcache_openstack.db import engine
from diffcache_openstack.db.planning import proposals
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.placement import explain
from diffcache_openstack.placement import objectives
from diffcache_openstack.placement import solving
from diffcache_openstack.placement import whatif
from diffcache_openstack.planning import model
from diffcache_openstack.planning import planners
from diffcache_openstack.planning import site_state
from diffcache_openstack.rpc import conductor_control_api

LOG = log.getLogger(__name__)

# How long a proposal that was not applied is kept.
KEPT = datetime.timedelta(days=7)
# After this without a sign of its conductor, a computation is abandoned.
_LEASE_TIME = datetime.timedelta(minutes=15)


class Proposals:
    """Computes proposals one at a time, in a thread of its own.

    It is an RPC endpoint of the REST API, as is :class:`.precache.Precacher`:
    :class:`.conductor_control_api.ControlAPI` is the contract.
    """

    target = conductor_control_api.ControlAPI.target()

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database,
                 planner: planners.Planner, notifier: agent_notifier.Notifier,
                 owner: str):
        """:param owner: this conductor, under a name no other has"""
        self._conf = conf
        self._database = database
        self._planner = planner
        self._notifier = notifier
        self._owner = owner
        # IDs of plans that are queued or computed.
        self._pending: set[str] = set()
        self._pool = concurrent.futures.ThreadPoolExecutor(
            1, thread_name_prefix='propose')

    def stop(self) -> None:
        """Drop computations that have not started; finish the others."""
        self._pool.shutdown(cancel_futures=True)

    @oslo_messaging.expose
    def propose_plan(self, ctxt: contexts.RequestContext, site: str,
                     solver: str | None, time_limit: float | None) -> str:
        """Start to compute a plan; return its ID."""
        name = solver or self._conf.planner.solver
        options = solving.load(name), name, min(
            time_limit or self._conf.planner.time_limit,
            self._conf.planner.time_limit)
        plan_id = str(uuid.uuid4())
        self._database.write(proposals.begin, site, plan_id, name,
                             versioned.now())
        self._pending.add(plan_id)
        self._pool.submit(
            self._compute, plan_id, site, *options,
            oslo_context.get_current()).add_done_callback(
                lambda _future: self._pending.discard(plan_id))
        return plan_id

    @oslo_messaging.expose
    def apply_plan(self, ctxt: contexts.RequestContext, plan_id: str,
                   generation: int | None) -> None:
        """Make a proposed plan current and send it to its hosts."""
        plan = self._database.write(proposals.apply, plan_id, generation,
                                    versioned.now())
        LOG.info('Plan %s is the current plan of site %s, generation %s',
                 plan_id, plan.site, plan.generation)
        try:
            self._planner.place_boot_sets(plan.site)
        except exceptions.NotFound as error:
            LOG.warning('Boot sets of site %s stay as they were: %s',
                        plan.site, error)
        self._notifier.send_plan(plan)

    @oslo_messaging.expose
    def cancel_plan(self, ctxt: contexts.RequestContext, plan_id: str
                    ) -> None:
        """Drop a proposed plan, or stop computing it."""
        self._database.write(proposals.cancel, plan_id)

    @oslo_messaging.expose
    def explain_plan(self, ctxt: contexts.RequestContext, plan_id: str
                     ) -> list[dict[str, typing.Any]]:
        """Explain why a plan places each object on its host."""
        plan = self._database.read(proposals.get_plan, plan_id)
        site_model = self._model(plan.site)
        reasons = explain.explain(
            site_model.instance, site_model.placement(plan.items),
            self._conf.planner.hops)
        return [self._reason(site_model, reason) for reason in reasons]

    @oslo_messaging.expose
    def what_if(self, ctxt: contexts.RequestContext, site: str,
                changes: dict[str, typing.Any], objective: str | None = None
                ) -> dict[str, typing.Any]:
        """Compare a site with what it might be.

        :param objective: its name; None for that of the site's plans
        """
        options = self._conf.planner
        solver = solving.load(options.solver)
        minimized = objectives.OBJECTIVES[objective] if objective \
            else model.objective_of(site, options)

        def find(instance, seconds):
            return solver.solve(
                instance, time_limit=seconds, hops=options.hops)

        compared = whatif.compare(
            self._model(site).instance, _change(changes),
            lambda instance: minimized.solve_afresh(
                instance, find, time_limit=options.time_limit,
                hops=options.hops), options.hops)
        return {
            'objective': minimized.name,
            'before': _outcome(compared.before),
            'after': _outcome(compared.after),
            'saving': float(compared.saving),
            'saving_wan': float(compared.saving_wan)}

    def renew(self) -> None:
        """Keep other conductors from giving up what this one computes."""
        now = versioned.now()
        if pending := list(self._pending):
            self._database.write(proposals.renew, pending, self._owner, now,
                                 now + _LEASE_TIME)

    def tidy(self) -> None:
        """Fail abandoned computations; remove old proposals."""
        now = versioned.now()
        count = self._database.write(proposals.give_up, now - _LEASE_TIME,
                                     now)
        if count:
            LOG.warning('Marked %d plans as failed: their conductor did not'
                        ' finish them', count)
        self._database.write(proposals.prune, now - KEPT)

    def _compute(self, plan_id, site, solver, name, time_limit, ctxt):
        if ctxt is not None:
            # So that log lines have the ID of the request.
            ctxt.update_store()
        try:
            plan = self._solve(site, solver, name, time_limit)
            kept = self._database.write(proposals.finish, plan_id, plan)
        except exceptions.DiffCacheError as error:
            self._database.write(proposals.fail, plan_id, str(error))
        except Exception:
            LOG.exception('Could not compute plan %s', plan_id)
            self._database.write(
                proposals.fail, plan_id,
                'The solver failed; the log of the conductor has the'
                ' details.')
        else:
            LOG.info('Computed plan %s of site %s, which %s', plan_id, site,
                     'is proposed' if kept else 'was discarded meanwhile')

    def _solve(self, site, solver, name, time_limit):
        options = self._conf.planner
        generation, current, state = self._database.read(
            site_state.read, site, self._conf)
        site_model = model.build(state, options)
        if current is not None:
            site_model = site_model.placed_too(current.items)
        objective = model.objective_of(site, options)
        solution = self._planner.solve(
            site_model, solver, objective, time_limit)
        plan = self._planner.make_plan(site_model, solution, objective)
        plan.generation, plan.solver = generation, name
        return plan

    def _model(self, site):
        _generation, _plan, state = self._database.read(
            site_state.read, site, self._conf)
        return model.build(state, self._conf.planner)

    def _reason(self, site_model, reason):
        kind, object_id, size = _object(site_model, reason.key)
        return {
            'host': site_model.hosts[reason.host - 1], 'kind': kind,
            'id': object_id, 'bytes': size,
            'saves_s': float(reason.saves_s),
            'requests': float(reason.requests),
            'eviction': int(reason.eviction), 'pinned': bool(reason.pinned),
            'why': _in_words(site_model, reason)}


def _in_words(site_model, reason):
    """Explain a reason with names in place of the model's numbers."""
    if len(reason.key) == 1 or not reason.requests or reason.pinned:
        return reason.why
    base_id, target = (site_model.contents[n][:12] for n in reason.key)
    return (f'builds {target} from {base_id} for {reason.requests:.3g}'
            ' expected requests')


def _object(site_model, key):
    if len(key) == 1:
        number = key[0]
        return (objects.IMAGES, site_model.contents[number],
                site_model.sizes[number])
    patch = site_model.patches[tuple(key)]
    return objects.PATCHES, patch.id, patch.size


def _change(changes: collections.abc.Mapping) -> whatif.Change:
    return whatif.Change(
        hosts=changes.get('add_hosts', 0),
        capacity_mb=changes.get('capacity_bytes', 0) / units.MB,
        repo_mbps=changes.get('repository_mbps'),
        peer_mbps=changes.get('peer_mbps'),
        demand=changes.get('demand_factor', 1.0))


def _outcome(found: whatif.Outcome) -> dict[str, float | int]:
    return {'cost_s': float(found.solution.cost_s),
            'lower_bound_s': float(found.solution.lower_bound_s),
            'mean_s': float(found.mean_s),
            'cost_wan_bytes': round(found.wan_mb * units.MB),
            'mean_wan_bytes': round(found.mean_wan_mb * units.MB)}
