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
"""The exact integer program of cache placement.

The paper's variable S_ijpqr says for each template j and asking host r which
base i from which host q and which patch from which host p: N^2 K^3 binaries.
Which host a peer is does not enter the cost, so here only what is held is
binary, x_ik and y_ek, (N + E) K of them. The rest is continuous and settles
at its best by itself, linked as in facility location:

* each request (j, r) sends one unit through at most ``hops`` patches
  backwards, from j to a base: equation 1, in layers by patches left;
* the unit may use an object from a peer only as far as X_o says the site
  holds it, from its own disk only as far as x_or says so: equations 2 and 3
  without their ceilings. What it does not have near comes from the
  repository;
* X_o <= sum over k of x_ok, and capacities: equation 4. The solver's
  tolerances let a host take some bytes too much. Objects that it puts on a
  host and that do not fit together, counted in whole bytes, are forbidden by
  a constraint of their own, and it solves again.

Ways that would be dearer than the repository even with every object on the
asking host's own disk are left out.
"""

import collections
import collections.abc
import dataclasses

import highspy
import numpy as np
import pulp

from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements
from diffcache_openstack.placement.solvers import auto
from diffcache_openstack.placement.solvers import sites
from diffcache_openstack.placement import solving
from diffcache_openstack.placement import ways

# Relative distance of cost and bound at which a solution counts as proved.
TOLERANCE = 1e-6

# Ways of all requests above which building the model takes longer than is
# sensible to wait; the answer is then that of the auto solver.
_LARGEST = 30_000

# The objective is scaled to about this, which suits HiGHS's tolerances.
_SCALE = 1e5


class IlpSolver(solving.Solver):
    """Proves optima; for small instances, or to see how far others are."""

    def solve(self, instance, **options) -> solving.Solution:
        return sites.solve_each(instance, solving.Options(**options),
                                self._solve_site)

    def _solve_site(self, instance, options) -> solving.Solution:
        clock = solving.Clock(options)
        if _size(instance, options.hops) > _LARGEST:
            return auto.solve_site(instance, options)
        quick = None if clock.left is None else clock.left / 4
        start = auto.solve_site(instance,
                                dataclasses.replace(options, time_limit=quick))
        if start.proved_optimal or clock.over:
            return start
        model = _Model(instance, options.hops, start)
        better = model.solve(options, clock)
        placement, bound = start.placement, start.lower_bound_s
        total = start.cost_s
        if better is not None:
            found = cost.total_cost(instance, better, options.hops)
            if found < total:
                placement, total = better, found
        bound = min(total, max(bound, model.bound))
        return solving.Solution(
            placement=placement, cost_s=total, lower_bound_s=bound,
            proved_optimal=total - bound <= TOLERANCE * total,
            seconds=clock.seconds)


def _size(instance, hops) -> int:
    """Estimate how many variables the requests take in the model."""
    patches = np.bincount(instance.patch_target,
                          minlength=instance.template_count)
    requested = (instance.rates > 0).sum(axis=1)
    rounds = min(hops, instance.template_count - 1)
    # In each further round, a request's chains branch or use every patch.
    further = np.minimum(patches * patches.max(initial=0),
                         instance.patch_count)
    ways = 1 + patches + max(0, rounds - 1) * further
    return int((requested * ways).sum())


@dataclasses.dataclass(frozen=True)
class _Request:
    """Requests for one template at one host.

    :param column: of the host
    :param weight: scaled cost of one second
    :param budget: seconds that the template takes from the repository
    :param users: by object the units that use it
    """

    column: int
    weight: float
    budget: float
    users: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _Object:
    """Seconds that an object takes to each place, by where it comes from."""

    size: float
    local: float
    peer: float
    repo: float


class _Highs(pulp.HiGHS):
    """PuLP's HiGHS that starts from a placement and can be stopped."""

    start: dict | None = None
    interrupt: collections.abc.Callable | None = None

    def callSolver(self, lp):  # noqa: N802 (PuLP's name)
        if self.start is not None:
            indexes = [variable.index for variable in self.start]
            lp.solverModel.setSolution(len(indexes), indexes,
                                       list(self.start.values()))
        lp.solverModel.HandleKeyboardInterrupt = False
        for event in (lp.solverModel.cbMipInterrupt,
                      lp.solverModel.cbSimplexInterrupt):
            event.subscribe(self.interrupt)
        lp.solverModel.run()


class _Model:
    """The model of one site, in PuLP's terms."""

    def __init__(self, instance, hops, start):
        self._instance = instance
        self._wire_sizes = instance.wire_sizes_priced()
        self._hops = min(hops, instance.template_count - 1)
        self._start = start
        self._hosts = range(instance.host_count)
        self._problem = pulp.LpProblem('placement', pulp.LpMinimize)
        self._cost = collections.Counter()
        self._scale = _SCALE / max(start.cost_s, 1e-9)
        self._count = 0
        self._into = [[] for _ in range(instance.template_count)]
        for e, j in enumerate(instance.patch_target.tolist()):
            self._into[j].append(e)
        self._held = {}
        self._near = {}
        self._declare_objects()
        for j, r in zip(*instance.rates.nonzero()):
            self._request(int(j), int(r))
        self._problem.setObjective(pulp.LpAffineExpression(self._cost))
        self.bound = 0.0

    def solve(self, options, clock) -> placements.Placement | None:
        """Solve until proved, out of time or stopped.

        :returns: a feasible placement, if one was found
        """
        while self._run(options, clock):
            covers = self._covers()
            if not covers:
                return self._placement()
            for cover in covers:
                self._require([(v, 1.0) for v in cover], len(cover) - 1.0)
        return None

    def _run(self, options, clock) -> bool:
        """Solve once; return whether there is a solution."""
        if clock.over:
            return False
        solver = _Highs(msg=False, gapRel=TOLERANCE / 2, gapAbs=0.0,
                        threads=options.threads, timeLimit=clock.left)
        held = self._start.placement
        solver.start = {
            variable: float(self._is_held(key, k, held))
            for (key, k), variable in self._held.items()
        }

        def watch(event):
            found = event.data_out.mip_primal_bound / self._scale
            bound = event.data_out.mip_dual_bound / self._scale
            if abs(found) < 1e30 and abs(bound) < 1e30:
                clock.report('branch and bound', found, bound)
            if clock.over:
                event.interrupt()

        solver.interrupt = watch
        self._problem.solve(solver)
        model = self._problem.solverModel
        info = model.getInfo()
        status = model.getModelStatus()
        if status in (
            highspy.HighsModelStatus.kOptimal,
            highspy.HighsModelStatus.kTimeLimit,
            highspy.HighsModelStatus.kInterrupt,
        ) and abs(info.mip_dual_bound) < 1e30:
            self.bound = max(self.bound, info.mip_dual_bound / self._scale)
        return info.primal_solution_status == 2

    def _covers(self) -> list[list[pulp.LpVariable]]:
        """Return objects of each overfull host that do not fit together."""
        found = []
        for limit, objects in zip(self._limits, self._taken):
            chosen = sorted(((size, variable) for variable, size in objects
                             if variable.value() > 0.5),
                            key=lambda each: -each[0])
            excess = sum(size for size, _ in chosen) - limit
            if excess <= 0:
                continue
            cover = []
            for size, variable in reversed(chosen):
                # The small ones go while the others still do not fit.
                if size < excess:
                    excess -= size
                else:
                    cover.append(variable)
            found.append(cover)
        return found

    def _placement(self) -> placements.Placement:
        """Return what the solution holds."""
        templates, patches = [], []
        for (key, k), variable in self._held.items():
            if variable.value() > 0.5:
                (templates if len(key) == 1 else patches).append((*key, k + 1))
        return placements.Placement.of(templates, patches)

    def _is_held(self, key, k, placement):
        kind = placement.templates if len(key) == 1 else placement.patches
        return (*key, k + 1) in kind

    def _variable(self, high=1.0, category=pulp.LpContinuous):
        self._count += 1
        return pulp.LpVariable(f'v{self._count}', 0, high, category)

    def _declare_objects(self):
        """Declare x, y and X of every object that some host has room for."""
        instance = self._instance
        self._limits = instance.usable_bytes().tolist()
        # Variables and bytes of objects, by host.
        self._taken = [[] for _ in self._hosts]
        pins = {*instance.pinned.templates, *instance.pinned.patches}
        for key, size in self._keys():
            homes = []
            for k in self._hosts:
                if size > self._limits[k]:
                    continue
                variable = self._variable(category=pulp.LpInteger)
                if (*key, k + 1) in pins:
                    variable.lowBound = 1
                self._held[key, k] = variable
                self._taken[k].append((variable, size))
                homes.append((variable, -1.0))
            if homes:
                near = self._variable()
                self._near[key] = near
                self._require([(near, 1.0), *homes], 0.0)
        for limit, objects in zip(self._limits, self._taken):
            self._require([(v, size / 1e6) for v, size in objects],
                          limit / 1e6)

    def _keys(self):
        """Yield each object with its bytes."""
        instance = self._instance
        for i, size in enumerate(instances.to_bytes(instance.sizes).tolist()):
            yield (i,), size
        for i, j, size in zip(
            instance.patch_base.tolist(),
            instance.patch_target.tolist(),
            instances.to_bytes(instance.patch_sizes).tolist(),
        ):
            yield (i, j), size

    def _require(self, terms, limit):
        """Sum of (variable, factor) at most ``limit``."""
        self._problem.addConstraint(
            pulp.LpConstraint(pulp.LpAffineExpression(terms),
                              pulp.LpConstraintLE, rhs=limit)
        )

    def _request(self, j, r):
        """Add one unit of flow for template j at host column r."""
        instance = self._instance
        request = _Request(r, float(instance.rates[j, r]) * self._scale,
                           self._template_seconds(j, r).repo)
        # By template: units that arrive, and the least seconds spent so far.
        level = {j: ([], 0.0)}
        for patches_left in range(self._hops, -1, -1):
            following: dict = {}
            for template, arrived in level.items():
                steps = self._leave(template, arrived, patches_left, request)
                for base_of, unit, spent in steps:
                    units, least = following.get(base_of, ([], spent))
                    units.append(unit)
                    following[base_of] = (units, min(least, spent))
            level = following
        for key, terms in request.users.items():
            self._use(key, terms, r, request.weight)

    def _leave(self, template, arrived, patches_left, request):
        """Let units fetch the template that they are at, or use a patch.

        :returns: (base, variable, seconds spent) for each patch
        """
        arriving, spent = arrived
        fetch = self._template_seconds(template, request.column).local
        out, steps = [], []
        if not arriving or spent + fetch < request.budget:
            fetched = self._variable(None)
            request.users.setdefault((template,), []).append(fetched)
            out.append(fetched)
        for e in self._into[template] if patches_left else ():
            step = self._step(e, spent, patches_left, request)
            if step is not None:
                steps.append(step)
                out.append(step[1])
        self._problem.addConstraint(
            pulp.LpConstraint(
                pulp.LpAffineExpression([*((unit, 1.0) for unit in arriving),
                                         *((unit, -1.0) for unit in out)]),
                pulp.LpConstraintEQ,
                rhs=0.0 if arriving else -1.0,
            )
        )
        return steps

    def _step(self, e, spent, patches_left, request):
        """Add a unit that uses patch e; None if it cannot pay off."""
        instance, r = self._instance, request.column
        base_of = int(instance.patch_base[e])
        apply_s = float(instance.patch_seconds[e])
        spent += apply_s
        spent += self._seconds(float(instance.patch_sizes[e]), r).local
        whole = self._template_seconds(base_of, r).local
        least = spent if patches_left > 1 else spent + whole
        if least >= request.budget:
            return None
        unit = self._variable(None)
        key = (base_of, int(instance.patch_target[e]))
        request.users.setdefault(key, []).append(unit)
        self._cost[unit] += request.weight * apply_s
        return base_of, unit, spent

    def _template_seconds(self, template, r) -> _Object:
        instance = self._instance
        return self._seconds(float(instance.sizes[template]), r,
                             float(self._wire_sizes[template]))

    def _seconds(self, size, r, wire_size=None) -> _Object:
        links = self._instance.bandwidths
        rates = [float(v[r]) for v in (links.local, links.peer, links.repo)]
        rates[1] = max(rates[1:])
        rates[0] = max(rates)
        far = size if wire_size is None else wire_size
        return _Object(size, *(ways.fetch_seconds(each, rate) for each,
                               rate in zip((size, size, far), rates)))

    def _use(self, key, units, r, weight):
        """Charge the units that use an object, by where it can come from."""
        instance = self._instance
        if len(key) == 1:
            seconds = self._template_seconds(key[0], r)
        else:
            seconds = self._seconds(
                float(instance.patch_sizes[self._edge(key)]), r
            )
        for unit in units:
            self._cost[unit] += weight * seconds.repo
        if key not in self._near:
            return
        near = self._saving(units, weight * (seconds.repo - seconds.peer))
        self._require([(near, 1.0), (self._near[key], -1.0)], 0.0)
        if (key, r) in self._held:
            local = self._saving([near],
                                 weight * (seconds.peer - seconds.local))
            self._require([(local, 1.0), (self._held[key, r], -1.0)], 0.0)

    def _saving(self, units, seconds):
        """Add a variable, at most the units, each of which saves this much."""
        saved = self._variable()
        self._cost[saved] -= seconds
        self._require([(saved, 1.0), *((u, -1.0) for u in units)], 0.0)
        return saved

    def _edge(self, key):
        if not hasattr(self, '_edges'):
            self._edges = self._instance.patch_index()
        return self._edges[key]
