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
"""What Cinder asks of volumes in use, passed on to the volumes' hosts."""

import typing

import oslo_messaging

from diffcache_openstack.common import contexts
from diffcache_openstack.db import engine
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.remote_calls import conductor_holds_api
from diffcache_openstack.rpc import agent_volumes_api


class VolumeHolds:
    """The endpoint; :class:`.conductor_holds_api.HoldsAPI` is the contract.

    Cinder knows the hosts that a volume is attached to; whether one has an
    agent is in the database. Volumes need no row there: one that was attached
    just now is not reported yet.

    :param database: the conductor's
    :param agents: RPC client of hosts
    """

    target = conductor_holds_api.HoldsAPI.target()

    def __init__(self, database: engine.Database,
                 agents: agent_volumes_api.AgentVolumesAPI) -> None:
        self._database = database
        self._agents = agents

    @oslo_messaging.expose
    def begin_hold(self, ctxt: contexts.RequestContext, host: str,
                   volume_id: str, hold_id: str, lease: float) -> None:
        """Have a volume kept out of write-back on a host."""
        self._check(host)
        self._agents.begin_hold(ctxt, host, volume_id, hold_id, lease)

    @oslo_messaging.expose
    def renew_hold(self, ctxt: contexts.RequestContext, host: str,
                   volume_id: str, hold_id: str, lease: float) -> None:
        """Have a hold last longer."""
        self._check(host)
        self._agents.renew_hold(ctxt, host, volume_id, hold_id, lease)

    @oslo_messaging.expose
    def end_hold(self, ctxt: contexts.RequestContext, host: str,
                 volume_id: str, hold_id: str) -> None:
        """End a hold."""
        self._check(host)
        self._agents.end_hold(ctxt, host, volume_id, hold_id)

    @oslo_messaging.expose
    def begin_queue(self, ctxt: contexts.RequestContext, host: str,
                    volume_id: str, seconds: float) -> None:
        """Have a volume's writes wait."""
        self._check(host)
        self._agents.begin_queue(ctxt, host, volume_id, seconds)

    @oslo_messaging.expose
    def end_queue(self, ctxt: contexts.RequestContext, host: str,
                  volume_id: str) -> None:
        """Have a volume's writes go on."""
        self._check(host)
        self._agents.end_queue(ctxt, host, volume_id)

    @oslo_messaging.expose
    def follow_type(self, ctxt: contexts.RequestContext, host: str,
                    volume_id: str, settings: dict[str, typing.Any]) -> None:
        """Have a volume follow its new type; the host reports it later."""
        self._check(host)
        self._agents.follow_type(ctxt, host, volume_id, settings)

    def _check(self, host: str) -> None:
        """Check that a host has an agent, without which nothing is cached.

        :raises NotFound: it is not registered
        """
        self._database.read(host_rows.host_id, host)
