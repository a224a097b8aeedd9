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
"""Sizes that follow what volumes do, epoch by epoch.

A policy says what sizes would be best by the last epoch alone. Changes cost
hits while partitions fill again, so they are made only where they pay, not at
once after each other, and not all at once.
"""

import collections.abc
import dataclasses

from diffcache_openstack.ssdcache.sizing import base


@dataclasses.dataclass(frozen=True)
class Rules:
    """When and how far sizes change.

    :ivar warm_up: epochs with requests before the first change
    :ivar hysteresis: the part of the capacity that has to move, and with an
        aim of least latency the part of it that has to be saved
    :ivar cool_down: epochs without changes after one
    :ivar largest: the part of the capacity that moves in one epoch, at most
    """

    warm_up: int = 1
    hysteresis: float = 0.01
    cool_down: int = 0
    largest: float = 0.5


@dataclasses.dataclass(frozen=True)
class Decision:
    """Sizes for the next epoch.

    :ivar sizes: blocks, by the names of the volumes
    :ivar changed: whether they differ from those before
    :ivar explain: why, or why not, in numbers
    """

    sizes: dict[str, int]
    changed: bool
    explain: list[str]


class Sizer:
    """Decides at the end of each epoch; keeps what its rules need.

    :param policy: what sizes would be best
    :param cache: what is divided
    :param rules: when sizes change
    """

    def __init__(self, policy: base.Policy, cache: base.Cache,
                 rules: Rules = Rules()) -> None:
        self._policy = policy
        self._cache = cache
        self._rules = rules
        self._epochs = 0
        self._cooling = 0

    @property
    def may_change(self) -> bool:
        """Whether sizes may change when the present epoch ends."""
        return not self._cooling and self._epochs + 1 >= self._rules.warm_up

    def decide(self, volumes: collections.abc.Sequence[base.Volume],
               sizes: collections.abc.Mapping[str, int]) -> Decision:
        """Return the sizes for the next epoch.

        :param volumes: all of them, with the curves of the epoch that ended
        :param sizes: their sizes in it
        :raises SizingError: no sizes suit the volumes
        """
        base.check(volumes, self._cache)
        if any(volume.curve.references for volume in volumes):
            self._epochs += 1
        found = self._policy.size(volumes, self._cache)
        wanted = _with_rest(volumes, found.sizes, self._cache)
        reason = self._reason_not_to(volumes, sizes, wanted)
        self._cooling = max(0, self._cooling - 1)
        if reason is not None:
            return Decision(dict(sizes), False, [reason])
        self._cooling = self._rules.cool_down
        limited = _limited(sizes, wanted, self._most_moved(), self._cache)
        moved = _moved(sizes, limited)
        text = f'{moved} blocks move to other volumes'
        if moved < _moved(sizes, wanted):
            text += (f', of {_moved(sizes, wanted)}: the largest step is'
                     f' {self._most_moved()}')
        return Decision(limited, True, [text, *found.explain])

    def _most_moved(self) -> int:
        return max(self._cache.step,
                   int(self._rules.largest * self._cache.capacity))

    def _reason_not_to(self, volumes, sizes, wanted) -> str | None:
        """Return why sizes stay, or None if they change."""
        if self._epochs < self._rules.warm_up:
            return (f'sizes stay: {self._epochs} of {self._rules.warm_up}'
                    f' epochs were seen')
        if self._cooling:
            return (f'sizes stay: they changed, and will not for'
                    f' {self._cooling} more epochs')
        least = self._rules.hysteresis * self._cache.capacity
        moved = _moved(sizes, wanted)
        if moved == 0 or moved < least:
            return (f'sizes stay: {moved} blocks would move, fewer than'
                    f' {max(1, round(least))}')
        if self._policy.saves_latency(volumes):
            saved = self._saved(volumes, sizes, wanted)
            if saved < self._rules.hysteresis:
                return (f'sizes stay: others would save {saved:.2%} of the'
                        f' latency, less than {self._rules.hysteresis:.2%}')
        return None

    def _saved(self, volumes, sizes, wanted) -> float:
        """Return the part of the latency that other sizes would save."""
        def latency(chosen):
            return sum(volume.weight * self._cache.latency_us(
                volume, chosen[volume.name]) for volume in volumes)
        before = latency(sizes)
        return (before - latency(wanted)) / before if before else 0.0


def _with_rest(volumes, sizes, cache) -> dict[str, int]:
    """Return sizes with what no volume gains from, to those with most misses.

    What this epoch did not use may serve the next one.
    """
    left = (cache.capacity - sum(sizes.values())) // cache.step * cache.step
    found = dict(sizes)
    for volume in sorted(volumes, reverse=True, key=lambda each:
                         each.curve.references - each.curve.hits(
                             sizes[each.name])):
        more = min(left, cache.most(volume) - found[volume.name])
        found[volume.name] += more
        left -= more
    return found


def _moved(sizes, wanted) -> int:
    """Return how many blocks some volume has more."""
    return sum(max(0, wanted[name] - sizes[name]) for name in wanted)


def _limited(sizes, wanted, most, cache) -> dict[str, int]:
    """Return sizes on the way to others, with at most ``most`` moved."""
    moved = max(_moved(sizes, wanted), 1)
    lost = sum(max(0, sizes[name] - wanted[name]) for name in wanted)
    share = min(1.0, most / max(moved, lost))
    if share == 1.0:
        return dict(wanted)
    found = {}
    for name, size in sizes.items():
        change = int((wanted[name] - size) * share)
        # Towards zero, so that what is gained stays within what is lost.
        steps = abs(change) // cache.step * cache.step
        found[name] = size + (steps if change > 0 else -steps)
    over = sum(found.values()) - cache.capacity
    for name in found:
        if over > 0 and found[name] > sizes[name]:
            less = min(found[name] - sizes[name], cache.up(over))
            found[name] -= less
            over -= less
    return found
