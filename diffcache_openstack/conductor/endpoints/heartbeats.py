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
"""RPC endpoint for heartbeats, which has a topic of its own.

The calls of :mod:`.agents` may take long, and as many of them as there are
threads may wait for the same lock. Here none waits for more than one batch.
"""

import oslo_messaging

from diffcache_openstack.common import contexts
from diffcache_openstack.conductor import addresses
from diffcache_openstack.conductor import heartbeats
from diffcache_openstack import objects
from diffcache_openstack.rpc import conductor_api


class HeartbeatsManager:
    """The RPC endpoint; :class:`.conductor_api.ConductorAPI` is the contract.

    :param beats: registers hosts
    :param where: checks the addresses of hosts
    """

    target = conductor_api.ConductorAPI.target()

    def __init__(self, beats: heartbeats.Heartbeats,
                 where: addresses.Addresses) -> None:
        self._heartbeats = beats
        self._addresses = where

    @oslo_messaging.expose
    def register_host(self, ctxt: contexts.RequestContext,
                      host: objects.Host) -> objects.HeartbeatAnswer:
        """Register a host, or note its heartbeat.

        :raises Forbidden: its URL is none of its site
        """
        self._addresses.check(host)
        return self._heartbeats.put(host)

    @oslo_messaging.expose
    def await_heartbeats(self, ctxt: contexts.RequestContext) -> None:
        """Return when the heartbeats that were sent before are stored."""
        self._heartbeats.settle()
