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
"""Patches, which turn one image into another."""

import typing


from diffcache_openstack.api import fields
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import patches as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import patches as schemas
from diffcache_openstack.db.views import image_views
from diffcache_openstack.db.views import pair_views

TABLE = routing.Table()


@TABLE.route('GET', '/v1/patches', policy=policies.LIST,
             query=schemas.LIST_QUERY, shows=fields.OPERATORS,
             response=schemas.LIST)
def list_patches(request: requests.Request) -> dict[str, typing.Any]:
    """List patches by ID.

    ``base`` and ``target`` may be repeated, for patches from any of several
    images and to any of several.
    """
    return paging.listed(request, 'patches', image_views.list_patches)


@TABLE.route('GET', '/v1/patches/<patch_id>', policy=policies.SHOW,
             shows=fields.OPERATORS,
             response=schemas.SHOW)
def show_patch(request: requests.Request, patch_id: str
               ) -> dict[str, typing.Any]:
    """Show a patch."""
    return {'patch': request.look(image_views.get_patch, patch_id)}


@TABLE.route('GET', '/v1/patch-pairs', policy=policies.PAIRS,
             query=schemas.PAIRS_QUERY,
             shows=fields.OPERATORS, response=schemas.PAIRS)
def list_pairs(request: requests.Request) -> dict[str, typing.Any]:
    """List the pairs of images that patches are considered for.

    A ``found`` pair is to be compared. Of a ``wanted`` one, ``host`` is the
    repository that creates the patch, until ``retry_at``; without a host, the
    pair waits for its turn, or after a failure until then. Of a ``declined``
    one, ``reason`` says why, and ``terms`` what decided; other terms reopen
    it. ``size`` is an estimate until the patch is ``made``.
    """
    return paging.listed(request, 'patch_pairs', pair_views.list_pairs)
