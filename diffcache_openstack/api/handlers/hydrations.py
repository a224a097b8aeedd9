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
"""Hydrations: how far images are that servers run from."""

import typing

from diffcache_openstack.api import fields
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import base
from diffcache_openstack.api.policies import hydrations as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import hydrations as schemas
from diffcache_openstack.db.views import hydration_views

TABLE = routing.Table()


def _find(request: requests.Request, server_id: str
          ) -> list[dict[str, typing.Any]]:
    """Return the hydration if the caller may see it."""
    return [request.look(hydration_views.get_hydration, request.viewer,
                         server_id)]


def _find_shared(request: requests.Request, server_id: str
                 ) -> list[dict[str, typing.Any]]:
    """Return the projects whose servers a change would concern.

    :raises NotFound: the caller does not see the hydration
    """
    _find(request, server_id)
    return request.look(hydration_views.sharers, server_id)


@TABLE.route('GET', '/v1/hydrations', policy=policies.LIST,
             query=schemas.LIST_QUERY, guarded={'host': base.INFRASTRUCTURE},
             shows=fields.HYDRATION, response=schemas.LIST)
def list_hydrations(request: requests.Request) -> dict[str, typing.Any]:
    """List the caller's servers that run from images which are arriving.

    A server is listed until nothing reads the image as it arrives any more,
    and for a minute longer if the image is complete by then. ``chunks`` are
    those that are not all zeros, of ``chunk`` bytes; ``present`` of them are
    on the host. Hosts report every ``[agent] heartbeat_interval`` seconds.
    """
    return paging.listed(
        request, 'hydrations', hydration_views.list_hydrations, request.viewer)


@TABLE.route('GET', '/v1/hydrations/<server_id>', policy=policies.SHOW,
             shows=fields.HYDRATION, finder=_find,
             response=schemas.SHOW)
def show_hydration(request: requests.Request, server_id: str
                   ) -> dict[str, typing.Any]:
    """Show how far the image is that a server runs from."""
    return {'hydration': request.found[0]}


@TABLE.route('PATCH', '/v1/hydrations/<server_id>', policy=policies.UPDATE,
             body=schemas.UPDATE, shows=fields.HYDRATION,
             finder=_find_shared, response=schemas.SHOW)
def update_hydration(request: requests.Request, server_id: str
                     ) -> dict[str, typing.Any]:
    """Change deadline or rate of a hydration, pause or resume it.

    Servers that run from the same image on the same host share it: all of
    them have to be servers whose hydrations the caller may change.
    """
    settings = dict(request.document['hydration'])
    generation = settings.pop('generation')
    request.services.lazy.change_hydration(request.context, server_id,
                                           generation, settings)
    return {'hydration': _find(request, server_id)[0]}
