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

import collections
import collections.abc
import dataclasses
import heapq
import typing

import numpy as np

from diffcache_openstack.placement import instances
from diffcache_openstack.placement import lookup
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import replan
from diffcache_openstack.placement import ways

# Rooms are tried in steps of this share of the capacity. What a choice within
# a smaller room saves is never lost in a larger one.
STEPS = 100
# Products in floating point may fall short of whole steps by this share.
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
        """Return the bytes that sets may take, for steps of the share."""
        return np.minimum(
            instances.to_bytes(self.capacities) * steps // STEPS,
            np.maximum(instances.to_bytes(self.limits), 0))


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
    same pins fit. For C chosen of S sets on K hosts it takes time in the order
    of (S + C) K log K + C log S, up to 100 times if sets did not fit, and
    memory in the order of S K.

    :param share: 0 to 1; whole percents count
    """
    most = steps_of(share)
    rooms = candidates.rooms(most)
    first = _ranks(candidates)
    final = _Choosing(candidates, rooms, first)
    final.pin()
    pins = [(number, column + 1) for number, column in final.chosen]
    final.fill()
    best = final
    # Sets that did not fit may have made way for worse ones.
    for steps in range(most - 1, 0, -1) if final.was_full else ():
        tried = _Choosing(candidates, candidates.rooms(steps), first)
        tried.take(pins)
        tried.fill()
        if tried.saved_s > best.saved_s:
            best = tried
    bound_s = best.bound(rooms)
    return Solution(best.explain(frozenset(pins)), best.saved_s, bound_s)


class _Ranks(typing.NamedTuple):
    """Hosts for one more copy of each set, the best first.

    :ivar densities: seconds by day that a copy saves per MB, shape (S, K);
        below 0 where it may not be
    :ivar order: of the hosts of each set, from 0, shape (S, K)
    """

    densities: np.ndarray
    order: np.ndarray


def _ranks(candidates: Candidates) -> _Ranks:
    """Rank hosts for each set where no set is chosen."""
    densities = _gains(candidates) / candidates.sizes[:, np.newaxis]
    densities[candidates.barred] = -np.inf
    return _Ranks(densities, _order(densities))


def _order(densities: np.ndarray) -> np.ndarray:
    """Return the indexes of the last axis, the greatest value first."""
    return np.argsort(-densities, axis=-1, kind='stable')


def _gains(candidates: Candidates) -> np.ndarray:
    """Return what each set saves at each host alone, shape (S, K)."""
    found = np.zeros_like(candidates.rates)
    for number, waits in enumerate(candidates.waits):
        found[number] = _gains_of(candidates, number, waits)
    return found


def _gains_of(candidates: Candidates, number: int, waits: np.ndarray
              ) -> np.ndarray:
    """Return what one more copy of a set saves at each host.

    :param waits: of boots without the copy, shape (K,)
    """
    rates, sites = candidates.rates[number], candidates.sites
    near = rates * np.maximum(0.0, waits - candidates.near[number])
    sums = np.bincount(sites, weights=near)
    return rates * waits + sums[sites] - near


class _Choosing:
    """Sets chosen so far, and what is left of rooms and waits.

    :ivar chosen: (set, host), both from 0
    :ivar saved_s: seconds of waiting by day that they save
    :ivar was_full: whether one that saves something did not fit
    """

    def __init__(self, candidates: Candidates, rooms: np.ndarray,
                 first: _Ranks) -> None:
        self._all = candidates
        self._left = rooms.copy()
        self._bytes = instances.to_bytes(candidates.sizes)
        self._waits = candidates.waits.astype(float).copy()
        self._barred = candidates.barred.copy()
        self._densities = first.densities.copy()
        self._order = first.order.copy()
        # Ranks below belong to hosts without room: it never grows.
        self._rank = [0] * len(candidates.sizes)
        # The best host of each set as of its last look, for the greatest
        # density: never less than it is now.
        self._best: list[tuple[float, int, int]] = []
        self._columns: dict[int, list[int]] = collections.defaultdict(list)
        self.chosen: list[tuple[int, int]] = []
        self.saved_s = 0.0
        self.was_full = False

    def pin(self) -> None:
        """Take what is pinned, where it fits and is of use."""
        for number, host in dict.fromkeys(self._all.pinned):
            if self._barred[number, host - 1]:
                continue
            if self._fits(number, host - 1):
                self._take(number, host - 1)
            else:
                self.was_full = True

    def take(self, chosen: collections.abc.Iterable[tuple[int, int]]) -> None:
        """Take sets whatever the room: they fit into a larger one.

        :param chosen: (set, host); hosts count from 1
        """
        for number, host in chosen:
            self._take(number, host - 1)

    def fill(self) -> None:
        """Take what saves most per MB, until nothing more fits or saves."""
        for number in self._columns:
            self._rank_anew(number)
        self.was_full |= bool(np.any(
            (self._densities > 0)
            & (self._bytes[:, np.newaxis] > self._left)))
        for number in range(len(self._rank)):
            self._queue(number)
        while self._best:
            _density, number, column = heapq.heappop(self._best)
            if self._fits(number, column):
                self._take(number, column)
                self._rank_anew(number)
            self._queue(number)

    def bound(self, rooms: np.ndarray) -> float:
        """Return the most that sets within some rooms save.

        By submodularity that is what is saved, and what the fractional
        knapsack of each host would add, with the present gains.
        """
        sizes, pinned = self._all.sizes, set(self._all.pinned)
        rooms = rooms / 1e6
        for number, column in self.chosen:
            if (number, column + 1) in pinned:
                rooms[column] -= sizes[number]
        densities = np.maximum(self._densities, 0.0)
        added = 0.0
        for column, room in enumerate(np.maximum(0.0, rooms)):
            order = _order(densities[:, column])
            in_order = sizes[order]
            before = np.cumsum(in_order) - in_order
            parts = np.clip(room - before, 0.0, in_order)
            added += float(parts @ densities[order, column])
        return self.saved_s + added

    def explain(self, pins: frozenset[tuple[int, int]]
                ) -> tuple[Choice, ...]:
        """Give the reasons, by host, what saves most per MB first."""
        found = []
        for number, columns in self._columns.items():
            at_site = collections.Counter(self._all.sites[columns].tolist())
            for column in columns:
                is_last = at_site[int(self._all.sites[column])] == 1
                wait_s, saves_s = self._without(number, column, is_last)
                found.append(Choice(
                    number=number, host=column + 1,
                    megabytes=float(self._all.sizes[number]),
                    requests=float(self._all.rates[number, column]),
                    wait_s=wait_s, from_peer=bool(
                        wait_s < self._all.waits[number, column]),
                    saves_s=saves_s, pinned=(number, column + 1) in pins))
        return tuple(sorted(found, key=lambda each: (
            each.host, -each.saves_s / each.megabytes, each.number)))

    def _without(self, number, column, is_last):
        """Return what boots at a host wait without a set, and all of them.

        :param is_last: whether no other host of the site has it
        :returns: seconds, and seconds by day
        """
        every = self._all
        waits, rates = every.waits[number], every.rates[number]
        if not is_last:
            wait_s = min(waits[column], every.near[number, column])
            return float(wait_s), float(rates[column] * wait_s)
        peers = every.sites == every.sites[column]
        loss = np.where(peers, waits - self._waits[number], 0.0)
        return float(waits[column]), float(rates @ np.maximum(0.0, loss))

    def _fits(self, number, column):
        return self._bytes[number] <= self._left[column]

    def _queue(self, number):
        """Queue a set for the best of its hosts that has room."""
        densities, order = self._densities[number], self._order[number]
        for rank in range(self._rank[number], len(order)):
            column = int(order[rank])
            if not densities[column] > 0:
                return
            if self._fits(number, column):
                self._rank[number] = rank
                heapq.heappush(
                    self._best, (-float(densities[column]), number, column))
                return
            self.was_full = True

    def _rank_anew(self, number):
        """Rank hosts for one more copy of a set, one of which was taken."""
        size = self._all.sizes[number]
        gains = _gains_of(self._all, number, self._waits[number])
        densities = np.where(self._barred[number], -np.inf, gains / size)
        self._densities[number] = densities
        self._order[number] = _order(densities)
        self._rank[number] = 0
        if np.any((densities > 0) & (self._bytes[number] > self._left)):
            self.was_full = True

    def _take(self, number, column):
        every, waits = self._all, self._waits[number]
        self.saved_s += float(_gains_of(every, number, waits)[column])
        self._left[column] -= self._bytes[number]
        self._barred[number, column] = True
        self.chosen.append((number, column))
        self._columns[number].append(column)
        peers = every.sites == every.sites[column]
        waits[peers] = np.minimum(waits, every.near[number])[peers]
        waits[column] = 0.0


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


def candidates_of(instance: instances.Instance,
                  placement: placements.Placement, sets: BootSets,
                  terms: replan.Terms, hops: int = 1) -> Candidates:
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
    near = np.array([[ways.fetch_seconds(size, mbps)
                      for mbps in links.peer] for size in sizes]
                    ).reshape(shape)
    pins = np.zeros(instance.host_count)
    for j, host in instance.pinned.templates:
        pins[host - 1] += instance.sizes[j]
    number = {j: row for row, j in enumerate(templates)}
    found = Candidates(
        sizes=sizes, waits=waits, near=near,
        rates=instance.rates[templates].reshape(shape),
        capacities=sets.capacities.astype(float),
        limits=sets.capacities - pins, sites=instance.sites,
        barred=barred, pinned=tuple(
            (number[j], host) for j, host in sets.pinned))
    return dataclasses.replace(
        found, barred=barred | _too_dear(found, sets, terms))


def _too_dear(candidates, sets, terms):
    """Return where a set costs more to bring than it saves at most."""
    periods = terms.horizon_s / terms.period_s
    dear = (_gains(candidates) * periods
            < terms.move_weight * candidates.waits)
    row = {j: number for number, j in enumerate(sets.templates)}
    for j, host in (*sets.present, *sets.pinned):
        if j in row:
            dear[row[j], host - 1] = False
    return dear
