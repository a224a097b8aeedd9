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
"""Templates: images of the catalogue, their families and locations."""

import typing

from diffcache_openstack.api import microversions
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import templates as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import templates as schemas
from diffcache_openstack.db.views import template_views

TABLE = routing.Table()
_WITH_MEMBERS = microversions.parse('1.1')


@TABLE.route('GET', '/v1/templates', policy=policies.LIST,
             query=schemas.LIST_QUERY, response=schemas.LIST)
def list_templates(request: requests.Request) -> dict[str, typing.Any]:
    """List the templates that the caller's project may see, by ID."""
    part = request.look(template_views.list_templates, request.viewer,
                        request.filters(), request.page)
    for entry in part.entries:
        _adapt(request, entry)
    return paging.document(request, 'templates', part)


@TABLE.route('GET', '/v1/templates/<template_id>', policy=policies.SHOW,
             response=schemas.SHOW)
def show_template(request: requests.Request, template_id: str
                  ) -> dict[str, typing.Any]:
    """Show a template that the caller's project may see."""
    entry = request.look(template_views.get_template, request.viewer,
                         template_id)
    return {'template': _adapt(request, entry)}


@TABLE.route('GET', '/v1/templates/<template_id>/locations',
             policy=policies.LOCATIONS, response=schemas.LOCATIONS)
def list_locations(request: requests.Request, template_id: str
                   ) -> dict[str, typing.Any]:
    """List the hosts that are alive and hold a whole template."""
    entry = request.look(template_views.get_template, request.viewer,
                         template_id)
    return {'locations': request.look(template_views.locations,
                                      entry['content_id'])}


def _adapt(request, entry):
    """Return the fields that the requested version has."""
    if request.version < _WITH_MEMBERS:
        del entry['members']
    return entry
