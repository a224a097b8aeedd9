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
"""Replay the history of a site as it would have been with other caches.

What is simulated: which servers found their image on their host as Nova keeps
it, and from where the others had it, by the cost model and the solver of
placement. Links are not shared: each transfer has its whole bandwidth, which
favours what transfers most.
"""

import collections
import collections.abc
import dataclasses
import itertools
import math
import typing

import numpy as np

from diffcache_openstack.common import units
from diffcache_openstack.placement import demand
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import lookup
from diffcache_openstack.placement import objectives
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import replan
from diffcache_openstack.placement.solvers import auto
from diffcache_openstack.placement import ways
from diffcache_openstack.planning import histories
from diffcache_openstack.planning import model

DAY = model.SECONDS_PER_DAY
# What images come from: Glance each time, Glance's cache at the site, this
# suite without and with patches.
NOVA, GLANCE_CACHE, TEMPLATES, PATCHES = WAYS = (
    'nova', 'glance-cache', 'templates', 'patches')
# Nova removes base files that no server had for so long, by default.
_UNUSED_S = DAY
# Neighbours in age of which a family has patches, before and after.
_NEAREST = 4


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """What a history does not say.

    :param wan_mbps: from Glance to the hosts of a site
    :param lan_mbps: between the hosts of a site
    :param disk_mbps: at which a host reads and writes images
    :param capacity_bytes: for templates and patches on each host
    :param patch_share: bytes of a patch between images of a family, as a
        share of its target
    :param hops: patches that may be applied one after another
    :param objective: of plans, one of :data:`.objectives.OBJECTIVES`
    :param time_limit: seconds for each plan
    """

    wan_mbps: float = 20.0
    lan_mbps: float = 1000.0
    disk_mbps: float = 4000.0
    capacity_bytes: int = 100_000_000_000
    patch_share: float = 0.2
    hops: int = 1
    objective: str = 'seconds'
    time_limit: float = 0.2

    def at(self, site: histories.Site) -> 'Assumptions':
        """Return them with what is known of a site."""
        return dataclasses.replace(self, **site.settings)  # type: ignore


class Need(typing.NamedTuple):
    """A server whose host does not have its image any more, or not yet."""

    time_s: float
    host: int
    image: int


@dataclasses.dataclass
class Outcome:
    """What one site took one way.

    :param waits: seconds of each server that needed its image
    :param held: most bytes in the cache of a host; of Glance's for its cache
    """

    servers: int
    waits: list[float] = dataclasses.field(default_factory=list)
    wan_bytes: int = 0
    held: int = 0

    def serve(self, seconds: float, wan_bytes: float = 0) -> None:
        """Count a server that waited."""
        self.waits.append(seconds)
        self.wan_bytes += round(wan_bytes)


def needs(servers: collections.abc.Iterable[histories.Server]
          ) -> list[Need]:
    """List the servers for which Nova asks for an image.

    :param servers: the first to begin comes first
    """
    kept: dict[tuple[int, int], float] = {}
    found = []
    for server in servers:
        key = server.host, server.image
        if kept.get(key, -math.inf) < server.begin_s:
            found.append(Need(server.begin_s, server.host, server.image))
        kept[key] = max(kept.get(key, -math.inf),
                        max(server.begin_s, server.end_s) + _UNUSED_S)
    return found


def replay(history: histories.History, site: histories.Site, way: str,
           assumptions: Assumptions) -> Outcome:
    """Replay one site.

    :param way: one of ``WAYS``
    """
    known = assumptions.at(site)
    outcome = Outcome(len(site.servers))
    if way in (NOVA, GLANCE_CACHE):
        _download(history, site, known, outcome, way == GLANCE_CACHE)
    else:
        _Cached(history, site, known, way == PATCHES).run(outcome)
    return outcome


def _download(history, site, known, outcome, once):
    """Have each image from Glance: each time, or once for the site."""
    there = set()
    for need in needs(site.servers):
        size = history.images[need.image].size
        near = need.image in there
        link = known.lan_mbps if near else known.wan_mbps
        outcome.serve(ways.fetch_seconds(size / units.MB, link),
                      0 if near else size)
        if once:
            there.add(need.image)
    outcome.held = sum(history.images[image].size for image in there)


class _Cached:
    """A site with this suite.

    At the end of each day a plan is made of what was asked for until then,
    and hosts fetch what they can within a day. What a server needed is kept
    beside the plan while there is room, the last one used longest.
    """

    def __init__(self, history: histories.History, site: histories.Site,
                 known: Assumptions, with_patches: bool):
        self._history, self._known = history, known
        self._needs = needs(site.servers)
        self._hosts = len(site.hosts)
        self._sizes = np.array([image.size for image in history.images])
        self._patches = _patches(history, known) if with_patches else {}
        self._planned = placements.Placement()
        # Images beside the plan, by host: what was used last comes last.
        self._extras: list[collections.OrderedDict[int, None]] = [
            collections.OrderedDict() for _ in range(self._hosts)]
        self._arrivals: list[demand.Arrival] = []

    def run(self, outcome):
        """Replay all days with needs."""
        for day, group in itertools.groupby(
                self._needs, lambda need: need.time_s // DAY):
            end = (day + 1) * DAY
            instance = self._instance(end)
            for need in group:
                self._serve(instance, need, outcome)
                self._arrivals.append(demand.Arrival(
                    need.time_s, need.image, need.host))
            outcome.wan_bytes += self._plan(instance, end)
            outcome.held = max(outcome.held, *(
                int(bytes_) for bytes_ in placements.used(
                    instance, self._held())))

    def _instance(self, end):
        """Return the site with the images that there are at a time."""
        count = sum(image.created_s < end for image in self._history.images)
        count = max([count, *(need.image + 1 for need in self._needs
                              if need.time_s < end)])
        pairs = [pair for pair in self._patches if max(pair) < count]
        sizes = np.array([self._patches[pair] for pair in pairs], dtype=float)
        targets = np.array([pair[1] for pair in pairs], dtype=np.int64)
        known, megabytes = self._known, self._sizes[:count] / units.MB
        return instances.Instance(
            sizes=megabytes, patch_sizes=sizes / units.MB,
            patch_base=np.array([pair[0] for pair in pairs], dtype=np.int64),
            patch_target=targets,
            patch_seconds=model.PATCH_SECONDS + ways.fetch_seconds(
                megabytes[targets], known.disk_mbps),
            capacities=np.full(self._hosts, known.capacity_bytes / units.MB),
            rates=np.zeros((count, self._hosts)),
            bandwidths=instances.Bandwidths.uniform(
                self._hosts, known.disk_mbps, known.lan_mbps, known.wan_mbps))

    def _serve(self, instance, need, outcome):
        seconds, crossed = self._crossing(
            instance, self._held(), need.image, need.host)
        outcome.serve(seconds, crossed * units.MB)
        self._keep(instance, need)

    def _crossing(self, instance, held, image, host):
        """Return the seconds and the MB from the WAN of an image."""
        way = lookup.LookupTable(instance, held).ways(
            image, host, self._known.hops, limit=1)[0]
        crossed = sum(patch.size for patch, source
                      in zip(way.patches, way.patch_sources)
                      if source == instances.REPOSITORY)
        if way.source == instances.REPOSITORY:
            crossed += instance.sizes[way.template]
        return way.seconds, crossed

    def _keep(self, instance, need):
        extras = self._extras[need.host - 1]
        if (need.image, need.host) not in self._planned.templates:
            extras[need.image] = None
            extras.move_to_end(need.image)
        self._make_room(instance, need.host)

    def _make_room(self, instance, host):
        extras = self._extras[host - 1]
        while extras and placements.used(instance, self._held())[host - 1] \
                > instance.usable_bytes()[host - 1]:
            extras.popitem(last=False)

    def _held(self):
        beside = ((image, host) for host, extras in enumerate(self._extras, 1)
                  for image in extras)
        return dataclasses.replace(
            self._planned, templates=self._planned.templates.union(beside))

    def _plan(self, instance, now):
        """Make the plan of the next days; return the bytes from the WAN."""
        held = self._held()
        rates = demand.rates(
            self._arrivals, now, instance.rates.shape, model.FORECAST,
            demand.families(instance.template_count, instance.patch_base,
                            instance.patch_target))
        instance = dataclasses.replace(
            instance, rates=rates, placed=instances.Held(
                tuple(sorted(held.templates)), tuple(sorted(held.patches))))
        hops, wanted = self._known.hops, self._solve(instance)
        objective = objectives.OBJECTIVES[self._known.objective]
        wanted = replan.leave_out_late(
            instance, wanted, auto.losses(objective.priced(instance), wanted,
                                          hops),
            replan.Terms(horizon_s=DAY))
        crossed = self._fill(instance, wanted)
        self._planned = wanted
        for host, extras in enumerate(self._extras, 1):
            for image in [each for each in extras
                          if (each, host) in wanted.templates]:
                del extras[image]
            self._make_room(instance, host)
        return crossed

    def _solve(self, instance):
        """Return the placement of a new plan, if it is worth its moves."""
        known, terms = self._known, replan.Terms()
        objective = objectives.OBJECTIVES[known.objective]
        found = objective.solve(
            instance, terms,
            lambda priced, its_terms, seconds: replan.solve(
                priced, its_terms, time_limit=seconds, hops=known.hops),
            time_limit=known.time_limit, hops=known.hops)
        if objective.worth(instance, replan.current(instance), found, terms,
                           known.hops):
            return found.placement
        return self._planned

    def _fill(self, instance, wanted):
        """Return the bytes from the WAN for what a plan brings to hosts."""
        held, crossed = self._held(), 0.0
        for move in replan.moves(instance, wanted):
            if move.source == instances.REPOSITORY:
                crossed += move.megabytes if len(move.key) == 2 else \
                    self._crossing(instance, held, move.key[0], move.host)[1]
            if len(move.key) == 1:
                held = dataclasses.replace(held, templates=held.templates |
                                           {(move.key[0], move.host)})
            else:
                held = dataclasses.replace(held, patches=held.patches |
                                           {(*move.key, move.host)})
        return round(crossed * units.MB)


def _patches(history, known):
    """Return the bytes of the patches of each family, by (base, target)."""
    families: dict[str, list[int]] = {}
    for number, image in enumerate(history.images):
        if image.family is not None:
            families.setdefault(image.family, []).append(number)
    found = dict(history.patches)
    for members in families.values():
        for at, target in enumerate(members):
            for base in members[max(0, at - _NEAREST):at + _NEAREST + 1]:
                if base != target:
                    found.setdefault((base, target), max(1, round(
                        known.patch_share * history.images[target].size)))
    return found
