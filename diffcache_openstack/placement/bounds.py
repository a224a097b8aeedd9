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
"""Lower bounds that take no solving."""

import numpy as np

from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements


def unlimited(instance: instances.Instance, hops: int = 1) -> float:
    """Compute the cost, in seconds, if every host held everything."""
    hosts = range(1, instance.host_count + 1)
    everything = placements.Placement.of(
        ((i, h) for i in range(instance.template_count) for h in hosts),
        (
            (*pair, h)
            for pair in zip(instance.patch_base.tolist(),
                            instance.patch_target.tolist())
            for h in hosts
        ),
    )
    return cost.total_cost(instance, everything, hops)


def capacity_left(instance: instances.Instance,
                  placement: placements.Placement) -> np.ndarray:
    """Compute the bytes that each host could still take, shape (K,)."""
    used = placements.used(instance, placement)
    return np.maximum(instance.usable_bytes() - used, 0)
