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
"""Policies with an aim that sizes reach as well as they can."""

import collections.abc
import dataclasses
import math

from diffcache_openstack import _native
from diffcache_openstack.ssdcache.sizing import base

# Halvings of a ratio; a double has no more digits.
_HALVINGS = 64
# Of a hit that saves nothing, beside one that saves the most.
_LEAST_VALUE = 1e-6


def _fewest_misses(volumes, cache) -> tuple[dict[str, int], bool]:
    """Return the sizes with the most weighted hits, and if that is proven.

    A hit counts as much as it saves.
    """
    saved = [cache.miss(volume) - cache.hit(volume) for volume in volumes]
    most = max(saved, default=0.0)
    if most <= 0:
        # Hits gain nothing.
        return {volume.name: cache.least(volume) for volume in volumes}, True
    found = _native.sizing_latency(
        [dataclasses.replace(volume, weight=volume.weight * max(
            each / most, _LEAST_VALUE))
         for volume, each in zip(volumes, saved)],
        cache.capacity, cache.step)
    if found is None:
        raise base.SizingError('the least sizes exceed the cache')
    sizes, optimal = found
    return {volume.name: size
            for volume, size in zip(volumes, sizes)}, optimal


def _gain_in_words(volume, size, cache) -> str:
    """Return what a volume has, and what more or fewer blocks would do."""
    text = base.in_words(volume, size)
    curve, tenth = volume.curve, max(cache.step, cache.up(size // 10))
    more = curve.hits(size + tenth) - curve.hits(size)
    fewer = curve.hits(size) - curve.hits(max(0, size - tenth))
    return (f'{text}; {tenth} blocks more would bring {more} hits, {tenth}'
            f' fewer would cost {fewer}')


class FairnessPolicy(base.Policy):
    """The least hit ratio as large as possible.

    A volume that cannot reach the common ratio has what it gains from. What
    is left then is divided for the least latency.
    """

    def size(self, volumes: collections.abc.Sequence[base.Volume],
             cache: base.Cache) -> base.Sizing:
        low, high = 0.0, 1.0
        for _halving in range(_HALVINGS):
            middle = (low + high) / 2
            if base.fits(_sizes_for(volumes, middle, cache), cache):
                low = middle
            else:
                high = middle
        if base.fits(_sizes_for(volumes, 1.0, cache), cache):
            low = 1.0
        least = _sizes_for(volumes, low, cache)
        sizes, _optimal = _fewest_misses(
            [dataclasses.replace(volume, min=size)
             for volume, size in zip(volumes, least)], cache)
        lowest = min((base.hit_ratio(volume, sizes[volume.name])
                      for volume in volumes if volume.curve.references),
                     default=0.0)
        return base.Sizing(sizes, optimal=True, explain=[
            f'the least hit ratio is {lowest:.1%}, which takes {sum(least)}'
            f' blocks; {cache.capacity - sum(least)} are left for the least'
            f' latency'] + [base.in_words(volume, sizes[volume.name])
                            for volume in volumes])


def _sizes_for(volumes, ratio, cache) -> list[int]:
    """Return the least sizes with a hit ratio, or with the most hits."""
    return [_size_for(volume, math.ceil(ratio * volume.curve.references),
                      cache) for volume in volumes]


def _size_for(volume, hits, cache) -> int:
    """Return the least size with this many hits, or with the most that it has.

    Hits that only some size between two steps has are those of the next one.
    """
    most = volume.curve.hits(cache.most(volume))
    size = volume.curve.size_for(min(hits, most)) or 0
    return max(cache.least(volume), cache.up(size))


class LatencyPolicy(base.Policy):
    """The least sum of all references' latencies, each by its weight.

    Targets of volumes are met first, with the fewest blocks. Those that cannot
    be met are named; of those that cannot be met together, the ones of higher
    weight come first, then the smaller ones.
    """

    def saves_latency(self, volumes: collections.abc.Sequence[base.Volume]
                      ) -> bool:
        return not any(volume.target for volume in volumes)

    def size(self, volumes: collections.abc.Sequence[base.Volume],
             cache: base.Cache) -> base.Sizing:
        need = {volume.name: _needed(volume, cache) for volume in volumes
                if volume.target is not None}
        met = {volume.name: cache.least(volume) for volume in volumes}
        infeasible, explain = [], []
        for volume in sorted(
                (each for each in volumes if each.name in need),
                key=lambda each: (-each.weight, need[each.name] or 0)):
            size, text = need[volume.name], _target_in_words(volume)
            others = sum(met.values()) - met[volume.name]
            if size is None:
                infeasible.append(volume.name)
                explain.append(f'{text}: no size within its limits does')
            elif others + size > cache.capacity:
                infeasible.append(volume.name)
                explain.append(
                    f'{text}: takes {size} blocks, and'
                    f' {cache.capacity - others} are left')
            else:
                met[volume.name] = size
                explain.append(f'{text}: takes {size} blocks')
        sizes, optimal = _fewest_misses(
            [dataclasses.replace(volume, min=met[volume.name])
             for volume in volumes], cache)
        return base.Sizing(sizes, optimal, infeasible, explain + [
            _gain_in_words(volume, sizes[volume.name], cache)
            for volume in volumes])


def _needed(volume, cache) -> int | None:
    """Return the least size that meets a volume's target, if any does."""
    hits = _hits_for(volume, cache)
    if hits > volume.curve.hits(cache.most(volume)):
        return None
    return _size_for(volume, hits, cache)


def _hits_for(volume, cache) -> int:
    """Return the fewest hits that meet a target; too many if none do."""
    references, target = volume.curve.references, volume.target
    if target.hit_ratio is not None:
        # Rounding must not ask for a hit more: 0.1 x 30 is above 3.
        return math.ceil(target.hit_ratio * references - 1e-9)
    saved = cache.miss(volume) - cache.hit(volume)
    excess = (cache.miss(volume) - target.latency_us) * references
    if excess <= 0:
        return 0
    if saved <= 0:
        return references + 1
    return math.ceil(excess / saved - 1e-9)


def _target_in_words(volume) -> str:
    target = volume.target
    if target.hit_ratio is not None:
        return f'{volume.name}: {target.hit_ratio:.1%} hits'
    return f'{volume.name}: {target.latency_us:g} us in the mean'
