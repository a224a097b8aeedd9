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
"""Client side of the conductor RPC API for Cinder: volumes in use.

A separate API, because its callers are not services of the suite: they have
neither its options nor its objects.
"""

import typing

from diffcache_openstack.common import contexts
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.remote_calls import wire

# What an agent waits for blocks that are written back, before it says Busy.
WAIT_SECONDS = 5.0


def _nobody(_arguments: dict) -> tuple[str, ...]:
    """Cinder speaks of hosts, and for none."""
    return ()


class HoldsAPI(remote.OutsideAPI):
    """Client side of the API for volumes in use that Cinder reads or retypes.

    ``host`` is the host that a volume is attached to, ``[agent] host`` of its
    agent. All methods raise NotFound if there is no agent, or it has no SSD
    cache: then the volume lacks nothing. They raise ServiceUnavailable if the
    conductor or the agent does not answer.
    """

    NAMESPACE = 'holds'

    @remote.call(remote.CINDER, {
        'host': wire.HOST, 'volume_id': wire.ID, 'hold_id': wire.UUID,
        'lease': wire.SECONDS}, speakers=_nobody)
    def begin_hold(self, ctxt: contexts.RequestContext, host: str,
                   volume_id: str, hold_id: str, lease: float) -> None:
        """Write a volume's dirty blocks back, and keep it out of write-back.

        Holds nest: the volume returns to its mode when all have ended.

        :param hold_id: of the operation; the same one may be repeated
        :param lease: seconds until it lapses
        :raises Busy: they are being written back; repeat it
        :raises PermanentError: they cannot be written back
        """

    @remote.call(remote.CINDER, {
        'host': wire.HOST, 'volume_id': wire.ID, 'hold_id': wire.UUID,
        'lease': wire.SECONDS}, speakers=_nobody)
    def renew_hold(self, ctxt: contexts.RequestContext, host: str,
                   volume_id: str, hold_id: str, lease: float) -> None:
        """Have a hold last for this many seconds from now.

        :raises NotFound: it has lapsed
        """

    @remote.call(remote.CINDER, {
        'host': wire.HOST, 'volume_id': wire.ID, 'hold_id': wire.UUID},
        speakers=_nobody)
    def end_hold(self, ctxt: contexts.RequestContext, host: str,
                 volume_id: str, hold_id: str) -> None:
        """End a hold.

        :raises NotFound: it has lapsed before, and the volume may have been
            in write-back since
        """

    @remote.call(remote.CINDER, {
        'host': wire.HOST, 'volume_id': wire.ID, 'seconds': wire.SECONDS},
        speakers=_nobody)
    def begin_queue(self, ctxt: contexts.RequestContext, host: str,
                    volume_id: str, seconds: float) -> None:
        """Have a volume's writes wait until :meth:`end_queue`.

        :param seconds: after which they go on in any case
        :raises NotFound: it is not in the host's SSD cache
        """

    @remote.call(remote.CINDER, {
        'host': wire.HOST, 'volume_id': wire.ID}, speakers=_nobody)
    def end_queue(self, ctxt: contexts.RequestContext, host: str,
                  volume_id: str) -> None:
        """Have a volume's writes go on.

        :raises NotFound: they have gone on before
        """

    @remote.call(remote.CINDER, {
        'host': wire.HOST, 'volume_id': wire.ID,
        'settings': wire.TYPE_SETTINGS}, speakers=_nobody)
    def follow_type(self, ctxt: contexts.RequestContext, host: str,
                    volume_id: str, settings: dict[str, typing.Any]) -> None:
        """Have a volume follow its new type.

        :param settings: see :func:`.volume_specs.settings`
        :raises NotFound: it is not in the host's SSD cache
        :raises Conflict: it follows no type, or the cache lacks the mode
        :raises NoSpace: the least sizes exceed the cache
        """
