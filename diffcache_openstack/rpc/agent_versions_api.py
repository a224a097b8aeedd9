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
"""Client side of the agent RPC API for versions."""

from diffcache_openstack.common import contexts
from diffcache_openstack import objects
from diffcache_openstack.objects import fields
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.remote_calls import wire


class AgentVersionsAPI(remote.HostAPI):
    """Client side of the agent RPC API for versions.

    All calls are casts: agents report their progress to the conductor.
    """

    NAMESPACE = 'versions'

    @remote.cast(remote.CONTROLLER, {
        'task': fields.ObjectField('VersionTask')})
    def perform(self, ctxt: contexts.RequestContext, host: str,
                task: objects.VersionTask) -> None:
        """Send a task to a host; a task that it has is not done twice.

        :raises ServiceUnavailable: the broker cannot be reached
        """

    @remote.cast(remote.CONTROLLER, {'task_id': wire.UUID})
    def cancel(self, ctxt: contexts.RequestContext, host: str, task_id: str
               ) -> None:
        """Cancel a task on a host.

        :raises ServiceUnavailable: the broker cannot be reached
        """
