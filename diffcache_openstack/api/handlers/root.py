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
"""Discovery of the API's versions."""

import typing

from diffcache_openstack.api import fields
from diffcache_openstack.api import microversions
from diffcache_openstack.api.policies import root as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import root as schemas

TABLE = routing.Table()


@TABLE.route('GET', '/', policy=policies.DISCOVER,
             shows=fields.PUBLIC, response=schemas.VERSIONS)
def list_versions(request: requests.Request) -> dict[str, typing.Any]:
    """List the API's major versions."""
    return {'versions': [_version(request)]}


@TABLE.route('GET', '/v1', policy=policies.DISCOVER,
             shows=fields.PUBLIC, response=schemas.VERSION)
def show_version(request: requests.Request) -> dict[str, typing.Any]:
    """Show the supported microversions."""
    return {'version': _version(request)}


def _version(request):
    return {
        'id': f'v{microversions.MAXIMUM.major}.0', 'status': 'CURRENT',
        'min_version': str(microversions.MINIMUM),
        'max_version': str(microversions.MAXIMUM),
        'version': str(microversions.MAXIMUM),
        'links': [{'rel': 'self', 'href': f'{request.url_root}v1/'}]}
