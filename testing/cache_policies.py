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
"""Planned placements against cache policies, request by request.

The policies are what one would run without this suite: every host keeps whole
requested templates and evicts by recency (LRU), frequency (LFU)
or frequency times cost over size with ageing (GDSF). A miss reads from a peer
that has the template, else from the repository, as ours does. All have the
same space.
"""

import abc
import collections
import dataclasses

import numpy as np

from diffcache_openstack.placement import cost
from diffcache_openstack.placement import demand
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import replan
from diffcache_openstack.placement import ways


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of serving a trace.

    :param service_s: seconds of each request after the warm-up
    :param move_s: seconds of transfers after the warm-up that no request
        waited for
    """

    name: str
    service_s: np.ndarray
    move_s: float = 0.0

    @property
    def mean_s(self) -> float:
        """Mean seconds per request, with its share of the transfers.

        A cache fetches while a request waits, a plan before. With both
        counted, neither has its transfers for nothing.
        """
        return float(self.service_s.mean()) + self.move_s / len(self.service_s)


class Cache(abc.ABC):
    """One host's cache of whole templates, of this many bytes."""

    def __init__(self, capacity: int):
        self._free = capacity
        self._capacity = capacity
        self._held: dict[int, int] = {}

    def __contains__(self, template: int) -> bool:
        return template in self._held

    def request(self, template: int, size: int, seconds: float) -> None:
        """Note a request, and hold its template if it can ever fit.

        :param size: of the template, in bytes
        :param seconds: what fetching the template takes
        """
        self._note(template, size, seconds)
        if template in self._held or size > self._capacity:
            return
        while self._free < size:
            victim = min(self._held, key=self._rank)
            self._free += self._held.pop(victim)
            self._evicted(victim)
        self._held[template] = size
        self._free -= size

    @abc.abstractmethod
    def _note(self, template, size, seconds) -> None:
        """Update what ranks are made of."""

    @abc.abstractmethod
    def _rank(self, template) -> tuple:
        """Rank a template; the one with the lowest rank is evicted first."""

    def _evicted(self, template) -> None:
        """Note that a template was evicted."""


class Lru(Cache):
    """Evicts what was requested longest ago."""

    def __init__(self, capacity):
        super().__init__(capacity)
        self._clock = 0
        self._last = {}

    def _note(self, template, size, seconds):
        self._clock += 1
        self._last[template] = self._clock

    def _rank(self, template):
        return (self._last[template],)


class Lfu(Lru):
    """Evicts what was requested least, the oldest of those."""

    def __init__(self, capacity):
        super().__init__(capacity)
        self._count = collections.Counter()

    def _note(self, template, size, seconds):
        super()._note(template, size, seconds)
        self._count[template] += 1

    def _rank(self, template):
        return self._count[template], self._last[template]


class Gdsf(Lfu):
    """Evicts by frequency times cost over size, aged by what was evicted."""

    def __init__(self, capacity):
        super().__init__(capacity)
        self._age = 0.0
        self._worth = {}

    def _note(self, template, size, seconds):
        super()._note(template, size, seconds)
        value = self._count[template] * seconds / size
        self._worth[template] = self._age + value

    def _rank(self, template):
        return self._worth[template], self._last[template]

    def _evicted(self, template):
        self._age = self._worth[template]


CACHES = {'LRU': Lru, 'LFU': Lfu, 'GDSF': Gdsf}
# Moves weigh more than in a site: the results count their seconds in full.
_TERMS = replan.Terms(horizon_s=86400.0, move_weight=0.1, least_saving=0.01)


@dataclasses.dataclass(frozen=True)
class Replay:
    """A trace and how it is replayed.

    :param instance: catalogue, hosts and links; its rates are not read
    :param requests: the trace, in order of time
    :param epoch_s: seconds between plans
    :param warm_up_s: requests before this are served but not counted
    """

    instance: instances.Instance
    requests: tuple[demand.Arrival, ...]
    epoch_s: float
    warm_up_s: float


def with_cache(replay: Replay, name: str) -> Result:
    """Serve the trace with one of :data:`CACHES` on every host."""
    instance = replay.instance
    links = instance.bandwidths
    caches = [CACHES[name](c) for c in instance.usable_bytes().tolist()]
    sizes = instances.to_bytes(instance.sizes).tolist()
    taken = []
    for request in replay.requests:
        column = request.host - 1
        size = float(instance.sizes[request.template])
        near = any(
            request.template in cache
            for other, cache in enumerate(caches)
            if instance.sites[other] == instance.sites[column]
        )
        far_s = ways.fetch_seconds(size, float(links.repo[column]))
        if request.template in caches[column]:
            link = links.local
        else:
            link = links.peer if near else links.repo
        taken.append(ways.fetch_seconds(size, float(link[column])))
        caches[column].request(request.template, sizes[request.template],
                               far_s)
    return _result(replay, name, taken)


def planned(replay: Replay, name: str, model: demand.Model = demand.Model(),
            terms: replan.Terms = _TERMS, **options) -> Result:
    """Serve the trace from placements planned every epoch from its past.

    What a plan moves is there from its epoch's start, and counted in full.

    :param options: those of the solver
    """
    instance = replay.instance
    shape = (instance.template_count, instance.host_count)
    family = demand.families(shape[0], instance.patch_base,
                             instance.patch_target)
    held = instances.Held()
    seconds = np.empty(shape)
    taken, until, seen, moved = [], 0.0, [], 0.0
    for request in replay.requests:
        if request.time_s >= until:
            until = (request.time_s // replay.epoch_s + 1) * replay.epoch_s
            now = dataclasses.replace(
                instance,
                rates=demand.rates(seen, request.time_s, shape, model, family),
                placed=held,
            )
            found = replan.replan(now, terms, **options)
            placement = found.placement
            if request.time_s >= replay.warm_up_s:
                moved += sum(move.seconds for move in found.moves)
            held = instances.Held(tuple(sorted(placement.templates)),
                                  tuple(sorted(placement.patches)))
            seconds = cost.service_seconds(now, placement,
                                           options.get('hops', 1))
        taken.append(float(seconds[request.template, request.host - 1]))
        seen.append(request)
    return dataclasses.replace(_result(replay, name, taken), move_s=moved)


def compare(replay: Replay, **options) -> list[Result]:
    """Compare planning, planning of templates only, and the policies."""
    whole = dataclasses.replace(replay,
                                instance=replay.instance.without_patches())
    return [planned(replay, 'planned', **options),
            planned(whole, 'templates only', **options),
            *(with_cache(replay, name) for name in CACHES)]


def _result(replay, name, taken) -> Result:
    counted = [
        seconds
        for request, seconds in zip(replay.requests, taken)
        if request.time_s >= replay.warm_up_s
    ]
    return Result(name, np.array(counted))
