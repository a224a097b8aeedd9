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
"""The transition from one placement to a better one: moves and savings.

A new plan is worth its transfers only if what it saves, over the time it is
expected to last, is more than what moving its bytes costs. Seconds of waiting
users and seconds of busy links are weighed by ``Terms.move_weight``; dividing
by the horizon gives the solver one cost per period of the rates.
"""

import collections.abc
import dataclasses
import math
import typing

from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements
from diffcache_openstack.placement.solvers import auto
from diffcache_openstack.placement.solvers import sites
from diffcache_openstack.placement import solving
from diffcache_openstack.placement import ways


@dataclasses.dataclass(frozen=True)
class FillLimits:
    """When and how fast a host fetches what a plan places there.

    :param max_rate_mbps: limit on every link; None for none
    :param window_s: seconds per day in which fills use the repository
    """

    max_rate_mbps: float | None = None
    window_s: float = 86400.0


class Busy(typing.NamedTuple):
    """Seconds that a host transfers from the repository, and from peers."""

    wan_s: float = 0.0
    lan_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class Terms:
    """Conditions under which a change pays.

    :param period_s: seconds that the instance's rates count requests over
    :param horizon_s: seconds a plan is expected to last: a week, as the
        half-life of the demand that it is made for
    :param move_weight: how many seconds of waiting one second of transfer
        is worth; 0 moves for any saving. A user notices waiting, and a fill
        takes the part of a link that is free, so that it is worth little
    :param least_saving: share of the cost a new plan must save to replace
        the present one, so that noise in the history moves nothing
    :param fill: limits of hosts that ``fills`` does not have
    :param fills: limits of single hosts, by number
    """

    period_s: float = 86400.0
    horizon_s: float = 7 * 86400.0
    move_weight: float = 0.01
    least_saving: float = 0.02
    fill: FillLimits = FillLimits()
    fills: collections.abc.Mapping[int, FillLimits] = dataclasses.field(
        default_factory=dict)

    def limits(self, host: int) -> FillLimits:
        """Return the limits of a host's fills."""
        return self.fills.get(host, self.fill)

    @property
    def weight(self) -> float:
        """Cost per second of transfer, in seconds per period of the rates."""
        return self.move_weight * self.period_s / self.horizon_s


@dataclasses.dataclass(frozen=True)
class Move:
    """One object to bring to a host.

    :param key: (template,) or (base, target)
    :param source: host to read it from, 0 the repository
    :param megabytes: that cross the link
    """

    key: tuple[int, ...]
    host: int
    source: int
    megabytes: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class Transition:
    """The moves and drops that lead to a placement, and their worth.

    :param changed: the new placement differs from the present one
    :param drops: ((template,) or (base, target), host) no longer wanted
    :param fill_s: seconds each host's fill takes, within rate and window
    :param saving_per_hour_s: expected seconds of service saved per hour
    """

    placement: placements.Placement
    solution: solving.Solution
    moves: tuple[Move, ...]
    drops: tuple[tuple[tuple[int, ...], int], ...]
    cost_before_s: float
    cost_after_s: float
    fill_s: dict[int, float]
    saving_per_hour_s: float

    @property
    def changed(self) -> bool:
        """Something moves or goes."""
        return bool(self.moves or self.drops)

    @property
    def wan_mb(self) -> float:
        """MB that cross the link to the repository."""
        return sum(m.megabytes for m in self.moves if not m.source)

    @property
    def peer_mb(self) -> float:
        """MB that hosts of a site send one another."""
        return sum(m.megabytes for m in self.moves if m.source)


def current(instance: instances.Instance) -> placements.Placement:
    """Return what hosts hold and may keep: nothing on excluded hosts."""
    keep = [h not in instance.excluded for h in range(instance.host_count + 1)]
    placed = instance.placed
    return placements.Placement.of(
        ((i, h) for i, h in placed.templates if keep[h]),
        ((i, j, h) for i, j, h in placed.patches if keep[h]),
    )


def solve(instance: instances.Instance, terms: Terms = Terms(),
          **options) -> solving.Solution:
    """Find the best placement when moving to it from ``placed`` has a cost.

    :param options: those of :meth:`base.Solver.solve`
    :returns: its costs and bound are of service alone, moves not counted
    """

    def solve_site(site, site_options):
        start = auto.Start(current(site), terms.weight)
        return auto.solve_site(site, site_options, start)

    return sites.solve_each(instance, solving.Options(**options), solve_site)


def worth(instance: instances.Instance, present: placements.Placement,
          solution: solving.Solution, terms: Terms, hops: int = 1) -> bool:
    """Return whether a solution saves enough to replace a plan.

    :param instance: its ``placed`` says what needs no transfer
    :param present: a feasible placement, the current plan
    """
    before = cost.total_cost(instance, present, hops)
    moved = sum(move.seconds for move in moves(instance, solution.placement))
    return pays(before, solution.cost_s + terms.weight * moved, terms)


def pays(before: float, after: float, terms: Terms) -> bool:
    """Return whether a cost, with what moving takes, is enough below."""
    saved = before - after
    return saved > 0 and saved >= terms.least_saving * before


def replan(instance: instances.Instance, terms: Terms = Terms(),
           **options) -> Transition:
    """Plan the transition from ``instance.placed`` to a better placement.

    The present placement is kept unless it is not feasible any more (a
    drained host, a pin, less capacity) or the new one saves enough.

    :param options: those of :meth:`base.Solver.solve`
    """
    now = current(instance)
    solution = solve(instance, terms, **options)
    hops = options.get('hops', 1)
    before = cost.total_cost(instance, now, hops)
    chosen = solution.placement
    feasible = not placements.errors(instance, now)
    if feasible and not worth(instance, now, solution, terms, hops):
        chosen = now
        solution = dataclasses.replace(
            solution,
            placement=now,
            cost_s=before,
            proved_optimal=solution.lower_bound_s >= before * (1 - 1e-6),
        )
    return _plan(instance, chosen, solution, terms, before)


def compare(instance: instances.Instance, placement: placements.Placement,
            terms: Terms = Terms(), hops: int = 1) -> Transition:
    """Plan the transition from ``instance.placed`` to ``placement``."""
    total = cost.total_cost(instance, placement, hops)
    solution = solving.Solution(placement, total, 0.0, False, 0.0)
    before = cost.total_cost(instance, current(instance), hops)
    return _plan(instance, placement, solution, terms, before)


def moves(instance: instances.Instance,
          placement: placements.Placement) -> list[Move]:
    """List transfers to a placement, each from its cheapest source.

    What a host of the site holds already, even one being drained, or is to
    receive from the repository, the others of the site read from it.
    """
    held: dict[tuple, list[int]] = {}
    for *key, host in (*instance.placed.templates, *instance.placed.patches):
        held.setdefault(tuple(key), []).append(host)
    patch_index = instance.patch_index()
    found = []
    wanted = sorted(placement.templates) + sorted(placement.patches)
    for *parts, host in wanted:
        object_key: typing.Any = tuple(parts)
        holders = held.setdefault(object_key, [])
        if host in holders:
            continue
        size = float(
            instance.sizes[object_key[0]]
            if len(object_key) == 1
            else instance.patch_sizes[patch_index[object_key]]
        )
        site = instance.sites[host - 1]
        near = [h for h in holders if instance.sites[h - 1] == site]
        source = near[0] if near else instances.REPOSITORY
        link = instance.bandwidths.peer if near else instance.bandwidths.repo
        if not near and len(object_key) == 1:
            size = float(instance.wire_sizes[object_key[0]])
        seconds = ways.fetch_seconds(size, float(link[host - 1]))
        found.append(Move(object_key, host, source, size, seconds))
        holders.append(host)
    return found


def fill_seconds(
    instance: instances.Instance, placement: placements.Placement
) -> dict[tuple[int, ...], float]:
    """Return the seconds that it takes to bring each object to its host.

    Keys are (template, host) and (base, target, host). For what is held
    already they are those of having it from the repository again.
    """
    found = {
        (*move.key, move.host): move.seconds
        for move in moves(instance, placement)
    }
    patch_index = instance.patch_index()
    for *key, host in (*placement.templates, *placement.patches):
        if (*key, host) not in found:
            size = float(
                instance.wire_sizes[key[0]]
                if len(key) == 1
                else instance.patch_sizes[patch_index[key[0], key[1]]]
            )
            found[(*key, host)] = ways.fetch_seconds(
                size, float(instance.bandwidths.repo[host - 1])
            )
    return found


def leave_out_late(instance: instances.Instance,
                   placement: placements.Placement,
                   worth: dict[tuple[int, ...], float],
                   terms: Terms) -> placements.Placement:
    """Leave out objects that do not arrive while the plan is to last.

    Hosts fetch those first that are worth most per second of transfer. Pinned
    objects are always kept.

    :param worth: of each object, by the keys of :func:`fill_seconds`
    """
    pins = {*instance.pinned.templates, *instance.pinned.patches}
    while True:
        late = _late(instance, placement, worth, terms) - pins
        if not late:
            return placement
        # Without a copy that peers would have read, theirs take longer.
        placement = placements.Placement.of(placement.templates - late,
                                            placement.patches - late)


def _late(instance, placement, worth, terms) -> set[tuple[int, ...]]:
    """Return the objects that arrive after the horizon."""
    transfers = sorted(
        moves(instance, placement),
        key=lambda move: (
            -worth.get((*move.key, move.host), 0.0) / move.seconds, move.key
        ),
    )
    arriving = _arrivals(transfers, terms, terms.horizon_s)
    return {(*move.key, move.host) for move in transfers} - arriving.keys()


def _plan(instance, placement, solution, terms, before) -> Transition:
    transfers = moves(instance, placement)
    drops = [
        ((i,), h)
        for i, h in sorted(set(instance.placed.templates))
        if (i, h) not in placement.templates
    ] + [
        ((i, j), h)
        for i, j, h in sorted(set(instance.placed.patches))
        if (i, j, h) not in placement.patches
    ]
    hours = terms.period_s / 3600.0
    return Transition(placement=placement, solution=solution,
                      moves=tuple(transfers), drops=tuple(drops),
                      cost_before_s=before, cost_after_s=solution.cost_s,
                      fill_s=_fill_seconds(transfers, terms),
                      saving_per_hour_s=(before - solution.cost_s) / hours)


def _fill_seconds(transfers, terms) -> dict[int, float]:
    """Compute seconds from the first window until each host is filled."""
    last: dict[int, float] = {}
    for (*_key, host), seconds in _arrivals(transfers, terms).items():
        last[host] = max(last.get(host, 0.0), seconds)
    return last


def _arrivals(transfers, terms, until=math.inf) -> dict[tuple, float]:
    """Return when objects arrive, of those that do so until an instant.

    A copy of what another host fetches as well comes after that. In place of
    what is late, something smaller may arrive.

    :param transfers: in the order in which each host makes them
    :returns: seconds, by the keys of :func:`fill_seconds`
    """
    busy: dict[int, Busy] = {}
    found: dict[tuple, float] = {}
    # Copies from peers do not delay what comes over the WAN.
    for move in sorted(transfers, key=lambda move: bool(move.source)):
        added = _with_move(busy, move, terms)
        seconds = max(
            _elapsed(added, terms.limits(move.host)),
            found.get((*move.key, move.source), 0.0)
            + _limited_seconds(move, terms))
        if seconds <= until:
            busy[move.host] = added
            found[(*move.key, move.host)] = seconds
    return found


def _with_move(busy, move, terms) -> Busy:
    """Return what a host transfers, with one move more."""
    found = busy.get(move.host, Busy())
    seconds = _limited_seconds(move, terms)
    if move.source == instances.REPOSITORY:
        return found._replace(wan_s=found.wan_s + seconds)
    return found._replace(lan_s=found.lan_s + seconds)


def _limited_seconds(move, terms) -> float:
    """Return the seconds of a transfer, within the limit on rates."""
    rate = terms.limits(move.host).max_rate_mbps
    if not rate:
        return move.seconds
    return max(move.seconds, ways.fetch_seconds(move.megabytes, rate))


def _elapsed(busy: Busy, limits: FillLimits) -> float:
    """Return when transfers end of which those over the WAN keep to windows.

    Hosts copy from one another at any time.
    """
    days = max(0, math.ceil(busy.wan_s / limits.window_s) - 1)
    outside = days * (86400.0 - limits.window_s)
    return outside + busy.wan_s + busy.lan_s
