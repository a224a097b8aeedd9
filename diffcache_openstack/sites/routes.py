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
"""Routes by which a host can get an image, from the site map.

The finder of :mod:`diffcache_openstack.placement.ways` ranks them at the
moment of the request, by what is really held, rather than once for a plan.
"""

import dataclasses
import math

from diffcache_openstack.placement import ways
from diffcache_openstack.sites import views

# What [planner] hops goes up to.
MAX_HOPS = 4
# Routes that a failing request may try before the map has to change.
_MOST_ROUTES = 32


@dataclasses.dataclass(frozen=True)
class Part:
    """An object and the host it is to be read from."""

    key: views.Key
    host: str


@dataclasses.dataclass(frozen=True)
class Route:
    """One way to have an image at this host.

    :param source: where to read the image itself, or, if it is built, the
        base that the first patch is applied to
    :param patches: the patches, in the order in which they are applied
    :param seconds: predicted by the cost model
    :param through: content ids of what all patches but the last build
    """

    source: Part
    patches: tuple[Part, ...]
    seconds: float
    through: tuple[str, ...] = ()

    @property
    def builds(self) -> bool:
        """Whether the image is built rather than fetched whole."""
        return bool(self.patches)

    @property
    def parts(self) -> tuple[Part, ...]:
        """List what is read, and from where."""
        return (self.source, *self.patches)

    def describe(self) -> str:
        """Return the route in words, for logs and reports."""
        if not self.builds:
            return f'image from {self.source.host}'
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
                 hops: int = MAX_HOPS) -> None:
        self._held = held
        self._hops = hops
        self._network = _Network(view, own_name, held, excluded)

    def to_image(self, content_id: str) -> list[Route]:
        """List routes to an image, cheapest first.

        The last are the whole image from each repository that offers it;
        routes dearer than the cheapest of them are left out. The list is
        empty if neither repositories nor hosts offer what it takes.
        """
        key = _image(content_id)
        whole = [Route(Part(key, source.host), (), source.seconds)
                 for source in self._network.from_repositories(key)]
        most = whole[0].seconds if whole else math.inf
        found = [self._route(way) for way in ways.rank(
            self._network, content_id, self._limit(content_id), _MOST_ROUTES,
            most)]
        return [*(route for route in found if route not in whole), *whole]

    def cheapest_seconds(self, content_id: str) -> float:
        """Return the seconds of the cheapest route; infinite without any."""
        return ways.cheapest_seconds(
            self._network, content_id, self._limit(content_id))

    def to_object(self, key: views.Key) -> list[Part]:
        """List where a patch or manifest can be read, nearest first."""
        return [Part(key, name) for name in (
            *self._network.peers_with(key),
            *self._network.repositories_with(key))]

    def _limit(self, content_id: str) -> int:
        # Chains would hardly be cheaper than an image on this host's disk.
        if _image(content_id) in self._held:
            return min(1, self._hops)
        return self._hops

    def _route(self, way: ways.Way) -> Route:
        source = Part(_image(way.template), way.source)
        patches = tuple(
            Part(patch.key, host)
            for patch, host in zip(way.patches, way.patch_sources))
        through = tuple(patch.target for patch in way.patches[:-1])
        return Route(source, patches, way.seconds, through)


def local_seconds(view: views.SiteView, host: str, key: views.Key) -> float:
    """Return what the model predicts for an object that a host holds."""
    megabytes = (view.size_of(key) or 0) / views.MEGABYTE
    return ways.fetch_seconds(megabytes, view.links.of(host).local)


def _image(content_id: str) -> views.Key:
    return views.Key(views.IMAGES, content_id)


class _Network:
    """The site as seen from one host; see :class:`.ways.Network`.

    Images are content ids, patches those of the site map.
    """

    def __init__(self, view: views.SiteView, own_name: str,
                 held: frozenset[views.Key], excluded: frozenset) -> None:
        self._view = view
        self._own_name = own_name
        self._held = held
        self._excluded = excluded
        self._links = view.links.of(own_name)
        self._unreported: dict[str, list[views.PatchRef]] | None = None

    def steps_into(self, image: str, within: float) -> list[ways.Step]:
        index, links = self._index(), self._links
        near = index.from_peers(image)
        here = [step.patch for step in near if self._is_here(step.patch.key)]
        steps = [views.patch_step(patch, links.local)
                 for patch in (*here, *self._unreported_into(image))]
        steps += [step for step in views.steps_within(near, within)
                  if self._has_peer(step.patch.key)]
        for name in self._view.repositories:
            steps += [
                step for step in views.steps_within(index.from_repository(
                    image, links.from_repository(name)), within)
                if name in self._view.repositories_with(step.patch.key)
                and self._is_usable(name, step.patch.key)]
        return steps

    def _index(self) -> views.PatchIndex:
        return self._view.patches_into(self._links)

    def _unreported_into(self, image: str) -> list[views.PatchRef]:
        """List the patches to an image that are here but in no map yet."""
        if self._unreported is None:
            self._unreported = {}
            index, view = self._index(), self._view
            for key in self._held.difference(view.holders):
                patch = view.patch(key.id) \
                    if key.kind == views.PATCHES else None
                if patch is not None and patch in index \
                        and self._is_usable(self._own_name, key):
                    self._unreported.setdefault(
                        patch.target, []).append(patch)
        return self._unreported.get(image, [])

    def template_seconds(self, image: str) -> float:
        return min((seconds for seconds, _host in self._nearest(
            _image(image))), default=math.inf)

    def template_sources(self, image: str) -> list[ways.Source]:
        return self._sources(_image(image))

    def patch_sources(self, patch: views.PatchRef) -> list[ways.Source]:
        return self._sources(patch.key)

    def peers_with(self, key: views.Key) -> list[str]:
        """List the other hosts of the site that offer an object."""
        return [name for name in self._view.holders.get(key, ())
                if name != self._own_name and self._is_usable(name, key)]

    def repositories_with(self, key: views.Key) -> list[str]:
        """List the repositories that offer an object, the fastest first.

        If those that reported to hold it are not usable, any other may have
        it by now.
        """
        usable = [name for name in self._view.repositories
                  if self._is_usable(name, key)]
        if len(usable) < 2:
            return usable
        holders = self._view.repositories_with(key)
        return sorted([name for name in usable if name in holders] or usable,
                      key=self._rank)

    def _rank(self, repository):
        """Sort repositories that do not report to the conductor last."""
        return (not self._view.repositories[repository].alive,
                -self._links.from_repository(repository), repository)

    def from_repositories(self, key: views.Key) -> list[ways.Source]:
        """List the repositories that offer an object, the fastest first."""
        return [self._far(key, name) for name in self.repositories_with(key)]

    def _sources(self, key: views.Key) -> list[ways.Source]:
        links = self._links
        found = [self._source(key, name, links.peer)
                 for name in self.peers_with(key)]
        if self._is_here(key):
            found.insert(0, self._source(key, self._own_name, links.local))
        found += self.from_repositories(key)
        return sorted(found, key=lambda source: source.seconds)

    def _source(self, key, name, mbps) -> ways.Source:
        megabytes = (self._view.size_of(key) or 0) / views.MEGABYTE
        return ways.Source(ways.fetch_seconds(megabytes, mbps), name)

    def _far(self, key, name) -> ways.Source:
        """Return a repository as a source, from which forms may cross."""
        megabytes = (self._view.wire_size_of(key) or 0) / views.MEGABYTE
        return ways.Source(ways.fetch_seconds(
            megabytes, self._links.from_repository(name)), name)

    def _nearest(self, key: views.Key) -> list[ways.Source]:
        """List a source of each kind that there is; peers are not named."""
        links = self._links
        found = []
        if self._is_here(key):
            found.append(self._source(key, self._own_name, links.local))
        if self._has_peer(key):
            found.append(self._source(key, None, links.peer))
        return found + self.from_repositories(key)

    def _has_peer(self, key: views.Key) -> bool:
        if not self._excluded and key not in self._held:
            return key in self._view.holders
        return bool(self.peers_with(key))

    def _is_here(self, key: views.Key) -> bool:
        return key in self._held and self._is_usable(self._own_name, key)

    def _is_usable(self, host: str, key: views.Key) -> bool:
        return not self._excluded or (
            (host, key) not in self._excluded
            and (host, None) not in self._excluded)
