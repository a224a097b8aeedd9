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
"""Client side of the conductor RPC API for volumes in SSD caches."""

import typing

from oslo_config import cfg
import oslo_messaging

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import messaging
from diffcache_openstack.common import rpc_history
from diffcache_openstack.rpc import conductor_api

NAMESPACE = 'volumes'
HISTORY = rpc_history.History({
    '1.0': ('change_volume', 'flush_volume', 'invalidate_volume',
            'follow_type', 'accept_loss'),
})
VERSION = HISTORY.latest


class VolumesAPI:
    """Client side of the API for volumes in SSD caches.

    All methods raise ServiceUnavailable if the conductor or the volume's host
    does not answer, and NotFound if the volume is in no cache.
    """

    def __init__(self, bus: messaging.Bus, conf: cfg.ConfigOpts):
        target = oslo_messaging.Target(
            topic=conductor_api.TOPIC, namespace=NAMESPACE)
        self._client = bus.client(target, conf.conductor.rpc_timeout,
                                  HISTORY)

    def change_volume(self, ctxt: contexts.RequestContext, volume_id: str,
                      generation: int, settings: dict[str, typing.Any]
                      ) -> None:
        """Change settings of a volume on its host.

        :raises Busy: they were changed since this generation
        :raises NoSpace: the least sizes exceed the cache
        """
        self._client.call(ctxt, 'change_volume', volume_id=volume_id,
                          generation=generation, settings=settings)

    def follow_type(self, ctxt: contexts.RequestContext, volume_id: str,
                    settings: dict[str, typing.Any]) -> None:
        """Have a volume in use follow its type, which was changed.

        :param settings: see :func:`.volume_specs.settings`
        :raises Conflict: it follows no type, or its cache lacks the mode
        :raises NoSpace: the least sizes exceed the cache
        :raises InvalidInput: its host is older than this method
        """
        self._client.call(ctxt, 'follow_type', volume_id=volume_id,
                          settings=settings)

    def flush_volume(self, ctxt: contexts.RequestContext, volume_id: str
                     ) -> None:
        """Write a volume's dirty blocks back, and make writes durable."""
        self._client.call(ctxt, 'flush_volume', volume_id=volume_id)

    def accept_loss(self, ctxt: contexts.RequestContext, volume_id: str
                    ) -> None:
        """Have flushes succeed although a volume's storage lost blocks."""
        self._client.call(ctxt, 'accept_loss', volume_id=volume_id)

    def invalidate_volume(self, ctxt: contexts.RequestContext, volume_id: str
                          ) -> None:
        """Forget what is cached of a volume."""
        self._client.call(ctxt, 'invalidate_volume', volume_id=volume_id)
