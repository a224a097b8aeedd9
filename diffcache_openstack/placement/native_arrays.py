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
"""An instance in the arrays that native code reads."""

import numpy as np

from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import ways


class Arrays:
    """An instance of one site; its attributes are what native code reads.

    Hosts are columns, 0..K-1; objects are templates 0..N-1, then patches
    N..N+E-1 in the instance's order.

    :param hops: patches that may be applied one after another
    :param start: objects that hosts hold at first
    :param move_weight: cost per second of transfer that a new object takes
        to its host; what ``instance.placed`` names needs none
    """

    def __init__(self, instance: instances.Instance, hops: int,
                 start: placements.Placement, move_weight: float = 0.0,
                 threads: int = 1):
        self.hops = max(0, hops)
        self.threads = max(1, threads)
        # In bytes: what fits is decided in whole numbers, which are exact.
        self.sizes = _floats(instances.to_bytes(instance.sizes))
        self.wire_sizes = (instance.wire_sizes_priced() * 1e6).tolist()
        self.patch_base = instance.patch_base.tolist()
        self.patch_target = instance.patch_target.tolist()
        self.patch_sizes = _floats(instances.to_bytes(instance.patch_sizes))
        self.patch_seconds = instance.patch_seconds.tolist()
        self.capacities = _floats(instance.usable_bytes())
        self.links = _links(instance)
        self.rates = np.ascontiguousarray(instance.rates, dtype=float)
        self.move_weight = move_weight
        self._first_patch = instance.template_count
        self._patches = instance.patch_index()
        self._pairs = list(self._patches)
        self.pinned = self._numbers(instance.pinned)
        self.placed = self._numbers(instance.placed)
        self.start = self._numbers(start)

    def _numbers(self, held) -> list[tuple[int, int]]:
        """Number templates and patches: (object, column), sorted."""
        return sorted(
            [(i, host - 1) for i, host in held.templates]
            + [(self._first_patch + self._patches[i, j], host - 1) for i, j,
               host in held.patches]
        )

    def key(self, number: int, column: int) -> tuple[int, ...]:
        """Return (template, host), or (base, target, host) of a patch."""
        if number < self._first_patch:
            return number, column + 1
        return *self._pairs[number - self._first_patch], column + 1

    def placement(self, pairs: list[tuple[int, int]]) -> placements.Placement:
        """Return the placement of (object, column) pairs."""
        keys = [self.key(*pair) for pair in pairs]
        return placements.Placement.of((key for key in keys if len(key) == 2),
                                       (key for key in keys if len(key) == 3))


def _floats(bytes_of: np.ndarray) -> list[float]:
    return bytes_of.astype(float).tolist()


def _links(instance) -> list[tuple[float, float, float]]:
    """Return seconds per byte at each host: local, near, repository."""
    links = instance.bandwidths
    near = np.maximum(links.peer, links.repo)
    local = np.maximum(links.local, near)
    rows = (ways.fetch_seconds(1e-6, b)
            for b in (local, near, links.repo))
    return list(zip(*(row.tolist() for row in rows)))
