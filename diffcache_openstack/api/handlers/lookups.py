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
"""Lookups: the ways for a host to get an image, and their costs."""

import typing

from diffcache_openstack.api import fields
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import lookups as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import lookups as schemas
from diffcache_openstack.common import exceptions
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.views import host_views
from diffcache_openstack.db.views import image_views
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.sites import lazy_boots
from diffcache_openstack.sites import routes

TABLE = routing.Table()
_WAYS = 10
# Hosts in one page: the ways of each are computed anew.
_MOST_HOSTS = 100


@TABLE.route('GET', '/v1/lookups', policy=policies.SHOW,
             query=schemas.QUERY, shows=fields.OPERATORS,
             response=schemas.SHOW)
def show_lookup(request: requests.Request) -> dict[str, typing.Any]:
    """Show the ways for a host to get an image, cheapest first.

    They are those that the host's agent would try, in that order, by what is
    known to be held where. ``lazy_boot`` is what a lazy boot from the image
    waits for on the host.
    """
    name = request.parameters['host']
    source = _Source(request, request.read(_site_of, name),
                     request.parameters['image_id'])
    shown = source.lookup(name, request.parameters.get('limit', _WAYS))
    return {'lookup': shown}


@TABLE.route('GET', '/v1/images/<image_id>/lookups',
             policy=policies.SHOW, query=schemas.LIST_QUERY,
             shows=fields.OPERATORS, response=schemas.LIST)
def list_lookups(request: requests.Request, image_id: str
                 ) -> dict[str, typing.Any]:
    """List the cheapest way to get an image for each living host, by host.

    An entry is as ``GET /v1/lookups`` shows it for a compute host, with one
    way. A page has 100 hosts at most.
    """
    request.look(image_views.get_image, request.viewer, image_id)
    page = request.page
    part = request.look(
        host_views.list_hosts,
        {**request.filters(), 'role': objects.COMPUTE, 'alive': True},
        page._replace(limit=min(page.limit, _MOST_HOSTS)))
    sources = {site: _Source(request, site, image_id)
               for site in {host['site'] for host in part.entries}}
    return paging.document(request, 'lookups', part._replace(entries=[
        sources[host['site']].lookup(host['name'], 1)
        for host in part.entries]))


class _Source:
    """What hosts of a site get an image from, and what boots read of it.

    :raises NotFound: the site's map has no such image
    """

    def __init__(self, request: requests.Request, site: str,
                 image_id: str):
        self._view = request.services.site_maps.view(site)
        self._image = self._view.image(image_id)
        conf = request.services.conf
        self._reads = request.read(
            boot_sets.reads, site, boot_sets.BootContent(
                self._image.content_id, self._image.size,
                conf.lazy.threshold), versioned.now())
        self._site = site
        self._hops = conf.planner.hops

    def lookup(self, name, limit):
        """Return the cheapest ways of a host, and what a lazy boot takes."""
        view, image = self._view, self._image
        found = routes.Routes(
            view, name, view.holdings(name), hops=self._hops,
        ).to_image(image.content_id)
        reads = self._reads.get(name)
        return {
            'host': name, 'site': self._site, 'image_id': image.id,
            'content_id': image.content_id,
            'map_generation': view.generation,
            'ways': [_way(view, name, route) for route in found[:limit]],
            'lazy_boot': None if reads is None or not found
            else _lazy_boot(lazy_boots.estimate(
                view, name, image, reads, found[0].seconds))}


def _site_of(session, name):
    host = host_rows.need_host(session, name)
    if host.role != objects.COMPUTE:
        raise exceptions.InvalidInput(
            f'Host {name} is a repository, which images are read from; name a'
            f' compute host, see "openstack image cache host list --role'
            f' compute".')
    return host.site


def _lazy_boot(estimate):
    reads = estimate.reads
    return {'seconds': float(estimate.seconds), 'read_bytes': reads.total,
            'held_bytes': reads.total - reads.absent,
            'peer_bytes': reads.at_peers}


def _way(view, name, route):
    hubs = view.repositories.keys()
    parts = [{'kind': part.key.kind, 'id': part.key.id, 'host': part.host,
              'bytes': _bytes(view, part, hubs)} for part in route.parts]
    wan = sum(part['bytes'] for part in parts if part['host'] in hubs)
    lan = sum(part['bytes'] for part in parts
              if part['host'] not in (*hubs, name))
    return {'way': _kind(route, name, hubs), 'seconds': float(route.seconds),
            'wan_bytes': wan, 'lan_bytes': lan, 'detail': route.describe(),
            'parts': parts}


def _bytes(view, part, hubs):
    """Return the bytes that are read of a part, compressed over the WAN."""
    size_of = view.wire_size_of if part.host in hubs else view.size_of
    return size_of(part.key) or 0


def _kind(route, name, hubs):
    if route.builds:
        return 'build'
    if route.source.host == name:
        return 'local'
    return 'repository' if route.source.host in hubs else 'peer'
