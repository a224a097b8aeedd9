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

from diffcache_openstack.common import contexts
from diffcache_openstack import objects
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.remote_calls import wire

# A migration waits for it.
USE_SECONDS = 10


class AgentVolumesAPI(remote.HostAPI):
    """Client side of the agent RPC API for volumes in the SSD cache.

    All methods raise NotFound if the volume is not in the host's cache.
    """

    NAMESPACE = 'volumes'

    @remote.call(remote.CONTROLLER, {
        'volume_id': wire.ID, 'generation': wire.COUNT,
        'settings': wire.VOLUME_SETTINGS})
    def change_volume(self, ctxt: contexts.RequestContext, host: str,
                      volume_id: str, generation: int,
                      settings: dict[str, typing.Any]) -> objects.VolumeCache:
        """Change settings of a volume; return it as it is then.

        :raises Busy: they were changed since this generation
        :raises NoSpace: the least sizes exceed the cache
        """

    @remote.call(remote.CONTROLLER, {
        'volume_id': wire.ID, 'settings': wire.TYPE_SETTINGS})
    def follow_type(self, ctxt: contexts.RequestContext, host: str,
                    volume_id: str, settings: dict[str, typing.Any]
                    ) -> objects.VolumeCache:
        """Have a volume follow its type; return it as it is then.

        :param settings: see :func:`.volume_specs.settings`
        :raises Conflict: it follows no type, or the cache lacks the mode
        :raises NoSpace: the least sizes exceed the cache
        """

    @remote.call(remote.CONTROLLER, {'volume_id': wire.ID})
    def flush_volume(self, ctxt: contexts.RequestContext, host: str,
                     volume_id: str) -> objects.VolumeCache:
        """Write a volume's dirty blocks back; return it as it is then."""

    @remote.call(remote.CONTROLLER, {'volume_id': wire.ID})
    def accept_loss(self, ctxt: contexts.RequestContext, host: str,
                    volume_id: str) -> objects.VolumeCache:
        """Have flushes succeed although a volume's storage lost blocks.

        :returns: the volume as it is then
        """

    @remote.call(remote.CONTROLLER, {'volume_id': wire.ID})
    def invalidate_volume(self, ctxt: contexts.RequestContext, host: str,
                          volume_id: str) -> objects.VolumeCache:
        """Forget what is cached of a volume; return it as it is then."""

    @remote.call(remote.CONTROLLER, {
        'volume_id': wire.ID, 'hold_id': wire.UUID, 'lease': wire.SECONDS})
    def begin_hold(self, ctxt: contexts.RequestContext, host: str,
                   volume_id: str, hold_id: str, lease: float) -> None:
        """Write a volume's dirty blocks back, and keep it out of write-back.

        See :meth:`.conductor_holds_api.HoldsAPI.begin_hold`, as for the
        methods that follow; here NotFound means no SSD cache on the host.
        """

    @remote.call(remote.CONTROLLER, {
        'volume_id': wire.ID, 'hold_id': wire.UUID, 'lease': wire.SECONDS})
    def renew_hold(self, ctxt: contexts.RequestContext, host: str,
                   volume_id: str, hold_id: str, lease: float) -> None:
        """Have a hold last longer."""

    @remote.call(remote.CONTROLLER, {
        'volume_id': wire.ID, 'hold_id': wire.UUID})
    def end_hold(self, ctxt: contexts.RequestContext, host: str,
                 volume_id: str, hold_id: str) -> None:
        """End a hold."""

    @remote.call(remote.CONTROLLER, {
        'volume_id': wire.ID, 'seconds': wire.SECONDS})
    def begin_queue(self, ctxt: contexts.RequestContext, host: str,
                    volume_id: str, seconds: float) -> None:
        """Have a volume's writes wait."""

    @remote.call(remote.CONTROLLER, {'volume_id': wire.ID})
    def end_queue(self, ctxt: contexts.RequestContext, host: str,
                  volume_id: str) -> None:
        """Have a volume's writes go on."""

    @remote.call(remote.HOSTS, {'volume_id': wire.ID}, changes=False,
                 prepare=lambda conf: {'timeout': USE_SECONDS})
    def volume_use(self, ctxt: contexts.RequestContext, host: str,
                   volume_id: str) -> objects.VolumeUse:
        """Return how a volume is used on a host, for another one.

        """
