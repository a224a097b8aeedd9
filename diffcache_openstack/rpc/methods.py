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
"""The methods of the services, by namespace and name.

What is in none of these tables is refused before any code of an endpoint runs,
and a unit test walks both with junk in each argument.
"""

from diffcache_openstack.remote_calls import conductor_backups_api
from diffcache_openstack.remote_calls import conductor_costs_api
from diffcache_openstack.remote_calls import conductor_holds_api
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import agent_lazy_api
from diffcache_openstack.rpc import agent_versions_api
from diffcache_openstack.rpc import agent_volumes_api
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.rpc import conductor_control_api
from diffcache_openstack.rpc import conductor_lazy_api
from diffcache_openstack.rpc import conductor_versions_api
from diffcache_openstack.rpc import conductor_volumes_api

CONDUCTOR_APIS: tuple[type[remote.API], ...] = (
    conductor_api.ConductorAPI, conductor_backups_api.BackupsAPI,
    conductor_control_api.ControlAPI, conductor_costs_api.CostsAPI,
    conductor_holds_api.HoldsAPI, conductor_lazy_api.LazyAPI,
    conductor_versions_api.VersionsAPI, conductor_volumes_api.VolumesAPI)
AGENT_APIS: tuple[type[remote.API], ...] = (
    agent_api.AgentAPI, agent_lazy_api.AgentLazyAPI,
    agent_versions_api.AgentVersionsAPI, agent_volumes_api.AgentVolumesAPI)


def _merged(apis: tuple[type[remote.API], ...]) -> remote.Table:
    return {key: method for api in apis
            for key, method in api.table().items()}


CONDUCTOR = _merged(CONDUCTOR_APIS)
AGENT = _merged(AGENT_APIS)
