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
"""Costs of bringing an image to this host, in the current state of the site.

The same look-up that a request makes, without going any way.
"""

import dataclasses

from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.agent.images import site_sources
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views

_LEAF = 64 << 10
_HASH = 32

# Ways: no host offers it, this host has it, another host of the site has it,
# it is built from a base and patches, or it crosses the WAN whole.
NONE, LOCAL, PEER = 'none', 'local', 'peer'
BUILD, REPOSITORY = 'build', 'repository'


@dataclasses.dataclass(frozen=True)
class ImageCost:
    """Of an image's raw content, or of its file.

    :param way: NONE, LOCAL, PEER, BUILD or REPOSITORY
    :param seconds: what the cost model predicts
    :param wan_bytes: what would cross the WAN
    :param at_site: whether it can be had without the WAN
    :param arriving: whether it is just being made here
    """

    way: str
    seconds: float
    wan_bytes: int
    at_site: bool
    arriving: bool


class ImageCosts:
    """Looks up what images cost at one host.

    :param sources: what this host may read from
    :param host: this host's state
    :param flights: single flight of this host
    """

    def __init__(self, sources: site_sources.Sources,
                 host: host_state.HostState,
                 flights: single_flight.SingleFlight) -> None:
        self._sources = sources
        self._held = host.held
        self._single_flight = flights
        self._view = host.site_map.current

    def content(self, image: views.ImageRef) -> ImageCost:
        """Estimate the cost of the raw content."""
        key = views.Key(views.IMAGES, image.content_id)
        found = self._sources.lookup_table().to_image(key.id)
        arriving = self._single_flight.is_under_way(key)
        if not found:
            return ImageCost(NONE, 0.0, 0, False, arriving)
        wan_bytes = self._behind_wan(found[0])
        manifest = views.Key(views.MANIFESTS, key.id)
        # That of a build is computed from its patch.
        if not (self.offered_here(manifest) or found[0].builds):
            wan_bytes += image.size // _LEAF * _HASH
        # The cheapest way may use the WAN although there is another one.
        at_site = self.offered_here(manifest) and any(
            not self._behind_wan(route) for route in found)
        return ImageCost(self._way(found[0]), found[0].seconds, wan_bytes,
                         at_site, arriving)

    def file(self, image: views.ImageRef, content: ImageCost
             ) -> ImageCost:
        """Estimate the cost of the file that Glance has.

        :param content: what the raw content costs
        """
        if image.form_id is None:
            return content
        recipe = views.Key(views.RECIPES, image.form_id)
        if self.offered_here(recipe):
            return content
        return dataclasses.replace(
            content, wan_bytes=content.wan_bytes + image.form_size,
            at_site=False)

    def planned(self, image: views.ImageRef) -> bool:
        """Return whether the plan fetches the content over the WAN anyway.

        Or did: what is held counts as well.
        """
        return self._held.wants(
            views.Key(views.IMAGES, image.content_id))

    def repositories(self) -> frozenset[str]:
        """Return the names of hosts beyond the WAN."""
        return frozenset(
            host.name for host in self._view().hosts
            if host.role == views.REPOSITORY_ROLE
            and not self._sources.is_own(host.name))

    def offered_here(self, key: views.Key) -> bool:
        """Return whether this host or a peer has an object."""
        return key in self._held.readable() or any(
            part.host not in self.repositories()
            for part in self._sources.lookup_table().to_object(key))

    def _behind_wan(self, route: routes.Route) -> int:
        behind, view = self.repositories(), self._view()
        return sum(max(1, view.wire_size_of(part.key) or 0)
                   for part in route.parts if part.host in behind)

    def _way(self, route: routes.Route) -> str:
        if route.builds:
            return BUILD
        if self._sources.is_own(route.source.host):
            return LOCAL
        behind = route.source.host in self.repositories()
        return REPOSITORY if behind else PEER
