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
"""The lookup table: every way to serve a template at a host, cheapest first.

The paper keeps one entry per template and host. Agents need the ones after
it too: a peer that went away costs time, not the request. The whole
template from the repository is always among the ways.
"""

import dataclasses
import heapq
import itertools
import math

from diffcache_openstack.placement import instance as instances
from diffcache_openstack.placement import placement as placements


@dataclasses.dataclass(frozen=True)
class Step:
    """A patch to apply: ``base`` to ``target``, read from host ``source``."""

    base: int
    target: int
    source: int


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to have a template at a host.

    :param template_source: host the whole template (``base``, or the target
        itself) is read from; the requesting host means its own disk, 0 the
        repository
    :param base: template that patches are applied to; None if the target
        itself is fetched
    :param chain: patches to apply, in order; empty if ``base`` is None
    :param cost_s: predicted seconds
    :param wan_mb: MB that cross the link to the repository
    """

    template_source: int
    base: int | None
    chain: tuple[Step, ...]
    cost_s: float
    wan_mb: float

    @property
    def patch_source(self) -> int | None:
        """Host the first patch is read from; None without patches."""
        return self.chain[0].source if self.chain else None


class LookupTable:
    """Ways to serve requests under one placement.

    Holds indexes only, so that one table answers many requests.
    """

    def __init__(
        self,
        instance: instances.Instance,
        placement: placements.Placement,
    ):
        self._instance = instance
        self._holders: dict[tuple, list[int]] = {}
        for i, host in sorted(placement.templates):
            self._holders.setdefault((i,), []).append(host)
        for i, j, host in sorted(placement.patches):
            self._holders.setdefault((i, j), []).append(host)
        self._into: dict[int, list[int]] = {}
        for e, j in enumerate(instance.patch_target.tolist()):
            self._into.setdefault(j, []).append(e)

    def ways(
        self, template: int, host: int, hops: int = 1, limit: int = 32
    ) -> list[Way]:
        """The ``limit`` cheapest ways for ``template`` at ``host`` (1..K).

        The last is always the whole template from the repository unless it
        ranks higher; ways dearer than it are left out.
        """
        last = self._fetch(template, host, instances.REPOSITORY)
        found = [
            way
            for way in self._all_ways(template, host, hops, last.cost_s)
            if way != last
        ]
        best = heapq.nsmallest(limit, found, key=_rank)
        return [*best, last]

    def _all_ways(self, template, host, hops, bound):
        for source in self._sources((template,), host):
            way = self._fetch(template, host, source)
            if way.cost_s <= bound:
                yield way
        yield from self._built(template, host, (hops, math.inf), bound, ())

    def _built(self, target, host, state, bound, seen):
        """Ways that end in a patch to ``target``, no dearer than bound.

        Chains are followed from their end. ``state`` is the round that the
        patches so far are from and the position of the last of them: within
        a round, patches follow one another in the instance's order.
        """
        if not state[0]:
            return
        instance = self._instance
        for e in self._into.get(target, ()):
            base = int(instance.patch_base[e])
            if base in seen or base == target:
                continue
            size = float(instance.patch_sizes[e])
            before = earlier(state, e)
            for source in self._sources((base, target), host):
                seconds = self._seconds(size, host, source)
                seconds += float(instance.patch_seconds[e])
                if seconds > bound:
                    continue
                step = Step(base, target, source)
                wan = 0.0 if source else size
                for way in itertools.chain(
                    (
                        self._fetch(base, host, holder)
                        for holder in self._sources((base,), host)
                    ),
                    self._built(
                        base, host, before, bound - seconds, (*seen, target)
                    ),
                ):
                    if way.cost_s + seconds <= bound:
                        yield Way(
                            way.template_source,
                            base if way.base is None else way.base,
                            (*way.chain, step),
                            way.cost_s + seconds,
                            way.wan_mb + wan,
                        )

    def _sources(self, key, host):
        """Where an object can be read: holders of the site, repository."""
        sites = self._instance.sites
        for holder in self._holders.get(key, ()):
            if sites[holder - 1] == sites[host - 1]:
                yield holder
        yield instances.REPOSITORY

    def _fetch(self, template, host, source) -> Way:
        size = float(self._instance.sizes[template])
        seconds = self._seconds(size, host, source)
        return Way(source, None, (), seconds, 0.0 if source else size)

    def _seconds(self, size, host, source) -> float:
        links = self._instance.bandwidths
        if source == instances.REPOSITORY:
            link = links.repo
        else:
            link = links.local if source == host else links.peer
        return instances.fetch_seconds(size, float(link[host - 1]))


def earlier(state: tuple[int, float], patch: int) -> tuple[int, float]:
    """Where a chain may go on, backwards, once ``patch`` was used.

    :param state: the round, and the position that patches of this round
        have to be before
    :param patch: position of the patch in the instance
    :returns: the same for the patch before it; round 0 ends the chain
    """
    rounds, limit = state
    if rounds > 1 and patch < limit:
        return rounds, patch
    if rounds > 2:
        return rounds - 1, patch
    return 0, patch


def ranked_ways(
    instance: instances.Instance,
    placement: placements.Placement,
    template: int,
    host: int,
    hops: int = 1,
) -> list[Way]:
    """Ways for one request; see :meth:`LookupTable.ways`."""
    return LookupTable(instance, placement).ways(template, host, hops)


def _rank(way: Way) -> tuple:
    return way.cost_s, way.wan_mb, len(way.chain), way.template_source
