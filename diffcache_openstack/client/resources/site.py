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
"""Sites."""

from openstack import resource

from diffcache_openstack.client.resources import base


class Site(base.Resource):
    """A site; its id is its name."""

    resources_key = 'sites'
    base_path = '/sites'
    allow_fetch = False
    _query_mapping = base.query()

    name = resource.Body('name', alternate_id=True)
    map_generation = resource.Body('map_generation', type=int)
    plan_generation = resource.Body('plan_generation', type=int)
    planned_at = resource.Body('planned_at')
    #: How many hosts it has, how many are alive, and their bytes.
    hosts = resource.Body('hosts', type=dict)
