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
"""Policies that follow a rule: shares, working sets, priorities, a pool."""

import collections.abc

from diffcache_openstack import _native
from diffcache_openstack.ssdcache.sizing import base

# Halvings of a level; a double has no more digits.
_HALVINGS = 64


def _levelled(volumes, cache, wanted) -> dict[str, int]:
    """Return sizes in proportion to ``wanted``, between least and most.

    The largest level is found at which the sizes fit; what rounding leaves
    goes, step by step, to the volumes that are furthest below their part.

    :param wanted: the largest sizes, none of them proportional beyond
    """
    least = [cache.least(volume) for volume in volumes]
    most = [max(low, min(cache.most(volume), cache.up(want)))
            for volume, low, want in zip(volumes, least, wanted)]
    if base.fits(most, cache):
        return _named(volumes, most)

    def sizes_at(level):
        return [min(high, max(low, int(want * level)
                              // cache.step * cache.step))
                for low, high, want in zip(least, most, wanted)]

    low, high = 0.0, 1.0
    for _halving in range(_HALVINGS):
        middle = (low + high) / 2
        if base.fits(sizes_at(middle), cache):
            low = middle
        else:
            high = middle
    sizes = sizes_at(low)
    left = cache.capacity - sum(sizes)
    below = sorted(range(len(sizes)), reverse=True,
                   key=lambda at: wanted[at] * low - sizes[at])
    for at in below:
        more = min(left // cache.step * cache.step, cache.step,
                   most[at] - sizes[at])
        sizes[at] += more
        left -= more
    return _named(volumes, sizes)


def _named(volumes, sizes) -> dict[str, int]:
    return {volume.name: size for volume, size in zip(volumes, sizes)}


class StaticPolicy(base.Policy):
    """Shares of the capacity in proportion to weights, whatever is used."""

    def size(self, volumes: collections.abc.Sequence[base.Volume],
             cache: base.Cache) -> base.Sizing:
        # The capacity for the smallest weight, so that only it limits.
        lightest = min((volume.weight for volume in volumes), default=1.0)
        wanted = [cache.capacity * volume.weight / lightest
                  for volume in volumes]
        sizes = _levelled(volumes, cache, [round(each) for each in wanted])
        every = sum(volume.weight for volume in volumes)
        return base.Sizing(sizes, explain=[
            f'{base.in_words(volume, sizes[volume.name])}; its weight is'
            f' {volume.weight / every:.1%} of all' for volume in volumes])


class WorkingSetPolicy(base.Policy):
    """Shares in proportion to different blocks, none above its own.

    PARDA sizes caches by working sets; a limited SSD divides the lack.
    """

    def size(self, volumes: collections.abc.Sequence[base.Volume],
             cache: base.Cache) -> base.Sizing:
        wanted = [volume.curve.distinct for volume in volumes]
        sizes = _levelled(volumes, cache, wanted)
        summary = (f'the working sets have {sum(wanted)} blocks, the cache'
                   f' {cache.capacity}')
        return base.Sizing(sizes, explain=[summary] + [
            base.in_words(volume, sizes[volume.name]) for volume in volumes])


class PriorityPolicy(base.Policy):
    """Each up to its different blocks, those with the highest weight first."""

    def size(self, volumes: collections.abc.Sequence[base.Volume],
             cache: base.Cache) -> base.Sizing:
        sizes = {volume.name: cache.least(volume) for volume in volumes}
        left = cache.capacity - sum(sizes.values())
        explain = []
        for volume in sorted(volumes, key=lambda each: -each.weight):
            size = sizes[volume.name]
            wanted = min(cache.most(volume),
                         cache.up(volume.curve.distinct))
            more = min(max(0, wanted - size), left // cache.step * cache.step)
            sizes[volume.name] = size + more
            left -= more
            explain.append(f'{base.in_words(volume, size + more)}; priority'
                           f' {volume.weight:g}, {left} blocks are left')
        return base.Sizing(sizes, explain=explain)


class PooledPolicy(base.Policy):
    """Least sizes are reserved; volumes compete for the rest as in one cache.

    Sizes are what volumes are expected to have of it.
    """

    def size(self, volumes: collections.abc.Sequence[base.Volume],
             cache: base.Cache) -> base.Sizing:
        expected = _native.sizing_shared(list(volumes), cache.capacity)
        sizes = {volume.name: max(
            cache.least(volume),
            min(cache.most(volume), size // cache.step * cache.step))
            for volume, size in zip(volumes, expected)}
        for volume in volumes:
            # Least sizes were rounded up, others down: few steps are too many.
            over = cache.up(max(0, sum(sizes.values()) - cache.capacity))
            spare = sizes[volume.name] - cache.least(volume)
            sizes[volume.name] -= min(over, spare)
        return base.Sizing(sizes, explain=[
            f'{base.in_words(volume, sizes[volume.name])} expected;'
            f' {cache.least(volume)} are reserved' for volume in volumes])
