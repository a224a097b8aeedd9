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
"""What a placement costs: equation 5 and the matrix it sums.

The cost of template j at host r is that of the cheapest way to get it: j
itself, or a base and a patch (with more hops, a base and a chain of
patches), each from the host's own disk, a peer of its site or the
repository, plus the time to apply the patches.

``hops`` counts the rounds in which that table is filled. The first round is
the paper's: a base that is fetched, one patch. Each further round goes
through the patches in the instance's order, once, and may build on what the
rounds before and the round itself have found so far: base -> j -> k. Two
patches in a row are always within reach of two rounds; where patches are
listed in the order they follow one another, so are more.
"""

import collections.abc
import dataclasses

import numpy as np

from diffcache_openstack.placement import instance as instances
from diffcache_openstack.placement import placement as placements


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What evaluating a placement tells.

    :param total_cost_s: sum of rates times seconds (equation 5)
    :param mean_service_s: the same per request
    :param errors: why the placement is not feasible, one line each
    """

    total_cost_s: float
    mean_service_s: float
    errors: tuple[str, ...]

    @property
    def feasible(self) -> bool:
        """No capacity is exceeded, no pin is broken."""
        return not self.errors


def evaluate(
    instance: instances.Instance,
    placement: placements.Placement,
    hops: int = 1,
) -> Evaluation:
    """Cost and feasibility of a placement.

    :param hops: rounds of building on what can be built
    :raises PlacementError: the placement names what does not exist
    """
    errors = placements.errors(instance, placement)
    total = total_cost(instance, placement, hops)
    demand = instance.demand
    return Evaluation(
        total, total / demand if demand else 0.0, tuple(errors)
    )


def total_cost(
    instance: instances.Instance,
    placement: placements.Placement,
    hops: int = 1,
) -> float:
    """Sum over templates and hosts of rate times cheapest cost, seconds."""
    return float(
        sum(
            instance.rates[:, column] @ seconds
            for column, seconds in service_columns(instance, placement, hops)
        )
    )


def service_seconds(
    instance: instances.Instance,
    placement: placements.Placement,
    hops: int = 1,
) -> np.ndarray:
    """Cheapest seconds for each template at each host, shape (N, K)."""
    seconds = np.empty((instance.template_count, instance.host_count))
    for column, values in service_columns(instance, placement, hops):
        seconds[:, column] = values
    return seconds


def service_columns(
    instance: instances.Instance,
    placement: placements.Placement,
    hops: int = 1,
) -> collections.abc.Iterator[tuple[int, np.ndarray]]:
    """Cheapest seconds host by host: (column, array of shape (N,)).

    One host at a time, because patches times hosts does not fit in memory
    at the scale of thousands of templates.
    """
    order = np.argsort(instance.patch_target, kind='stable')
    base = instance.patch_base[order]
    targets, starts = np.unique(
        instance.patch_target[order], return_index=True
    )
    for column, whole, patch in _fetch_columns(instance, placement):
        if not hops or not len(targets):
            yield column, whole
            continue
        step = patch + instance.patch_seconds
        seconds = whole.copy()
        built = np.minimum.reduceat(whole[base] + step[order], starts)
        seconds[targets] = np.minimum(whole[targets], built)
        for _ in range(hops - 1):
            if not _build_on(instance, step, seconds):
                break
        yield column, seconds


def _build_on(instance, step, seconds) -> bool:
    """One more round, in place; False if it found nothing."""
    # A step that alone takes longer than its target does finds nothing.
    useful = np.flatnonzero(step < seconds[instance.patch_target])
    found = False
    values = seconds.tolist()
    for i, j, more in zip(
        instance.patch_base[useful].tolist(),
        instance.patch_target[useful].tolist(),
        step[useful].tolist(),
    ):
        if values[i] + more < values[j]:
            values[j] = values[i] + more
            found = True
    seconds[:] = values
    return found


def _fetch_columns(instance, placement):
    """(column, seconds per template, seconds per patch) for each host."""
    links = instance.bandwidths
    hosts = instance.host_count
    patch_index = instance.patch_index()
    held_t = [[] for _ in range(hosts)]
    held_p = [[] for _ in range(hosts)]
    for i, host in placement.templates:
        held_t[host - 1].append(i)
    for i, j, host in placement.patches:
        held_p[host - 1].append(patch_index[i, j])
    for columns in instance.site_hosts():
        near_t = sorted({i for c in columns for i in held_t[c]})
        near_p = sorted({e for c in columns for e in held_p[c]})
        for column in columns.tolist():
            both = []
            for sizes, near, held in (
                (instance.sizes, near_t, held_t[column]),
                (instance.patch_sizes, near_p, held_p[column]),
            ):
                rate = np.full(len(sizes), links.repo[column])
                rate[near] = np.maximum(rate[near], links.peer[column])
                rate[held] = np.maximum(rate[held], links.local[column])
                both.append(instances.fetch_seconds(sizes, rate))
            yield column, *both
