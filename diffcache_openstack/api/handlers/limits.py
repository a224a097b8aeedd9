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
"""Limits: the quotas of a project and their use."""

import typing

from diffcache_openstack.api import fields
from diffcache_openstack.api.policies import limits as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import limits as schemas
from diffcache_openstack.common import exceptions

TABLE = routing.Table()


def _find(request: requests.Request) -> list[dict[str, typing.Any]]:
    """Return the project whose limits are to be shown.

    :raises InvalidInput: the request names none
    """
    project_id = request.parameters.get('project_id',
                                        request.context.project_id)
    if project_id is None:
        raise exceptions.InvalidInput(
            'Name a project (project_id), or use a token of a project.')
    return [{'project_id': project_id}]


@TABLE.route('GET', '/v1/limits', policy=policies.SHOW,
             query=schemas.QUERY,
             shows=fields.LIMITS, finder=_find, response=schemas.SHOW)
def show_limits(request: requests.Request) -> dict[str, typing.Any]:
    """Show the quotas of a project, and how much of each is in use."""
    project_id = request.found[0]['project_id']
    return {'limits': {'project_id': project_id,
                       **request.services.quotas.show(project_id)}}
