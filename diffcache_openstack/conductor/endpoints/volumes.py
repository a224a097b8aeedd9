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
"""RPC endpoint for volumes in SSD caches, of the REST API."""

import oslo_messaging

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import messaging
from diffcache_openstack.conductor import volume_caches
from diffcache_openstack.rpc import conductor_volumes_api


class VolumesManager:
    """The endpoint; :class:`.conductor_volumes_api.VolumesAPI` calls it.

    :param volumes: forwards changes to hosts
    """

    target = oslo_messaging.Target(namespace=conductor_volumes_api.NAMESPACE,
                                   version=conductor_volumes_api.VERSION)

    def __init__(self, volumes: volume_caches.VolumeCaches):
        self._volumes = volumes

    @messaging.exposed
    def change_volume(self, ctxt: contexts.RequestContext, volume_id: str,
                      generation: int, settings: dict) -> None:
        """Change settings of a volume."""
        self._volumes.change(ctxt, volume_id, generation, settings)

    @messaging.exposed
    def follow_type(self, ctxt: contexts.RequestContext, volume_id: str,
                    settings: dict) -> None:
        """Have a volume follow its type, which was changed."""
        self._volumes.follow_type(ctxt, volume_id, settings)

    @messaging.exposed
    def flush_volume(self, ctxt: contexts.RequestContext, volume_id: str
                     ) -> None:
        """Write a volume's dirty blocks back."""
        self._volumes.flush(ctxt, volume_id)

    @messaging.exposed
    def accept_loss(self, ctxt: contexts.RequestContext, volume_id: str
                    ) -> None:
        """Have flushes succeed although a volume's storage lost blocks."""
        self._volumes.accept_loss(ctxt, volume_id)

    @messaging.exposed
    def invalidate_volume(self, ctxt: contexts.RequestContext, volume_id: str
                          ) -> None:
        """Forget what is cached of a volume."""
        self._volumes.invalidate(ctxt, volume_id)
