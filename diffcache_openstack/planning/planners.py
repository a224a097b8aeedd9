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
"""Rounds of planning: the objects that each host of a site should hold."""

import dataclasses
import datetime
import itertools
import time
import typing

from oslo_config import cfg
from oslo_log import log

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import units
from diffcache_openstack.db import engine
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.planning import plans
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.placement import cost
from diffcache_openstack.placement import objectives
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import replan
from diffcache_openstack.placement.solvers import auto
from diffcache_openstack.placement import solving
from diffcache_openstack.planning import boot_set_plans
from diffcache_openstack.planning import figures
from diffcache_openstack.planning import model
from diffcache_openstack.planning import site_state

LOG = log.getLogger(__name__)

# Plans that stay in the database for reference, per site.
KEPT_PLANS = 20
# Time a round may take beside the solver before others take it for dead.
_LEASE_SLACK = datetime.timedelta(seconds=60)
_POLL_SECONDS = 0.25
TERMS = replan.Terms(period_s=model.SECONDS_PER_DAY)


class Planner:
    """Plans sites, one conductor at a time for each.

    A lease keeps conductors from computing the same plan twice. What makes
    the result safe is the generation: a plan is stored only if no other one
    was since planning began.
    """

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database,
                 owner: str):
        """:param owner: this conductor, under a name no other has"""
        self._conf = conf
        self._database = database
        self._owner = owner
        self._rounds = itertools.count(1)
        # By site, of what its last round began with.
        self._digests: dict[str, str] = {}

    def plan_if_changed(self, site: str) -> objects.Plan | None:
        """Plan a site, unless all is as when this conductor last did.

        :returns: the plan that holds afterwards; None if nothing changed
        :raises NotFound: as :meth:`plan` does, as for Busy
        """
        digest = self._database.read(site_state.digest, site, self._conf)
        if self._digests.get(site) == digest:
            LOG.debug('Not planning site %s: nothing that its plan depends on'
                      ' changed', site)
            self._database.write(plans.set_planned, site, versioned.now())
            return None
        plan = self.plan(site)
        self._digests[site] = digest
        return plan

    def plan(self, site: str, wait_seconds: float = 0.0) -> objects.Plan:
        """Plan a site; returns the plan that holds afterwards.

        That is the current one if a new one would not lower its cost enough,
        what its transfers cost taken off.

        :param wait_seconds: how long to wait for another conductor's round
        :raises NotFound: no living compute host, or nothing in the catalogue
        :raises Busy: another conductor is planning the site
        """
        lease = f'plan:{site}'
        # Rounds of one conductor exclude each other like those of several.
        owner = f'{self._owner}/{next(self._rounds)}'
        self._take(lease, owner, site, wait_seconds)
        try:
            return self._plan(site)
        finally:
            self._database.write(plans.drop_lease, lease, owner)

    def _take(self, lease, owner, site, wait_seconds):
        deadline = time.monotonic() + wait_seconds
        while True:
            now = versioned.now()
            until = now + _LEASE_SLACK + datetime.timedelta(
                seconds=self._conf.planner.time_limit)
            holder = self._database.write(plans.take_lease, lease, owner,
                                          now, until)
            if holder is None:
                return
            if time.monotonic() >= deadline:
                raise exceptions.Busy(
                    f'Conductor {holder} is planning site {site}; try again'
                    f' in a few seconds.')
            time.sleep(_POLL_SECONDS)

    def _plan(self, site):
        options = self._conf.planner
        generation, current, state = self._database.read(
            site_state.read, site, self._conf)
        site_model = model.build(state, options)
        if current is not None:
            site_model = site_model.placed_too(current.items)
        objective = model.objective_of(site, options)
        solution = self.solve(
            site_model, solving.load(self._conf.planner.solver),
            objective, self._conf.planner.time_limit)
        if current is not None and not self._is_worth_it(
                site_model, current, solution, objective):
            LOG.info('Site %s keeps plan %s: a new one would cost %.1f s/day',
                     site, current.generation, solution.cost_s)
            self._database.write(plans.set_planned, site, versioned.now())
            plan = current
        else:
            plan = self._store(
                self.make_plan(site_model, solution, objective), generation)
        self._place_boot_sets(state, site_model, plan)
        return plan

    def place_boot_sets(self, site: str) -> None:
        """Choose anew which boot sets hosts have beside the current plan.

        :raises NotFound: no living compute host, or nothing in the catalogue
        """
        _generation, plan, state = self._database.read(
            site_state.read, site, self._conf)
        if plan is not None:
            self._place_boot_sets(
                state, model.build(state, self._conf.planner), plan)

    def _place_boot_sets(self, state, site_model, plan):
        """Choose what hosts have of images that they do not hold."""
        wanted = boot_set_plans.choose(
            state.boot_sets, site_model, plan, state.hosts,
            self._terms(site_model), boot_set_plans.SetLimits(
                self._conf.planner.hops,
                self._conf.lazy.most_boot_sets))
        try:
            self._database.write(
                boot_sets.put_wanted, plans.Basis(plan.site, plan.generation),
                site_model.hosts, wanted, versioned.now())
        except exceptions.Busy as error:
            # The conductor that stored that plan chooses sets beside it.
            LOG.info('Boot sets of site %s, chosen beside plan %d, are'
                     ' dropped: %s', plan.site, plan.generation, error)
            return
        if wanted:
            LOG.info('The plan of site %s has %d boot sets with %.0f MB, which'
                     ' save %.0f s of waiting per day', state.site,
                     len(wanted),
                     sum(each.image.bytes for each in wanted) / units.MB,
                     sum(each.saved_seconds for each in wanted))

    def solve(self, site_model: model.Model, solver: solving.Solver,
              objective: objectives.Objective, time_limit: float
              ) -> solving.Solution:
        """Compute a placement of a site, including the cost of moves.

        :param time_limit: seconds
        """
        options = self._conf.planner
        limits: dict[str, typing.Any] = {'hops': options.hops}

        def find(priced, terms, seconds):
            if isinstance(solver, auto.AutoSolver):
                return replan.solve(
                    priced, terms, time_limit=seconds, **limits)
            return solver.solve(priced, time_limit=seconds, **limits)

        solution = objective.solve(
            site_model.instance, self._terms(site_model), find,
            time_limit=time_limit, hops=options.hops)
        return self._without_late(site_model, solution, objective)

    def _without_late(self, site_model, solution, objective):
        """Leave out of a solution what would arrive too late to pay."""
        instance = site_model.instance
        hops = self._conf.planner.hops
        worth = auto.losses(objective.priced(instance), solution.placement,
                            hops)
        kept = replan.leave_out_late(
            instance, solution.placement, worth, self._terms(site_model))
        late = len(worth) - len(kept.templates) - len(kept.patches)
        if not late:
            return solution
        LOG.warning(
            'The plan of site %s leaves out %d objects that hosts cannot'
            ' fetch within %d s; raise [fill] max_rate or widen [fill]'
            ' windows', instance.name, late, TERMS.horizon_s)
        return dataclasses.replace(
            solution, placement=kept, proved_optimal=False,
            cost_s=cost.total_cost(instance, kept, hops))

    def make_plan(self, site_model: model.Model, solution: solving.Solution,
                  objective: objectives.Objective) -> objects.Plan:
        """Return the plan of a solution, without a generation."""
        options = self._conf.planner
        hops = options.hops
        return objects.Plan(
            site=site_model.instance.name, generation=0,
            solver=options.solver, objective=objective.name,
            cost_s=solution.cost_s, lower_bound_s=solution.lower_bound_s,
            proved_optimal=solution.proved_optimal,
            solver_seconds=solution.seconds, created_at=versioned.now(),
            hosts=site_model.hosts,
            items=site_model.items(solution.placement, hops, objective),
            **figures.of_plan(site_model.instance, solution.placement,
                              self._terms(site_model), hops))

    def _terms(self, site_model):
        """Return the conditions of moves at a site.

        Hosts that did not report their limits of fills count with this
        conductor's.
        """
        fill = self._conf.fill
        return dataclasses.replace(
            TERMS, fill=model.fill_limits(fill.max_rate, tuple(fill.windows)),
            fills=site_model.fill_limits)

    def _is_worth_it(self, site_model, current, solution, objective):
        """Return whether a solution improves enough on the current plan."""
        if set(current.hosts) != set(site_model.hosts):
            return True
        placement = site_model.placement(current.items)
        known = len(placement.templates) + len(placement.patches)
        if known < len(current.items):
            # An image or patch was removed from the catalogue; hosts should
            # not continue to hold it.
            return True
        if placements.errors(site_model.instance, placement):
            return True
        return objective.worth(
            site_model.instance, placement, solution,
            self._terms(site_model),
            self._conf.planner.hops)

    def _store(self, plan, expected):
        site = plan.site
        plan = self._database.write(plans.put_plan, plan, expected)
        self._database.write(plans.prune, site, KEPT_PLANS)
        LOG.info(
            'Site %s has plan %s: %d objects on %d hosts, %.1f s/day'
            ' expected, at least %.1f; solved for %s by %s in %.2f s', site,
            plan.generation, len(plan.items), len(plan.hosts), plan.cost_s,
            plan.lower_bound_s, plan.objective, plan.solver,
            plan.solver_seconds)
        LOG.info(
            'Plan %s of site %s moves %.0f MB from the repository and %.0f MB'
            ' between hosts, %.0f s for the busiest host, to save %.0f s of'
            ' waiting and %.0f MB from the repository per day',
            plan.generation, site, plan.move_wan_bytes / units.MB,
            plan.move_lan_bytes / units.MB, plan.fill_seconds,
            plan.saved_seconds, plan.saved_wan_bytes / units.MB)
        interval = self._conf.planner.interval
        if 0 < interval < plan.fill_seconds:
            LOG.warning(
                'Plan %s of site %s takes %.0f s to fill, and the next one is'
                ' due in %d s ([planner] interval): hosts fetch first what'
                ' saves most', plan.generation, site, plan.fill_seconds,
                interval)
        return plan
