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
"""SSD caches of hosts, and the volumes in them."""

import typing

from diffcache_openstack.api import fields
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import base
from diffcache_openstack.api.policies import volume_caches as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import volume_caches as schemas
from diffcache_openstack.cached_volumes import rates
from diffcache_openstack.db.views import volume_cache_views
from diffcache_openstack.objects import volume_specs

TABLE = routing.Table()


def _find(request: requests.Request, volume_id: str
          ) -> list[dict[str, typing.Any]]:
    """Return the volume if the caller may see it."""
    return [request.look(volume_cache_views.get_volume, request.viewer,
                         volume_id)]


@TABLE.route('GET', '/v1/volume-caches', policy=policies.LIST,
             query=schemas.LIST_QUERY, guarded={'host': base.INFRASTRUCTURE},
             shows=fields.VOLUME_CACHE, response=schemas.LIST)
def list_volume_caches(request: requests.Request) -> dict[str, typing.Any]:
    """List the volumes of the caller's project in SSD caches of hosts.

    Counts are in blocks of 4 KiB, since the host's cache was started.
    """
    return paging.listed(
        request, 'volume_caches', volume_cache_views.list_volumes,
        request.viewer)


@TABLE.route('GET', '/v1/volume-caches/<volume_id>', policy=policies.SHOW,
             shows=fields.VOLUME_CACHE, finder=_find,
             response=schemas.SHOW)
def show_volume_cache(request: requests.Request, volume_id: str
                      ) -> dict[str, typing.Any]:
    """Show a volume in an SSD cache, and why its partition has this size."""
    return {'volume_cache': request.found[0]}


@TABLE.route('PATCH', '/v1/volume-caches/<volume_id>',
             policy=policies.UPDATE, body=schemas.UPDATE,
             shows=fields.VOLUME_CACHE, finder=_find,
             response=schemas.SHOW)
def update_volume_cache(request: requests.Request, volume_id: str
                        ) -> dict[str, typing.Any]:
    """Change settings of a volume in place of what its type says.

    null removes one. They stay on the host, also while the volume is
    detached.
    """
    values = dict(request.document['volume_cache'])
    generation = values.pop('generation')
    request.services.volumes.change_volume(
        request.context, volume_id, generation, values)
    return {'volume_cache': _find(request, volume_id)[0]}


@TABLE.route('PUT', '/v1/volume-caches/<volume_id>/specs',
             policy=policies.UPDATE,
             body=schemas.FOLLOW, shows=fields.VOLUME_CACHE, finder=_find,
             response=schemas.SHOW)
def follow_type(request: requests.Request, volume_id: str
                ) -> dict[str, typing.Any]:
    """Have a volume follow its type, whose QoS specs were changed.

    They take the place of those that it was attached with, until it is
    attached again. Settings of the volume itself stay, and limits that depend
    on its size. Where the type says that its volumes are not cached, the
    volume passes its cache by.
    """
    specs = request.document['volume_cache']['specs']
    settings = volume_specs.settings(volume_specs.parse(specs))
    # Cinder computes others, which it keeps with the attachment.
    if not rates.depend_on_size(specs):
        settings['rates'] = rates.parse(specs)
    request.services.volumes.follow_type(request.context, volume_id, settings)
    return {'volume_cache': _find(request, volume_id)[0]}


@TABLE.route('POST', '/v1/volume-caches/<volume_id>/actions',
             policy=policies.ACT, body=schemas.ACT,
             shows=fields.VOLUME_CACHE, finder=_find,
             response=schemas.SHOW)
def act_on_volume_cache(request: requests.Request, volume_id: str
                        ) -> dict[str, typing.Any]:
    """Flush a volume in an SSD cache, invalidate it, or accept a loss."""
    volumes = request.services.volumes
    act = {'flush': volumes.flush_volume,
           'invalidate': volumes.invalidate_volume,
           'accept-loss': volumes.accept_loss}
    act[request.document['action']](request.context, volume_id)
    return {'volume_cache': _find(request, volume_id)[0]}


@TABLE.route('GET', '/v1/volume-caches/<volume_id>/curve',
             policy=policies.SHOW, shows=fields.VOLUME_CURVE,
             finder=_find, response=schemas.CURVE)
def show_curve(request: requests.Request, volume_id: str
               ) -> dict[str, typing.Any]:
    """Show what was requested of a volume in the last epoch of its host.

    A partition of a number of blocks in ``sizes`` would have had as many
    ``hits`` of the ``references``.
    """
    return {'curve': request.look(volume_cache_views.get_curve, volume_id)}


@TABLE.route('GET', '/v1/ssd-caches', policy=policies.LIST_CACHES,
             query=schemas.LIST_CACHES_QUERY,
             shows=fields.OPERATORS, response=schemas.LIST_CACHES)
def list_ssd_caches(request: requests.Request) -> dict[str, typing.Any]:
    """List SSD caches by the names of their hosts."""
    part = request.look(volume_cache_views.list_caches, request.page)
    return paging.document(request, 'ssd_caches', part)


@TABLE.route('GET', '/v1/ssd-caches/<host>', policy=policies.SHOW_CACHE,
             shows=fields.OPERATORS,
             response=schemas.SHOW_CACHE)
def show_ssd_cache(request: requests.Request, host: str
                   ) -> dict[str, typing.Any]:
    """Show the SSD cache of a host with the latest decisions about sizes."""
    return {'ssd_cache': request.look(volume_cache_views.get_cache, host)}
