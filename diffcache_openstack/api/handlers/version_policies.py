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
"""Policies: when servers are saved and which versions are kept."""

import typing
import uuid

from diffcache_openstack.api import fields
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import versions as policies
from diffcache_openstack.api import policy
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import versions as schemas
from diffcache_openstack.common import exceptions
from diffcache_openstack.db.versions import policies as db
from diffcache_openstack import objects

TABLE = routing.Table()


def _find(request: requests.Request, policy_id: str
          ) -> list[dict[str, typing.Any]]:
    """Return the policy if the caller may see it."""
    return [request.look(db.get_policy, request.viewer, policy_id)]


def _find_subject(request: requests.Request) -> list[typing.Any]:
    """Return the server, or the project, that a policy is set for.

    :raises InvalidInput: the request names neither
    """
    server_id = request.document['version_policy'].get('server_id')
    if server_id:
        return [request.find_server(server_id)]
    if request.context.project_id is None:
        raise exceptions.InvalidInput(
            'Name a server, or use a token of a project.')
    return [{'project_id': request.context.project_id}]


@TABLE.route('GET', '/v1/version-policies', policy=policies.POLICIES,
             query=schemas.POLICIES_QUERY,
             shows=fields.VERSION_POLICY,
             response=schemas.POLICIES)
def list_policies(request: requests.Request) -> dict[str, typing.Any]:
    """List the version policies of the caller's project by ID."""
    return paging.listed(request, 'version_policies', db.list_policies,
                         request.viewer)


@TABLE.route('GET', '/v1/version-policies/<policy_id>',
             policy=policies.POLICY, shows=fields.VERSION_POLICY,
             finder=_find, response=schemas.POLICY)
def show_policy(request: requests.Request, policy_id: str
                ) -> dict[str, typing.Any]:
    """Show a version policy of the caller's project."""
    return {'version_policy': request.found[0]}


@TABLE.route('POST', '/v1/version-policies', policy=policies.SET_POLICY,
             body=schemas.SET_POLICY,
             shows=fields.VERSION_POLICY, finder=_find_subject,
             response=schemas.POLICY)
def set_policy(request: requests.Request) -> dict[str, typing.Any]:
    """Replace the version policy of a server or a project."""
    [subject] = map(policy.target_of, request.found)
    policy_id = request.services.versions.set_policy(
        request.context, objects.VersionPolicy(
            id=str(uuid.uuid4()), project_id=subject['project_id'],
            **request.document['version_policy']))
    return {'version_policy': request.look(db.get_policy, request.viewer,
                                           policy_id)}


@TABLE.route('DELETE', '/v1/version-policies/<policy_id>',
             policy=policies.UNSET_POLICY,
             shows=fields.VERSION_POLICY, finder=_find,
             response=routing.NOTHING, status=204)
def unset_policy(request: requests.Request, policy_id: str) -> None:
    """Delete a version policy; versions are kept."""
    request.services.versions.unset_policy(request.context, policy_id)
