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
"""RPC endpoint of an agent for images that are served while they arrive."""

import oslo_messaging

from diffcache_openstack.agent.lazy import lazy_hydrations
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.rpc import agent_lazy_api


class LazyManager:
    """The endpoint; :class:`.agent_lazy_api.AgentLazyAPI` is the contract.

    :param hydrations: of images on this host; None without diffcached
    """

    target = agent_lazy_api.AgentLazyAPI.target()

    def __init__(self, hydrations: lazy_hydrations.Hydrations | None):
        self._hydrations = hydrations

    @oslo_messaging.expose
    def change_hydration(self, ctxt: contexts.RequestContext, server_id: str,
                         generation: int, wanted: dict
                         ) -> objects.Hydration:
        """Change the hydration of a server's image."""
        if self._hydrations is None:
            raise exceptions.NotFound(
                'This host serves no images while they arrive; set [lazy]'
                ' socket.')
        return self._hydrations.change(server_id, generation, wanted)
