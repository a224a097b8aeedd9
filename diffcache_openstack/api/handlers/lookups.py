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
from diffcache_openstack.api import microversions
from diffcache_openstack.api.policies import lookups as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import lookups as schemas
from diffcache_openstack.common import exceptions
from diffcache_openstack.db import boot_sets
from diffcache_openstack.db import sites
from diffcache_openstack import objects
from diffcache_openstack.objects import base
from diffcache_openstack.sites import lazy_boots
from diffcache_openstack.sites import routes

TABLE = routing.Table()
_WAYS = 10
_LAZY_BOOTS = microversions.parse('1.16')


@TABLE.route('GET', '/v1/lookups', policy=policies.SHOW,
             query=schemas.QUERY, shows=fields.OPERATORS,
             response=schemas.SHOW)
def show_lookup(request: requests.Request) -> dict[str, typing.Any]:
    """Show the ways for a host to get an image, cheapest first.

    They are those that the host's agent would try, in that order, by what is
    known to be held where. From version 1.16 on, the lookup has what a lazy
    boot from the image waits for on the host.
    """
    name = request.parameters['host']
    template_id = request.parameters['template_id']
    site = request.read(_site_of, name)
    view = request.services.views.get(site)
    template = view.template(template_id)
    found = routes.Routes(
        view, name, view.holdings(name),
        max_patches=request.services.conf.planner.max_patches,
    ).to_template(template.content_id)
    limit = request.parameters.get('limit', _WAYS)
    shown = {
        'host': name, 'site': site, 'template_id': template_id,
        'content_id': template.content_id, 'map_generation': view.generation,
        'ways': [_way(view, name, route) for route in found[:limit]]}
    if request.version >= _LAZY_BOOTS:
        content = boot_sets.Content(
            template.content_id, template.size,
            request.services.conf.lazy.threshold)
        reads = request.read(boot_sets.reads, site, content,
                             base.now()).get(name)
        shown['lazy_boot'] = None if reads is None or not found \
            else _lazy_boot(lazy_boots.estimate(
                view, name, template, reads, found[0].seconds))
    return {'lookup': shown}


def _site_of(session, name):
    host = next((host for host in sites.list_hosts(session)
                 if host.name == name), None)
    if host is None:
        raise sites.unknown_host(name)
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
