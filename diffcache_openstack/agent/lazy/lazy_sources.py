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
"""Where diffcached reads an image that is still arriving."""

import collections.abc
import typing

from diffcache_openstack.agent.images import site_sources
from diffcache_openstack.agent.images import site_transfers
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views

# Bases with their patches that are named: one, and what to do without it.
MOST_BUILDS = 3
# That diffcached takes of an image.
MOST_SOURCES = 32

Document = dict[str, typing.Any]


class ImageSources:
    """Finds sources of images, as diffcached takes them.

    Their order depends on what hosts have, and not on how fast links are at
    the moment: diffcached starts a new worker when it changes.

    :param host: this host's state
    :param transfers: knows the repositories
    :param routes_of: what this host may read from
    """

    def __init__(self, host: host_state.HostState,
                 transfers: site_transfers.Transfers,
                 routes_of: site_sources.Sources) -> None:
        self._host = host
        self._transfers = transfers
        self._routes = routes_of

    def of(self, key: views.Key) -> list[Document]:
        """Return where content is, the cheapest first.

        Hosts of the site that have it, bases of the site with patches from
        them, then repositories: at most MOST_SOURCES, a repository among them
        if there is one.
        """
        near = _present([*map(self._whole, self._near(key)),
                         *self._builds(key)])
        far = _present(map(self._whole, self._repositories(key)))
        return [*near[:MOST_SOURCES - len(far[:1])], *far][:MOST_SOURCES]

    def _near(self, key: views.Key) -> list[str]:
        avoided = self._transfers.avoided()
        peers = [host.name for host
                 in self._host.site_map.current().compute_hosts()
                 if key in host.holdings and host.alive
                 and host.name != self._host.name
                 and host.name not in avoided]
        # A fill of the plan may have been faster.
        own = [self._host.name] if key in self._host.held else []
        return own + peers

    def _repositories(self, key: views.Key) -> list[str]:
        view = self._host.site_map.current()
        links = view.links.of(self._host.name)
        return sorted(view.repositories_with(key),
                      key=links.from_repository, reverse=True)

    def _whole(self, name: str) -> Document | None:
        host = self._host.site_map.current().host(name)
        if host is None or not host.url:
            return None
        return {'peer': host.url, 'wan': self._transfers.is_repository(name)}

    def _builds(self, key: views.Key) -> list[Document | None]:
        """Return bases of the site, each with patches that make content.

        They are those routes of a request that are cheaper than the whole
        image over the WAN.
        """
        found = [route for route
                 in self._routes.lookup_table().to_image(key.id)
                 if route.builds
                 and not self._transfers.is_repository(route.source.host)]
        return [self._build(route) for route
                in sorted(found, key=self._rank)[:MOST_BUILDS]]

    def _rank(self, route: routes.Route) -> tuple[typing.Any, ...]:
        """Sort by the bytes that cross the WAN, then by the distance."""
        view = self._host.site_map.current()
        wan_bytes = sum(view.wire_size_of(patch.key) or 0
                        for patch in route.patches
                        if self._transfers.is_repository(patch.host))
        return (wan_bytes, len(route.patches),
                route.source.host != self._host.name,
                [(part.host, part.key.id) for part in route.parts])

    def _build(self, route: routes.Route) -> Document | None:
        parts = [self._part(part) for part in route.parts]
        if None in parts:
            return None
        base, *through, patch = parts
        build: Document = {'base': base, 'patch': patch}
        return {**build, 'through': through} if through else build

    def _part(self, part: routes.Part) -> Document | None:
        whole = self._whole(part.host)
        return None if whole is None else {**whole, 'id': part.key.id}


def _present(sources: collections.abc.Iterable[Document | None]
             ) -> list[Document]:
    return [source for source in sources if source is not None]


def differ(fresh: list[Document], used: list[Document]) -> bool:
    """Return whether sources are others than diffcached lists.

    :param fresh: as :meth:`ImageSources.of` returns them
    :param used: of the status of an image
    """
    return [_place(each, 'peer') for each in fresh] \
        != [_place(each, 'url') for each in used]


def _place(source: Document, url: str) -> typing.Any:
    if 'base' in source:
        return source['base'], source.get('through', []), source['patch']
    return source[url]
