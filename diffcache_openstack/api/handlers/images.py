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
"""Images of the catalogue, their families and locations."""

import typing

from diffcache_openstack.api import fields
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import images as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import images as schemas
from diffcache_openstack.db.views import image_views

TABLE = routing.Table()


def _find(request: requests.Request, image_id: str
          ) -> list[dict[str, typing.Any]]:
    """Return the image if the caller may see it."""
    return [request.look(image_views.get_image, request.viewer,
                         image_id)]


@TABLE.route('GET', '/v1/images', policy=policies.LIST,
             query=schemas.LIST_QUERY, shows=fields.IMAGE,
             guarded={'host': policies.LOCATIONS}, response=schemas.LIST)
def list_images(request: requests.Request) -> dict[str, typing.Any]:
    """List the images that the caller's project may see, by ID."""
    return paging.listed(request, 'images', image_views.list_images,
                         request.viewer)


@TABLE.route('GET', '/v1/images/<image_id>', policy=policies.SHOW,
             shows=fields.IMAGE, finder=_find, response=schemas.SHOW)
def show_image(request: requests.Request, image_id: str
               ) -> dict[str, typing.Any]:
    """Show an image that the caller's project may see."""
    return {'image': request.found[0]}


@TABLE.route('GET', '/v1/images/<image_id>/locations',
             policy=policies.LOCATIONS, shows=fields.OPERATORS, finder=_find,
             response=schemas.LOCATIONS)
def list_locations(request: requests.Request, image_id: str
                   ) -> dict[str, typing.Any]:
    """List the hosts that are alive and have a whole image.

    These include hosts where Nova alone has it.
    """
    return {'locations': request.look(image_views.locations,
                                      request.found[0]['content_id'])}
