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
"""Client side of the agent RPC API for images that are arriving."""

import typing

from diffcache_openstack.common import contexts
from diffcache_openstack import objects
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.remote_calls import wire


class AgentLazyAPI(remote.HostAPI):
    """Client side of the agent RPC API for images that are arriving."""

    NAMESPACE = 'lazy'

    @remote.call(remote.CONTROLLER, {
        'server_id': wire.ID, 'generation': wire.COUNT,
        'wanted': wire.HYDRATION_SETTINGS})
    def change_hydration(self, ctxt: contexts.RequestContext, host: str,
                         server_id: str, generation: int,
                         wanted: dict[str, typing.Any]
                         ) -> objects.Hydration:
        """Change the hydration of a server's image; return it as it is then.

        :param wanted: ``deadline``, seconds from now or None for none;
            ``rate``, bytes per second or None for no limit; ``paused``
        :raises NotFound: the server runs from no image that is arriving
        :raises Conflict: the image is whole
        :raises Busy: the settings were changed since this generation
        """
