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
"""What a placement minimizes: seconds of waiting, or bytes over the WAN.

The paper names both (section III-B). Hosts always take the way of the fewest
seconds, so the bytes of a placement are those of these ways.
"""

import abc
import collections.abc
import dataclasses
import math

from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import replan
from diffcache_openstack.placement import solving
from diffcache_openstack.placement import ways

# MB over the WAN that a second of waiting counts as, to choose among
# placements of equal bytes.
_MB_PER_SECOND = 1e-3

# Share of the time limit that each of two solves gets.
_HALF = 0.5

Find = collections.abc.Callable[
    [instances.Instance, replan.Terms, float | None], solving.Solution]


class Objective(abc.ABC):
    """A measure of placements, and how to find one that is good by it."""

    name: str

    @abc.abstractmethod
    def measure(self, instance: instances.Instance,
                placement: placements.Placement, hops: int = 1) -> float:
        """Return what the placement costs, per period of the rates."""

    @abc.abstractmethod
    def priced(self, instance: instances.Instance) -> instances.Instance:
        """Return the instance with what counts in place of its seconds."""

    @abc.abstractmethod
    def terms(self, terms: replan.Terms) -> replan.Terms:
        """Return the terms on which a priced instance may change."""

    @abc.abstractmethod
    def solve(self, instance: instances.Instance, terms: replan.Terms,
              find: Find, *, time_limit: float | None = None,
              hops: int = 1) -> solving.Solution:
        """Find a placement that is good by this measure.

        :param find: solves an instance on some terms, in some seconds
        :returns: its cost and its bound are seconds; it is proved optimal if
            no placement is better by the measure, as :meth:`priced` counts it
        """

    def solve_afresh(
        self,
        instance: instances.Instance,
        find: collections.abc.Callable[
            [instances.Instance, float | None], solving.Solution],
        *,
        time_limit: float | None = None,
        hops: int = 1,
    ) -> solving.Solution:
        """Find a placement that is good by this measure, whatever it moves.

        :param find: solves an instance, in some seconds
        """
        lasting = replan.Terms(horizon_s=math.inf)
        return self.solve(
            instance, lasting,
            lambda priced, _terms, seconds: find(priced, seconds),
            time_limit=time_limit, hops=hops)

    def worth(self, instance: instances.Instance,
              present: placements.Placement, solution: solving.Solution,
              terms: replan.Terms, hops: int = 1) -> bool:
        """Return whether a solution saves enough to replace a plan.

        :param instance: its ``placed`` says what needs no transfer
        :param present: a feasible placement, the current plan
        """
        before = self.measure(instance, present, hops)
        after = self._with_moves(instance, solution.placement, terms, hops)
        return replan.pays(before, after, terms)

    def _with_moves(self, instance, placement, terms, hops) -> float:
        """Measure a placement and what is moved to reach it."""
        moved = sum(
            move.seconds
            for move in replan.moves(self.priced(instance), placement)
        )
        weight = self.terms(terms).weight
        return self.measure(instance, placement, hops) + weight * moved


class Seconds(Objective):
    """Seconds that requests wait for their images (equation 5)."""

    name = 'seconds'

    def measure(self, instance, placement, hops=1) -> float:
        return cost.total_cost(instance, placement, hops)

    def priced(self, instance) -> instances.Instance:
        return instance

    def terms(self, terms) -> replan.Terms:
        return terms

    def solve(self, instance, terms, find, *, time_limit=None,
              hops=1) -> solving.Solution:
        return find(instance, terms, time_limit)


class WanBytes(Objective):
    """MB that requests fetch over the link to the repository."""

    name = 'wan_bytes'

    def measure(self, instance, placement, hops=1) -> float:
        return cost.wan_megabytes(instance, placement, hops)

    def priced(self, instance) -> instances.Instance:
        """Return an instance whose seconds are MB over the WAN.

        The seconds of the original count as a few bytes.
        """
        links = instance.bandwidths
        per_mb = ways.fetch_seconds(1.0, links.repo)
        bandwidths = instances.Bandwidths(
            local=links.local / _MB_PER_SECOND,
            peer=links.peer / _MB_PER_SECOND,
            repo=8.0 / (1.0 + _MB_PER_SECOND * per_mb),
        )
        return dataclasses.replace(
            instance,
            bandwidths=bandwidths,
            patch_seconds=instance.patch_seconds * _MB_PER_SECOND,
        )

    def terms(self, terms) -> replan.Terms:
        """Count a byte that is moved as one that is fetched."""
        return dataclasses.replace(terms, move_weight=1.0)

    def solve(self, instance, terms, find, *, time_limit=None,
              hops=1) -> solving.Solution:
        """Choose between the best by bytes and the best by seconds.

        The fastest ways may take more bytes than a solver of bytes assumes.
        The solution by seconds also bounds the seconds. A second counts as
        :data:`_MB_PER_SECOND` here: a placement that takes fewer bytes by
        less than that for each second by which it is slower may exist, even
        if this one is proved optimal.
        """
        limit = None if time_limit is None else _HALF * time_limit
        priced = self.priced(instance)
        lean = find(priced, self.terms(terms), limit)
        fast = find(instance, terms, limit)
        best = min(
            (lean, fast),
            key=lambda found: self._with_moves(
                instance, found.placement, terms, hops),
        )
        taken = self.measure(instance, best.placement, hops)
        return solving.Solution(
            placement=best.placement,
            cost_s=cost.total_cost(instance, best.placement, hops),
            lower_bound_s=fast.lower_bound_s,
            proved_optimal=lean.proved_optimal and taken <= lean.cost_s,
            seconds=lean.seconds + fast.seconds,
        )


OBJECTIVES: dict[str, Objective] = {
    objective.name: objective for objective in (Seconds(), WanBytes())}
