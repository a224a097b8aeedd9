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
"""The default: dual bounds, lazy greedy, large-neighbourhood search.

The loops are native (``native/placement``); its modules say how they work.
"""

import dataclasses

import numpy as np

from diffcache_openstack import _native
from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import native_arrays
from diffcache_openstack.placement import placements
from diffcache_openstack.placement.solvers import sites
from diffcache_openstack.placement import solving

# The search ends when cost and bound are this close, as a share of the cost.
TARGET_GAP = 1e-4

# Share of the time limit that goes to the lower bound.
_BOUND_SHARE = 0.3

# Requested pairs of template and host up to which a proof of optimality takes
# seconds, and the patches in a row up to which it does.
_PROVABLE_CELLS = 40
_PROVABLE_HOPS = 2

# Seconds that a proof may take where no time limit is given.
_PROOF_SECONDS = 20.0


class AutoSolver(solving.Solver):
    """Scales to thousands of templates and bounds the gap to the optimum.

    Instances so small that the exact solver proves them in seconds go to it.
    """

    def solve(self, instance, **options) -> solving.Solution:
        return sites.solve_each(instance, solving.Options(**options),
                                self._solve_site)

    def _solve_site(self, instance, options) -> solving.Solution:
        if not _is_provable(instance, options.hops):
            return solve_site(instance, options)
        if options.time_limit is None:
            options = dataclasses.replace(options, time_limit=_PROOF_SECONDS)
        # By name, for it builds on this module.
        return solving.load('ilp').solve(
            instance,
            **{f.name: getattr(options, f.name)
               for f in dataclasses.fields(options)},
        )


def _is_provable(instance: instances.Instance, hops: int) -> bool:
    asked = int(np.count_nonzero(instance.rates))
    return asked <= _PROVABLE_CELLS and hops <= _PROVABLE_HOPS


@dataclasses.dataclass(frozen=True)
class Start:
    """The placement to start from, and the cost of leaving it.

    :param placement: objects to begin with
    :param move_weight: cost per second of transfer that a new object takes
        to its host; what ``instance.placed`` names needs none
    """

    placement: placements.Placement = placements.Placement()
    move_weight: float = 0.0


def patience(instance: instances.Instance) -> int:
    """Return the steps without improvement after which the search ends.

    Steps of small instances take microseconds, and their optima are the most
    isolated. Those of the smallest are the exact solver's to find.
    """
    cells = instance.host_count * instance.template_count
    wide = 20 * instance.host_count + instance.template_count
    if cells <= _PROVABLE_CELLS:
        return 3000 + wide + 20000 - 200 * cells
    return 3000 + wide + max(0, 60000 - 400 * cells)


def solve_site(instance: instances.Instance, options: solving.Options,
               start: Start = Start()) -> solving.Solution:
    """Solve an instance of one site.

    :raises InstanceError: pins alone exceed a capacity
    """
    clock = solving.Clock(options)
    solving.pinned_placement(instance)
    arrays = native_arrays.Arrays(instance, options.hops, start.placement,
                                  start.move_weight, options.threads)

    def watch(stage, cost_s, bound_s):
        clock.report(stage, cost_s, bound_s)
        return clock.over

    limit = 0.0 if clock.over else clock.left
    pairs, bound, _ = _native.placement_solve(
        arrays, limit, TARGET_GAP, patience(instance), _BOUND_SHARE, watch
    )
    placement = arrays.placement(pairs)
    total = cost.total_cost(instance, placement, options.hops)
    bound = min(bound, total)
    return solving.Solution(placement=placement, cost_s=total,
                            lower_bound_s=bound,
                            proved_optimal=total - bound <= 1e-6 * total,
                            seconds=clock.seconds)


def losses(instance: instances.Instance, placement: placements.Placement,
           hops: int = 1) -> dict[tuple[int, ...], float]:
    """Compute the seconds that requests would cost more without each object.

    Keys are (template, host) and (base, target, host). The instance is of
    one site.
    """
    arrays = native_arrays.Arrays(instance, hops, placement)
    lost = _native.placement_losses(arrays)
    return dict(zip((arrays.key(*pair) for pair in arrays.start), lost))
