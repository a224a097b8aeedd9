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
"""Divides a cache among the volumes of a trace, as a document."""

import collections.abc
import dataclasses
import typing

from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.ssdcache import curves
from diffcache_openstack.ssdcache.sizing import base

_Numbers = collections.abc.Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Wishes:
    """What volumes are to have, by their names.

    :ivar weights: of hits, or shares, or priorities, as the policy has it
    :ivar least: blocks
    :ivar most: blocks
    :ivar targets: for the policy ``latency``
    """

    weights: collections.abc.Mapping[str, float] = dataclasses.field(
        default_factory=dict)
    least: _Numbers = dataclasses.field(default_factory=dict)
    most: _Numbers = dataclasses.field(default_factory=dict)
    targets: collections.abc.Mapping[str, choices.Target] = dataclasses.field(
        default_factory=dict)

    def volumes(self, found: collections.abc.Mapping[str, curves.Volume]
                ) -> list[base.Volume]:
        """Return the volumes of a trace with what they are to have.

        :raises SizingError: one of those named is not in the trace
        """
        for option, named in (('weights', self.weights), ('min', self.least),
                              ('max', self.most), ('sla', self.targets)):
            for name in named:
                if name not in found:
                    raise base.SizingError(
                        f'{option}: the trace has no volume {name}')
        return [base.Volume(
            name, volume.curve, self.weights.get(name, 1.0),
            self.least.get(name, 0), self.most.get(name, base.MAX_CAPACITY),
            self.targets.get(name)) for name, volume in found.items()]


def partition(volumes: collections.abc.Sequence[base.Volume],
              policy: str, cache: base.Cache) -> dict[str, typing.Any]:
    """Return the sizes of a policy, and what they come to.

    :param policy: its name
    :returns: a JSON document, see ``doc/source/user/ssd-cache-traces.rst``
    :raises SizingError: there is no such policy, or no sizes are possible
    """
    chosen = base.load(policy)
    base.check(volumes, cache)
    sizing = chosen.size(volumes, cache)
    return {
        'capacity': cache.capacity, 'policy': policy, 'sizes': sizing.sizes,
        'predicted': {volume.name: _predicted(
            volume, sizing.sizes[volume.name], cache) for volume in volumes},
        'objective': sum(
            volume.weight * cache.latency_us(volume, sizing.sizes[volume.name])
            for volume in volumes),
        'optimal': sizing.optimal, 'infeasible': sizing.infeasible,
        'explain': sizing.explain,
    }


def _predicted(volume: base.Volume, size: int, cache: base.Cache
               ) -> dict[str, typing.Any]:
    references = volume.curve.references
    return {
        'hits': volume.curve.hits(size),
        'hit_ratio': base.hit_ratio(volume, size),
        'latency_us': cache.latency_us(volume, size) / references
        if references else 0.0,
    }
