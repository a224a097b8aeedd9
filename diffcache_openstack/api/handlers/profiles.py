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
"""Profiles: what servers read of images as they boot lazily."""

import typing
import uuid

from diffcache_openstack.api import fields
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import profiles as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import profiles as schemas
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import lazy as lazy_options
from diffcache_openstack.db.views import image_views
from diffcache_openstack.db.views import profile_views
from diffcache_openstack.objects import catalogue
from diffcache_openstack.prefetch import profiles

TABLE = routing.Table()


def _find(request: requests.Request, profile_id: str
          ) -> list[dict[str, typing.Any]]:
    """Return the profile if the caller may see it."""
    return [request.look(profile_views.get_profile, request.viewer,
                         profile_id)]


def _find_subject(request: requests.Request) -> list[dict[str, typing.Any]]:
    """Return the project that a profile of an image would belong to.

    :raises NotFound: the caller does not see the image
    :raises InvalidInput: the profile would be one project's, and the token is
        of none
    """
    image = request.look(image_views.get_image, request.viewer,
                         request.document['profile']['image_id'])
    share = request.services.conf.lazy.share_profiles == lazy_options.IMAGE
    if share and image['visibility'] == catalogue.PUBLIC:
        return [{'project_id': None}]
    if request.context.project_id is None:
        raise exceptions.InvalidInput(
            'Use a token of the project that the profile is to belong to.')
    return [{'project_id': request.context.project_id}]


def _with_rows(request: requests.Request, profile_id: str
               ) -> dict[str, typing.Any]:
    [profile] = _find(request, profile_id)
    return {'profile': {
        **profile, 'chunk': profiles.CHUNK,
        'rows': request.look(profile_views.get_rows, profile_id)}}


@TABLE.route('GET', '/v1/profiles', policy=policies.LIST,
             query=schemas.LIST_QUERY, shows=fields.PROFILE,
             response=schemas.LIST)
def list_profiles(request: requests.Request) -> dict[str, typing.Any]:
    """List what servers read of images as they boot lazily.

    A profile without a project is one of all projects. One with
    ``carried_from`` is that of another image, at the places where this image
    has the same content; it is used until enough instances have read this
    image.
    """
    return paging.listed(request, 'profiles', profile_views.list_profiles,
                         request.viewer)


@TABLE.route('GET', '/v1/profiles/<profile_id>', policy=policies.SHOW,
             shows=fields.PROFILE_WITH_ROWS, finder=_find,
             response=schemas.SHOW)
def show_profile(request: requests.Request, profile_id: str
                 ) -> dict[str, typing.Any]:
    """Show a profile with its rows.

    A row has the number of a chunk, how many instances read it, and the mean
    of the microseconds from their start to that read. While no instance has
    read the image, the rows are those that were carried.
    """
    return _with_rows(request, profile_id)


@TABLE.route('POST', '/v1/profiles', policy=policies.IMPORT,
             body=schemas.IMPORT, shows=fields.PROFILE_WITH_ROWS,
             finder=_find_subject, response=schemas.SHOW, status=201)
def import_profile(request: requests.Request) -> dict[str, typing.Any]:
    """Add rows to the profile of an image and a label.

    They replace those that were imported before, and count for at most as
    much as a host. The profile of a public image is one of all projects
    (unless ``[lazy] share_profiles`` is ``project``), and administrators
    alone may import it.
    """
    wanted = request.document['profile']
    profile_id = request.services.lazy.import_profile(
        request.context, str(uuid.uuid4()), wanted['image_id'],
        request.found[0]['project_id'], wanted.get('label', ''),
        [[chunk, count, round(mean_us * count)]
         for chunk, count, mean_us in wanted['rows']])
    return _with_rows(request, profile_id)


@TABLE.route('DELETE', '/v1/profiles/<profile_id>', policy=policies.DELETE,
             shows=fields.PROFILE, finder=_find,
             response=routing.NOTHING, status=204)
def delete_profile(request: requests.Request, profile_id: str) -> None:
    """Delete a profile; it is learned, and maybe carried, anew."""
    request.services.lazy.delete_profile(request.context, profile_id)
