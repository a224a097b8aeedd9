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

from oslo_config import cfg
import oslo_messaging

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import messaging
from diffcache_openstack.common import rpc_history
from diffcache_openstack import objects
from diffcache_openstack.rpc import agent_api

NAMESPACE = 'versions'
HISTORY = rpc_history.History({
    '1.0': ('perform', 'cancel'),
})
VERSION = HISTORY.latest


class AgentVersionsAPI:
    """Client side of the agent RPC API for versions.

    All calls are casts: agents report their progress to the conductor.
    """

    def __init__(self, bus: messaging.Bus, conf: cfg.ConfigOpts):
        target = oslo_messaging.Target(
            topic=agent_api.TOPIC, namespace=NAMESPACE)
        self._client = bus.client(target, conf.conductor.rpc_timeout,
                                  HISTORY)

    def perform(self, ctxt: contexts.RequestContext, host: str,
                task: objects.VersionTask) -> None:
        """Send a task to a host; a task that it has is not done twice.

        :raises ServiceUnavailable: the broker cannot be reached
        """
        self._to(host).cast(ctxt, 'perform', task=task)

    def cancel(self, ctxt: contexts.RequestContext, host: str, task_id: str
               ) -> None:
        """Cancel a task on a host.

        :raises ServiceUnavailable: the broker cannot be reached
        """
        self._to(host).cast(ctxt, 'cancel', task_id=task_id)

    def _to(self, host: str) -> messaging.Client:
        return self._client.prepared(topic=agent_api.topic_of(host))
