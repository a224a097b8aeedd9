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
"""Cost of a placement: equation 5 and the matrix it sums.

The cost of template j at host r is that of the cheapest way to get it: j
itself, or a base and a chain of at most ``hops`` patches, each from the
host's own disk, a peer of its site or the repository, plus the time to apply
the patches. The paper has one hop. Native code finds the cheapest ways
(``native/placement/src/chains.rs``), as it does for the solvers.
"""

import dataclasses

import numpy as np

from diffcache_openstack import _native
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import native_arrays
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import ways

# By how much a link is slowed down to see what uses it.
_SLOWER = 1e-6


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Cost and feasibility of a placement.

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


def evaluate(instance: instances.Instance, placement: placements.Placement,
             hops: int = 1) -> Evaluation:
    """Compute cost and feasibility of a placement.

    :param hops: patches that may be applied one after another
    :raises PlacementError: the placement names what does not exist
    """
    errors = placements.errors(instance, placement)
    total = total_cost(instance, placement, hops)
    demand = instance.demand
    return Evaluation(total, total / demand if demand else 0.0, tuple(errors))


def total_cost(instance: instances.Instance, placement: placements.Placement,
               hops: int = 1) -> float:
    """Sum rate times cheapest cost over templates and hosts, in seconds."""
    seconds = service_seconds(instance, placement, hops)
    return float((instance.rates * seconds).sum())


def wan_megabytes(instance: instances.Instance,
                  placement: placements.Placement, hops: int = 1) -> float:
    """Sum rate times MB from the repository over templates and hosts.

    They are those of the ways that take the fewest seconds: what these cost
    more if the link to the repository is a little slower.
    """
    links = instance.bandwidths
    slower = dataclasses.replace(
        instance,
        bandwidths=dataclasses.replace(links, repo=links.repo * (1 - _SLOWER)),
        # Not by the slower link: where the repository counts as far as
        # peers, the bytes would make up for it.
        wire_sizes=instance.wire_sizes_priced(),
    )
    more = service_seconds(slower, placement, hops) - service_seconds(
        instance, placement, hops
    )
    per_megabyte = ways.fetch_seconds(
        1.0, slower.bandwidths.repo
    ) - ways.fetch_seconds(1.0, links.repo)
    return float((instance.rates * more / per_megabyte).sum())


def service_seconds(instance: instances.Instance,
                    placement: placements.Placement,
                    hops: int = 1) -> np.ndarray:
    """Find the cheapest seconds for each template at each host, (N, K)."""
    groups = instance.site_hosts()
    if len(groups) == 1:
        return _site_seconds(instance, placement, hops)
    seconds = np.empty((instance.template_count, instance.host_count))
    for columns in groups:
        seconds[:, columns] = _site_seconds(instance.only_hosts(columns),
                                            placement.only_hosts(columns),
                                            hops)
    return seconds


def _site_seconds(instance, placement, hops) -> np.ndarray:
    seconds = np.zeros((instance.template_count, instance.host_count))
    arrays = native_arrays.Arrays(instance, hops, placement)
    _native.placement_seconds(arrays, seconds)
    return seconds
