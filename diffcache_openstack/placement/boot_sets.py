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
"""Boot sets: the chunks that boots read, on hosts that do not have the image.

A lazy boot on a host with the boot set of its image waits for none of its
chunks; one on another host of the site waits for the link between hosts. What
a choice of sets saves is monotone and submodular: a set adds no less to few
sets than to many. Sets are chosen greedily by the seconds that they save per
byte. If no set is larger than a part e of any host's room, that saves at least
(1 - e) / (2 - e) of the most that is possible: a set that does not fit finds
a room that is full to 1 - e with what saves no less per byte, and what the
best choice saves beyond the greedy one is no more than such sets would
(the argument of Nemhauser, Wolsey and Fisher, 1978, for one room for each
host). :attr:`Solution.bound_s` is often closer.
"""

import collections.abc
import dataclasses

import numpy as np

from diffcache_openstack.placement import instance as instances
from diffcache_openstack.placement import lookup
from diffcache_openstack.placement import placement as placements
from diffcache_openstack.placement import replan

# Rooms are tried in steps of this share of the capacity. What a choice within
# a smaller room saves is never lost in a larger one.
STEPS = 100
# Sums in floating point may exceed a room that they meet by this share.
_SLACK = 1e-9


@dataclasses.dataclass(frozen=True)
class Candidates:
    """S boot sets, and K hosts that may hold them.

    :param sizes: MB of each set, above 0, shape (S,)
    :param waits: seconds that a lazy boot waits for the set's chunks over its
        cheapest source if no host has the set, shape (S, K); 0 where none
        boots lazily
    :param near: the same if another host of the site has the set
    :param rates: boots by day, shape (S, K)
    :param capacities: MB of each host's cache, shape (K,)
    :param limits: MB that sets may take at most, whatever the share
    :param sites: a number per host; equal numbers are peers
    :param barred: where a set may not be, shape (S, K)
    :param pinned: (set, host) that come first, the most important first;
        hosts count from 1
    """

    sizes: np.ndarray
    waits: np.ndarray
    near: np.ndarray
    rates: np.ndarray
    capacities: np.ndarray
    limits: np.ndarray
    sites: np.ndarray
    barred: np.ndarray
    pinned: tuple[tuple[int, int], ...] = ()

    def rooms(self, steps: int) -> np.ndarray:
        """Return the MB that sets may take, for so many steps of the share."""
        return np.minimum(self.capacities * (steps / STEPS),
                          np.maximum(self.limits, 0.0))


@dataclasses.dataclass(frozen=True)
class Choice:
    """One boot set on one host, and why.

    :param host: 1..K
    :param requests: boots by day at this host
    :param wait_s: what each would wait for the chunks without it
    :param from_peer: whether they would come from a host of the site that has
        the set
    :param saves_s: seconds by day that all boots of the site would wait
        longer without it
    :param pinned: it was asked for
    """

    number: int
    host: int
    megabytes: float
    requests: float
    wait_s: float
    from_peer: bool
    saves_s: float
    pinned: bool


@dataclasses.dataclass(frozen=True)
class Solution:
    """Boot sets on hosts.

    :param saved_s: seconds of waiting by day that they save
    :param bound_s: the most that any sets within the rooms save that include
        the pinned ones
    """

    choices: tuple[Choice, ...]
    saved_s: float
    bound_s: float


def steps_of(share: float) -> int:
    """Return the steps of a share of the capacity, rounded down."""
    return int(min(max(share, 0.0), 1.0) * STEPS * (1 + _SLACK))


def choose(candidates: Candidates, share: float) -> Solution:
    """Choose boot sets within a share of each host's cache.

    It is deterministic, and a larger share never saves less, as long as the
    same pins fit.

    :param share: 0 to 1; whole percents count
    """
    most = steps_of(share)
    final = _Choosing(candidates, candidates.rooms(most))
    final.pin()
    pins = list(final.chosen)
    final.fill()
    best = final
    # Sets that did not fit may have made way for worse ones.
    for steps in range(most - 1, 0, -1) if final.was_full else ():
        tried = _Choosing(candidates, candidates.rooms(steps))
        tried.take(pins)
        tried.fill()
        if tried.saved_s > best.saved_s:
            best = tried
    bound_s = best.bound(candidates.rooms(most))
    return Solution(best.explain(frozenset(pins)), best.saved_s, bound_s)


class _Choosing:
    """Sets chosen so far, and what is left of rooms and waits."""

    def __init__(self, candidates: Candidates, rooms: np.ndarray) -> None:
        self._all = candidates
        self._left = rooms.astype(float).copy()
        self._slack = rooms * _SLACK
        self._waits = candidates.waits.astype(float).copy()
        self._allowed = ~candidates.barred
        count = len(candidates.sizes)
        self._best = np.full(count, -np.inf)
        self._where = np.zeros(count, dtype=np.int64)
        self.chosen: list[tuple[int, int]] = []
        self.saved_s = 0.0
        self.was_full = False

    def pin(self) -> None:
        """Take what is pinned, where it fits and is of use."""
        for number, host in dict.fromkeys(self._all.pinned):
            column = host - 1
            if not self._allowed[number, column]:
                continue
            if self._fits(number)[column]:
                self._take(number, column)
            else:
                self.was_full = True

    def take(self, chosen: collections.abc.Iterable[tuple[int, int]]) -> None:
        """Take sets whatever the room: they fit into a larger one."""
        for number, host in chosen:
            self._take(number, host - 1)

    def fill(self) -> None:
        """Take what saves most per MB, until nothing more fits or saves."""
        for number in range(len(self._best)):
            self._rank(number)
        while len(self._best):
            number = int(np.argmax(self._best))
            if not self._best[number] > 0:
                return
            column = int(self._where[number])
            self._take(number, column)
            self._rank(number)
            for other in np.flatnonzero(
                    (self._where == column) & np.isfinite(self._best)):
                if not self._fits(other)[column]:
                    self._rank(other)

    def bound(self, rooms: np.ndarray) -> float:
        """Return the most that sets within some rooms save.

        By submodularity that is what is saved, and what the fractional
        knapsack of each host would add, with the present gains.
        """
        gains = np.vstack([self.gains(n) for n in range(len(self._best))]) \
            if len(self._best) else np.zeros((0, len(rooms)))
        gains = np.where(self._allowed, gains, 0.0)
        pinned = np.zeros(len(rooms))
        for number, host in self.chosen:
            if (number, host) in set(self._all.pinned):
                pinned[host - 1] += self._all.sizes[number]
        added = 0.0
        for column, room in enumerate(np.maximum(0.0, rooms - pinned)):
            density = gains[:, column] / self._all.sizes
            for number in np.argsort(-density, kind='stable'):
                part = min(1.0, room / self._all.sizes[number])
                added += part * gains[number, column]
                room -= part * self._all.sizes[number]
        return self.saved_s + added

    def explain(self, pins: frozenset[tuple[int, int]]
                ) -> tuple[Choice, ...]:
        """Give the reasons, by host, what saves most per MB first."""
        found = []
        for number, host in self.chosen:
            column = host - 1
            others = [each - 1 for other, each in self.chosen
                      if other == number and each != host]
            without = self._waits_with(number, others)
            loss = float(self._all.rates[number] @ np.maximum(
                0.0, without - self._waits[number]))
            found.append(Choice(
                number=number, host=host,
                megabytes=float(self._all.sizes[number]),
                requests=float(self._all.rates[number, column]),
                wait_s=float(without[column]),
                from_peer=bool(
                    without[column] < self._all.waits[number, column]),
                saves_s=loss, pinned=(number, host) in pins))
        return tuple(sorted(found, key=lambda each: (
            each.host, -each.saves_s / each.megabytes, each.number)))

    def _fits(self, number):
        return self._all.sizes[number] <= self._left + self._slack

    def _waits_with(self, number, columns):
        """Return what boots wait if some hosts have a set, shape (K,)."""
        every = self._all
        waits = every.waits[number].astype(float).copy()
        for column in columns:
            near = every.sites == every.sites[column]
            waits = np.where(
                near, np.minimum(waits, every.near[number]), waits)
        waits[list(columns)] = 0.0
        return waits

    def gains(self, number: int) -> np.ndarray:
        """Return what a set saves at each host beside what is chosen."""
        every, waits = self._all, self._waits[number]
        own = every.rates[number] * waits
        near = every.rates[number] * np.maximum(
            0.0, waits - every.near[number])
        sums = np.bincount(every.sites, weights=near,
                           minlength=int(every.sites.max(initial=0)) + 1)
        return own + sums[every.sites] - near

    def _rank(self, number):
        """Find the best host for one more copy of a set."""
        allowed, fits = self._allowed[number], self._fits(number)
        density = self.gains(number) / self._all.sizes[number]
        if np.any(allowed & ~fits & (density > 0)):
            self.was_full = True
        density = np.where(allowed & fits, density, -np.inf)
        self._where[number] = np.argmax(density) if len(density) else 0
        self._best[number] = density.max(initial=-np.inf)

    def _take(self, number, column):
        self.saved_s += float(self.gains(number)[column])
        self._left[column] -= self._all.sizes[number]
        self._allowed[number, column] = False
        self.chosen.append((number, column + 1))
        self._waits[number] = self._waits_with(
            number, [host - 1 for each, host in self.chosen
                     if each == number])


@dataclasses.dataclass(frozen=True)
class BootSets:
    """Boot sets of templates of an instance, and where they may be.

    :param templates: that have a set
    :param megabytes: of the set of each
    :param hosts: that serve images while they arrive, 1..K
    :param capacities: MB of each host's cache, shape (K,); the instance may
        have set some aside for boot sets
    :param present: (template, host) of sets that need no transfer
    :param pinned: (template, host) that come first, the most important first
    """

    templates: tuple[int, ...]
    megabytes: tuple[float, ...]
    hosts: frozenset[int]
    capacities: np.ndarray
    present: frozenset[tuple[int, int]] = frozenset()
    pinned: tuple[tuple[int, int], ...] = ()


def candidates_of(
    instance: instances.Instance,
    placement: placements.Placement,
    sets: BootSets,
    terms: replan.Terms,
    hops: int = 1,
) -> Candidates:
    """Return the boot sets of some templates, given what hosts hold.

    A boot reads a part of the image over the cheapest way there is to it, and
    waits for the same part of what the whole image would take. No host of
    ``instance.placed`` or of the placement has use for the set of a template
    that it holds; and a set is not brought to a host if that costs more by the
    terms of moves than it can save there.

    :param placement: what hosts are to hold
    :param hops: patches that may be applied one after another
    :returns: its sets are numbered as ``sets.templates``
    """
    templates = list(sets.templates)
    sizes = np.array(sets.megabytes, dtype=float)
    shape = (len(templates), instance.host_count)
    table = lookup.LookupTable(instance, placement)
    waits = np.zeros(shape)
    barred = np.zeros(shape, dtype=bool)
    holders = {*placement.templates, *instance.placed.templates,
               *instance.pinned.templates}
    for row, j in enumerate(templates):
        part = min(1.0, sizes[row] / float(instance.sizes[j]))
        for column in range(shape[1]):
            host = column + 1
            if (j, host) in holders or host not in sets.hosts:
                barred[row, column] = True
                continue
            barred[row, column] = host in instance.excluded
            way = table.ways(j, host, hops, limit=1)[0]
            waits[row, column] = part * way.seconds
    links = instance.bandwidths
    near = np.array([[instances.fetch_seconds(size, mbps)
                      for mbps in links.peer] for size in sizes]
                    ).reshape(shape)
    pins = np.zeros(instance.host_count)
    for j, host in instance.pinned.templates:
        pins[host - 1] += instance.sizes[j]
    found = Candidates(
        sizes=sizes, waits=waits, near=near,
        rates=instance.rates[templates].reshape(shape),
        capacities=sets.capacities.astype(float),
        limits=sets.capacities - pins, sites=instance.sites,
        barred=barred, pinned=tuple(
            (templates.index(j), host) for j, host in sets.pinned))
    return dataclasses.replace(
        found, barred=barred | _too_dear(found, sets, terms))


def _too_dear(candidates, sets, terms):
    """Return where a set costs more to bring than it saves at most."""
    alone = _Choosing(candidates, candidates.rooms(0))
    periods = terms.horizon_s / terms.period_s
    dear = np.zeros_like(candidates.barred)
    for row, j in enumerate(sets.templates):
        dear[row] = (alone.gains(row) * periods
                     < terms.move_weight * candidates.waits[row])
        kept = {host for each, host in (*sets.present, *sets.pinned)
                if each == j}
        dear[row, [host - 1 for host in kept]] = False
    return dear
