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
"""Client side of the agent RPC API for volumes in the SSD cache."""

import typing

from oslo_config import cfg
import oslo_messaging

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import messaging
from diffcache_openstack.common import rpc_history
from diffcache_openstack import objects
from diffcache_openstack.rpc import agent_api

NAMESPACE = 'volumes'
HISTORY = rpc_history.History({
    '1.0': ('change_volume', 'flush_volume', 'invalidate_volume',
            'follow_type', 'volume_use', 'accept_loss'),
})
VERSION = HISTORY.latest

# A migration waits for it.
USE_SECONDS = 10


class AgentVolumesAPI:
    """Client side of the agent RPC API for volumes in the SSD cache.

    All methods raise ServiceUnavailable if the host does not answer, and
    NotFound if the volume is not in its cache.
    """

    def __init__(self, bus: messaging.Bus, conf: cfg.ConfigOpts):
        target = oslo_messaging.Target(
            topic=agent_api.TOPIC, namespace=NAMESPACE)
        self._client = bus.client(target, conf.conductor.rpc_timeout,
                                  HISTORY)

    def change_volume(self, ctxt: contexts.RequestContext, host: str,
                      volume_id: str, generation: int,
                      settings: dict[str, typing.Any]) -> objects.VolumeCache:
        """Change settings of a volume; return it as it is then.

        :raises Busy: they were changed since this generation
        :raises NoSpace: the least sizes exceed the cache
        """
        return self._to(host).call(
            ctxt, 'change_volume', volume_id=volume_id,
            generation=generation, settings=settings)

    def follow_type(self, ctxt: contexts.RequestContext, host: str,
                    volume_id: str, settings: dict[str, typing.Any]
                    ) -> objects.VolumeCache:
        """Have a volume follow its type; return it as it is then.

        :param settings: see :func:`.volume_specs.settings`
        :raises Conflict: it follows no type, or the cache lacks the mode
        :raises NoSpace: the least sizes exceed the cache
        :raises InvalidInput: the host is older than this method
        """
        return self._to(host).call(ctxt, 'follow_type', volume_id=volume_id,
                                   settings=settings)

    def flush_volume(self, ctxt: contexts.RequestContext, host: str,
                     volume_id: str) -> objects.VolumeCache:
        """Write a volume's dirty blocks back; return it as it is then."""
        return self._to(host).call(ctxt, 'flush_volume', volume_id=volume_id)

    def accept_loss(self, ctxt: contexts.RequestContext, host: str,
                    volume_id: str) -> objects.VolumeCache:
        """Have flushes succeed although a volume's storage lost blocks.

        :returns: the volume as it is then
        """
        return self._to(host).call(ctxt, 'accept_loss', volume_id=volume_id)

    def invalidate_volume(self, ctxt: contexts.RequestContext, host: str,
                          volume_id: str) -> objects.VolumeCache:
        """Forget what is cached of a volume; return it as it is then."""
        return self._to(host).call(ctxt, 'invalidate_volume',
                                   volume_id=volume_id)

    def volume_use(self, ctxt: contexts.RequestContext, host: str,
                   volume_id: str) -> objects.VolumeUse:
        """Return how a volume is used on a host, for another one.

        :raises InvalidInput: the host is older than this method
        """
        client = self._client.prepared(topic=agent_api.topic_of(host),
                                       timeout=USE_SECONDS)
        return client.call(ctxt, 'volume_use', volume_id=volume_id)

    def _to(self, host: str) -> messaging.Client:
        return self._client.prepared(topic=agent_api.topic_of(host))
