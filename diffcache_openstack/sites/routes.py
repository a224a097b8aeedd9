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
"""Ways to bring a template to this host, from the site map, cheapest first.

This is the paper's lookup table (section III-B), asked at the moment of the
request with what is really held, rather than stored with the plan. Chains of
patches are looked for beside it.
"""

import dataclasses
import functools
import math

import numpy as np

from diffcache_openstack.placement import instance as instances
from diffcache_openstack.placement import lookup
from diffcache_openstack.placement import placement as placements
from diffcache_openstack.sites import chains
from diffcache_openstack.sites import view as views

MEGABYTE = 1e6
# Sizes of zero are no valid instance; an all-zero template costs next to
# nothing to bring.
SMALLEST_MB = 1e-6
# Stands for a repository that is not reachable: every other way is cheaper.
UNREACHABLE_MBPS = 1e-6


@dataclasses.dataclass(frozen=True)
class Part:
    """An object and the host it is to be read from."""

    key: views.Key
    host: str


@dataclasses.dataclass(frozen=True)
class Route:
    """One way to make a template here.

    :param source: where to read the template itself, or, if it is built, the
        base that the first patch is applied to
    :param patches: the patches, in the order in which they are applied
    :param seconds: what the cost model predicts
    :param through: content ids of what all patches but the last make
    """

    source: Part
    patches: tuple[Part, ...]
    seconds: float
    through: tuple[str, ...] = ()

    @property
    def builds(self) -> bool:
        """Whether the template is built, and not read as it is."""
        return bool(self.patches)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is read, from where."""
        return (self.source, *self.patches)

    def describe(self) -> str:
        """In words, for logs and reports."""
        if not self.builds:
            return f'template from {self.source.host}'
        return ', '.join([
            f'base {self.source.key.id[:12]} from {self.source.host}',
            *(f'patch {p.key.id[:12]} from {p.host}' for p in self.patches)])


class Routes:
    """Routes for one host under one view of the site.

    :param view: the site map
    :param own_name: this host
    :param held: what this host really holds, whatever the map says
    :param excluded: (host, key) pairs, or (host, None) for whole hosts, that
        were found unusable
    :param hops: patches that may be applied one after another
    """

    def __init__(self, view: views.SiteView, own_name: str,
                 held: frozenset[views.Key],
                 excluded: frozenset = frozenset(),
                 hops: int = chains.MAX_HOPS) -> None:
        self._view = view
        self._own_name = own_name
        self._held = held
        self._excluded = excluded
        self._hops = hops
        own = views.HostRef(own_name, 'compute', '', True, held)
        others = [h for h in view.compute_hosts()
                  if h.name != own_name and h.alive
                  and (h.name, None) not in excluded]
        self._hosts = [own, *others]

    def to_template(self, content_id: str) -> list[Route]:
        """Routes to a template, cheapest first.

        Empty only if nothing is left: the repository excluded, and no host
        that holds what it takes.
        """
        found = self._in_one_step(content_id)
        if views.Key(views.TEMPLATES, content_id) not in self._held:
            found = sorted([*found, *self._in_steps(content_id)],
                           key=lambda route: route.seconds)
        return [route for route in found if self._usable(route)]

    def to_object(self, key: views.Key) -> list[Part]:
        """Where a patch or manifest can be read, nearest first."""
        holders = [h.name for h in self._hosts[1:] if key in h.holdings]
        repository = self._repository_name()
        if repository is not None:
            holders.append(repository)
        return [Part(key, name) for name in holders
                if (name, key) not in self._excluded
                and (name, None) not in self._excluded]

    def _in_one_step(self, content_id: str) -> list[Route]:
        """Fetched, or built with one patch."""
        patches = self._view.patches_into.get(content_id, ())
        contents = [content_id, *(p.base for p in patches)]
        sizes = [self._megabytes(views.Key(views.TEMPLATES, content))
                 for content in contents]
        number = {content: n for n, content in enumerate(contents)}
        target = views.Key(views.TEMPLATES, content_id)
        instance = self._instance(sizes, patches, number, target)
        placement = self._placement(contents, patches, number)
        ways = lookup.ranked_ways(instance, placement, 0, 1)
        by_base = {number[p.base]: p for p in patches}
        return [self._route(way, contents, by_base) for way in ways]

    def _in_steps(self, content_id: str) -> list[Route]:
        """Built with several patches, for less than the WAN would cost."""
        target = views.Key(views.TEMPLATES, content_id)
        limit = math.inf
        if self._offered_by_repository(target):
            limit = self._transfer_seconds(target, self._view.links.repo)
        found = chains.to_template(self._view, content_id,
                                   functools.cache(self._seconds), limit,
                                   self._hops)
        return [self._chained(chain) for chain in found]

    def _chained(self, chain: chains.Chain) -> Route:
        # A chain costs something finite only if all its parts are offered.
        source, *patches = (
            part for part in map(self._nearest, (
                views.Key(views.TEMPLATES, chain.base),
                *(views.Key(views.PATCHES, patch.id)
                  for patch in chain.patches)))
            if part is not None)
        return Route(source, tuple(patches), chain.seconds, chain.through)

    def _nearest(self, key: views.Key) -> Part | None:
        """Where an object is read fastest; None if nobody offers it."""
        for host in self._hosts:
            if self._offers(host, key):
                return Part(key, host.name)
        if self._offered_by_repository(key):
            return Part(key, self._repository_name() or '')
        return None

    def _seconds(self, key: views.Key) -> float:
        """To bring an object here; infinite if nobody offers it."""
        part = self._nearest(key)
        if part is None:
            return math.inf
        links = self._view.links
        if part.host == self._own_name:
            return self._transfer_seconds(key, links.local)
        from_repository = part.host == self._repository_name()
        return self._transfer_seconds(
            key, links.repo if from_repository else links.peer)

    def _transfer_seconds(self, key: views.Key, mbps: float) -> float:
        return instances.fetch_seconds(self._megabytes(key), mbps)

    def _instance(self, sizes, patches, number, target) -> instances.Instance:
        hosts = len(self._hosts)
        links = self._view.links
        repo = links.repo if self._offered_by_repository(target) \
            else UNREACHABLE_MBPS
        return instances.Instance(
            sizes=np.array(sizes),
            patch_base=np.array([number[p.base] for p in patches], dtype=int),
            patch_target=np.zeros(len(patches), dtype=int),
            patch_sizes=np.array([p.size / MEGABYTE for p in patches]),
            patch_seconds=np.array([p.apply_seconds for p in patches]),
            capacities=np.zeros(hosts),
            rates=np.zeros((len(sizes), hosts)),
            bandwidths=instances.Bandwidths.uniform(
                hosts, links.local, links.peer, repo))

    def _placement(self, contents, patches, number) -> placements.Placement:
        held_templates, held_patches = [], []
        for place, host in enumerate(self._hosts, start=1):
            held_templates += [
                (number[content], place) for content in contents
                if self._offers(host, views.Key(views.TEMPLATES, content))]
            held_patches += [
                (number[p.base], 0, place) for p in patches
                if self._offers(host, views.Key(views.PATCHES, p.id))]
        return placements.Placement.of(held_templates, held_patches)

    def _route(self, way, contents, by_base) -> Route:
        if way.base is None:
            key = views.Key(views.TEMPLATES, contents[0])
            return Route(self._part(key, way.template_source), (),
                         way.cost_s)
        base = views.Key(views.TEMPLATES, contents[way.base])
        patch = views.Key(views.PATCHES, by_base[way.base].id)
        return Route(self._part(base, way.template_source),
                     (self._part(patch, way.patch_source),), way.cost_s)

    def _part(self, key: views.Key, place: int) -> Part:
        if place == instances.REPOSITORY:
            return Part(key, self._repository_name() or '')
        return Part(key, self._hosts[place - 1].name)

    def _usable(self, route: Route) -> bool:
        return all(
            part.host and (part.host, part.key) not in self._excluded
            and (part.host, None) not in self._excluded
            for part in route.parts)

    def _offers(self, host: views.HostRef, key: views.Key) -> bool:
        return (key in host.holdings
                and (host.name, key) not in self._excluded)

    def _megabytes(self, key: views.Key) -> float:
        return max((self._view.size_of(key) or 0) / MEGABYTE, SMALLEST_MB)

    def _repository_name(self) -> str | None:
        repository = self._view.repository()
        return repository.name if repository else None

    def _offered_by_repository(self, key: views.Key) -> bool:
        name = self._repository_name()
        return (name is not None and (name, None) not in self._excluded
                and (name, key) not in self._excluded)
