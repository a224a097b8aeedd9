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
"""Hydrations of servers' images: whose they are, and what hosts report."""

import typing

from oslo_log import log
import oslo_messaging

from diffcache_openstack.cloud import servers
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.db import engine
from diffcache_openstack.db.lazy import hydrations as db
from diffcache_openstack import objects
from diffcache_openstack.rpc import agent_lazy_api
from diffcache_openstack.rpc import conductor_lazy_api

LOG = log.getLogger(__name__)


class Hydrations:
    """Stores the reports of hosts, with the projects that Nova names.

    It is an RPC endpoint; :class:`.conductor_lazy_api.LazyAPI` is the
    contract.

    :param database: the conductor's
    :param nova: asked whose the servers of a host are
    :param agents: RPC client of hosts
    """

    target = conductor_lazy_api.LazyAPI.target()

    def __init__(self, database: engine.Database, nova: servers.Servers,
                 agents: agent_lazy_api.AgentLazyAPI) -> None:
        self._database = database
        self._nova = nova
        self._agents = agents

    @oslo_messaging.expose
    def report_hydrations(self, ctxt: contexts.RequestContext, host: str,
                          hydrations: list[objects.Hydration]) -> None:
        """Replace what is known of the hydrations of a host.

        :raises NotFound: the host is not registered
        """
        owners = self._database.read(db.owners, host)
        if any(each.server_id not in owners for each in hydrations):
            owners |= self._owners(host)
        self._database.write(db.put, host, hydrations, owners)

    @oslo_messaging.expose
    def change_hydration(self, ctxt: contexts.RequestContext, server_id: str,
                         generation: int, wanted: dict[str, typing.Any]
                         ) -> None:
        """Change the hydration of a server's image on its host.

        :raises NotFound: the server runs from no image that is arriving
        :raises Conflict: the image is whole
        :raises Busy: the settings were changed since
        :raises ServiceUnavailable: the host does not answer
        """
        host = self._database.read(db.host_of, server_id)
        self._database.write(
            db.update, host, self._agents.change_hydration(
                ctxt, host, server_id, generation, wanted))

    def _owners(self, host: str) -> dict[str, str]:
        """Return the projects of a host's servers, as Nova names them."""
        try:
            return {server.id: server.project_id
                    for server in self._nova.on(host)}
        except exceptions.RetryableError as error:
            LOG.warning('Only operators see new hydrations on %s, until Nova'
                        ' answers: %s', host, error)
            return {}
