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

from diffcache_openstack.common import contexts
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.remote_calls import wire


class VolumesAPI(remote.API):
    """Client side of the API for volumes in SSD caches.

    All methods raise ServiceUnavailable if the conductor or the volume's host
    does not answer, and NotFound if the volume is in no cache.
    """

    NAMESPACE = 'volumes'

    @remote.call(remote.CONTROLLER, {
        'volume_id': wire.ID, 'generation': wire.COUNT,
        'settings': wire.VOLUME_SETTINGS})
    def change_volume(self, ctxt: contexts.RequestContext, volume_id: str,
                      generation: int, settings: dict[str, typing.Any]
                      ) -> None:
        """Change settings of a volume on its host.

        :raises Busy: they were changed since this generation
        :raises NoSpace: the least sizes exceed the cache
        """

    @remote.call(remote.CONTROLLER, {
        'volume_id': wire.ID, 'settings': wire.TYPE_SETTINGS})
    def follow_type(self, ctxt: contexts.RequestContext, volume_id: str,
                    settings: dict[str, typing.Any]) -> None:
        """Have a volume in use follow its type, which was changed.

        :param settings: see :func:`.volume_specs.settings`
        :raises Conflict: it follows no type, or its cache lacks the mode
        :raises NoSpace: the least sizes exceed the cache
        """

    @remote.call(remote.CONTROLLER, {'volume_id': wire.ID})
    def flush_volume(self, ctxt: contexts.RequestContext, volume_id: str
                     ) -> None:
        """Write a volume's dirty blocks back, and make writes durable."""

    @remote.call(remote.CONTROLLER, {'volume_id': wire.ID})
    def accept_loss(self, ctxt: contexts.RequestContext, volume_id: str
                    ) -> None:
        """Have flushes succeed although a volume's storage lost blocks."""

    @remote.call(remote.CONTROLLER, {'volume_id': wire.ID})
    def invalidate_volume(self, ctxt: contexts.RequestContext, volume_id: str
                          ) -> None:
        """Forget what is cached of a volume."""
