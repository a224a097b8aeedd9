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
"""Hosts: their state and the objects they hold."""

import typing

from diffcache_openstack.api import fields
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import hosts as policies
from diffcache_openstack.api.policies import plans as plan_policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import common
from diffcache_openstack.api.schemas import hosts as schemas
from diffcache_openstack.db.views import host_views
from diffcache_openstack.db.views import network_views
from diffcache_openstack.sites import link_rates
from diffcache_openstack.sites import site_map

TABLE = routing.Table()
# Since this version, hosts that are alive cannot be removed.


@TABLE.route('GET', '/v1/hosts', policy=policies.LIST,
             query=schemas.LIST_QUERY, shows=fields.OPERATORS,
             response=schemas.LIST)
def list_hosts(request: requests.Request) -> dict[str, typing.Any]:
    """List hosts by name, with how full they are."""
    return paging.listed(request, 'hosts', host_views.list_hosts)


@TABLE.route('GET', '/v1/hosts/<name>', policy=policies.SHOW,
             query=common.query({}), shows=fields.OPERATORS,
             response=schemas.SHOW)
def show_host(request: requests.Request, name: str
              ) -> dict[str, typing.Any]:
    """Show a host and its assumed bandwidth of receiving (Mbit/s).

    ``fill`` and ``measured`` are what the host reported: when it fetches what
    plans place there, and its measured bandwidths.
    ``repositories`` are those that it reads from; for a repository,
    ``clients`` are the hosts that read from it. One that does not ``answer``
    is used by this host again once it does.
    """
    host = request.look(host_views.get_host, name)
    links = site_map.to_links(request.read(
        link_rates.read_links, host['site'], request.services.conf.planner)
        ).of(name)
    host['links'] = {
        'local': links.local, 'peer': links.peer, 'repo': links.repo}
    host |= request.read(network_views.show, name)
    return {'host': host}


@TABLE.route('GET', '/v1/hosts/<name>/objects', policy=policies.SHOW,
             query=schemas.OBJECTS_QUERY, shows=fields.OPERATORS,
             response=schemas.OBJECTS)
def list_objects(request: requests.Request, name: str
                 ) -> dict[str, typing.Any]:
    """List the objects that a host holds."""
    return paging.listed(request, 'objects', host_views.list_objects, name)


@TABLE.route('GET', '/v1/holdings', policy=policies.SHOW,
             guarded={'not_in_plan': plan_policies.SHOW},
             query=schemas.HOLDINGS_QUERY, shows=fields.OPERATORS,
             response=schemas.HOLDINGS)
def list_holdings(request: requests.Request) -> dict[str, typing.Any]:
    """List the objects that hosts hold, by host.

    ``not_in_plan`` lists what hosts of a plan may remove for other objects
    once it is the current one.
    """
    return paging.listed(request, 'holdings', host_views.list_holdings)


@TABLE.route('GET', '/v1/hosts/<name>/pending-images', policy=policies.SHOW,
             query=schemas.PENDING_QUERY,
             shows=fields.OPERATORS, response=schemas.PENDING)
def list_pending_images(request: requests.Request, name: str
                        ) -> dict[str, typing.Any]:
    """List images of Glance that a repository could not add yet, and why.

    One that is ``waiting_for_space`` is tried again at ``retry_at``; one that
    is ``refused`` when it changes.
    """
    return paging.listed(
        request, 'pending_images', host_views.list_pending_images, name)


@TABLE.route('GET', '/v1/hosts/<name>/boot-sets', policy=policies.SHOW,
             query=schemas.BOOT_SETS_QUERY,
             shows=fields.OPERATORS, response=schemas.BOOT_SETS)
def list_boot_sets(request: requests.Request, name: str
                   ) -> dict[str, typing.Any]:
    """List the boot sets that a host has, or that are planned for it, and why.

    Each of ``requests`` boots by day would wait ``wait_seconds`` for its
    chunks without it, which come from a host of the site (``from_peer``) or
    over the WAN; all boots of the site would wait ``saved_seconds`` longer.
    """
    return paging.listed(request, 'boot_sets', host_views.list_boot_sets,
                         name)


@TABLE.route('DELETE', '/v1/hosts/<name>', policy=policies.DELETE,
             shows=fields.OPERATORS,
             response=routing.NOTHING, status=204)
def delete_host(request: requests.Request, name: str) -> None:
    """Remove a host that was retired; one that is alive is refused."""
    request.services.conductor.remove_host(request.context, name)
