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
"""Sizes of the partitions of an SSD: policies, and how they are loaded."""

import abc
import collections.abc
import dataclasses
import math
import typing

import stevedore

from diffcache_openstack import _native
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.common import exceptions

NAMESPACE = 'diffcache.ssdcache.policies'
MAX_CAPACITY = (1 << 48) - 1


class SizingError(exceptions.InvalidInput):
    """No sizes are possible; the message names the volume or the option."""


@dataclasses.dataclass(frozen=True)
class Volume:
    """A volume that gets a partition; native code reads the attributes.

    :ivar curve: its hits at all sizes
    :ivar weight: value of its hits, above 0; its share, or its priority, for
        policies that have these
    :ivar min: blocks that it has at least
    :ivar max: blocks that it has at most
    :ivar target: what it is to reach, with the policy ``latency``
    :ivar hit_us: microseconds of its references that hit; none for what the
        cache has
    :ivar miss_us: microseconds of those that miss; none for what the cache
        has
    """

    name: str
    curve: _native.HitCurve
    weight: float = 1.0
    min: int = 0
    max: int = MAX_CAPACITY
    target: choices.Target | None = None
    hit_us: float | None = None
    miss_us: float | None = None


@dataclasses.dataclass(frozen=True)
class Cache:
    """The cache to divide.

    :ivar capacity: blocks
    :ivar step: sizes are multiples of this many blocks
    :ivar hit_us: microseconds of a reference that hits
    :ivar miss_us: microseconds of one that misses
    """

    capacity: int
    step: int = 1
    hit_us: float = 100.0
    miss_us: float = 5000.0

    def latency_us(self, volume: Volume, size: int) -> float:
        """Return the sum over all references of a volume."""
        hits = volume.curve.hits(size)
        misses = volume.curve.references - hits
        return hits * self.hit(volume) + misses * self.miss(volume)

    def hit(self, volume: Volume) -> float:
        """Return the microseconds of a volume's hit."""
        return self.hit_us if volume.hit_us is None else volume.hit_us

    def miss(self, volume: Volume) -> float:
        """Return the microseconds of a volume's miss."""
        return self.miss_us if volume.miss_us is None else volume.miss_us

    def least(self, volume: Volume) -> int:
        """Return the smallest size that a volume may have."""
        return self.up(volume.min)

    def most(self, volume: Volume) -> int:
        """Return the largest size that a volume may have."""
        return min(volume.max, self.capacity) // self.step * self.step

    def up(self, blocks: int) -> int:
        """Return the next multiple of the step."""
        return -(-blocks // self.step) * self.step


@dataclasses.dataclass(frozen=True)
class Sizing:
    """Sizes and why they are so.

    :ivar sizes: blocks, by the names of the volumes
    :ivar optimal: whether no sizes serve the policy's aim better, proven;
        never for policies that are rules
    :ivar infeasible: volumes whose target cannot be met
    :ivar explain: a sentence with numbers for each decision
    """

    sizes: dict[str, int]
    optimal: bool = False
    infeasible: list[str] = dataclasses.field(default_factory=list)
    explain: list[str] = dataclasses.field(default_factory=list)


class Policy(abc.ABC):
    """Divides a cache among volumes.

    Sizes are multiples of the step, from the least to the most of each
    volume, and at most the capacity in all. The same volumes have the same
    sizes; policies keep no state, and may be called from any thread.
    """

    def saves_latency(self, volumes: collections.abc.Sequence[Volume]
                      ) -> bool:
        """Return whether the least latency of these volumes is the aim."""
        return False

    @abc.abstractmethod
    def size(self, volumes: collections.abc.Sequence[Volume], cache: Cache
             ) -> Sizing:
        """Return the sizes of volumes that :func:`check` accepts."""


def load(name: str) -> Policy:
    """Return the policy with a name.

    :raises SizingError: there is none
    """
    found = stevedore.ExtensionManager(NAMESPACE, invoke_on_load=False)
    if name not in found:
        raise SizingError(f'policy: there is no {name}, choose one of'
                          f' {", ".join(sorted(found.names()))}')
    return typing.cast(Policy, found[name].plugin())


def check(volumes: collections.abc.Sequence[Volume], cache: Cache) -> None:
    """Refuse volumes that no sizes suit.

    :raises SizingError: the message names the volume
    """
    for volume in volumes:
        if not (math.isfinite(volume.weight) and volume.weight > 0):
            raise SizingError(f'{volume.name}: its weight is not above 0')
        if volume.min > volume.max:
            raise SizingError(f'{volume.name}: its least size, {volume.min}'
                              f' blocks, exceeds its largest, {volume.max}'
                              ' blocks')
        if volume.min > cache.capacity:
            raise SizingError(f'{volume.name}: its least size, {volume.min}'
                              f' blocks, exceeds the cache, {cache.capacity}'
                              ' blocks')
        if cache.least(volume) > cache.most(volume):
            raise SizingError(
                f'{volume.name}: no multiple of the step, {cache.step} blocks,'
                f' is between its least size, {volume.min}, and its largest,'
                f' {min(volume.max, cache.capacity)}')
    least = sum(map(cache.least, volumes))
    if least > cache.capacity:
        raise SizingError(
            f'the least sizes add up to {least} blocks, but the cache has'
            f' {cache.capacity}; lower some')


def fits(sizes: collections.abc.Iterable[int], cache: Cache) -> bool:
    """Return whether sizes are within the capacity together."""
    return sum(sizes) <= cache.capacity


def hit_ratio(volume: Volume, size: int) -> float:
    """Return the part of a volume's references that hit, from 0 to 1."""
    curve = volume.curve
    return curve.hits(size) / curve.references if curve.references else 0.0


def in_words(volume: Volume, size: int) -> str:
    """Format a volume's size and hit ratio as a text for users."""
    return (f'{volume.name}: {size} of {volume.curve.distinct} blocks,'
            f' {hit_ratio(volume, size):.1%} hits')
