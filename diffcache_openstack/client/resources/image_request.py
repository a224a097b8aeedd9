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
"""Requests that hosts had for images."""

from openstack import resource

from diffcache_openstack.client.resources import base


class Request(base.Resource):
    """A request, and how it was served."""

    resources_key = 'requests'
    base_path = '/requests'
    allow_fetch = False
    _query_mapping = base.query('host', 'site', 'image_id', 'way',
                                'failed', 'since', 'until')

    image_id = resource.Body('image_id')
    host = resource.Body('host')
    site = resource.Body('site')
    mode = resource.Body('mode')
    way = resource.Body('way')
    detail = resource.Body('detail')
    seconds = resource.Body('seconds', type=float)
    predicted_seconds = resource.Body('predicted_seconds', type=float)
    wan_bytes = resource.Body('wan_bytes', type=int)
    lan_bytes = resource.Body('lan_bytes', type=int)
    fallbacks = resource.Body('fallbacks', type=int)
    started_at = resource.Body('started_at')
    error = resource.Body('error')
