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
"""RPC endpoint of an agent."""

import dataclasses
import typing

import oslo_messaging

from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images.delivery import serving
from diffcache_openstack.agent.images import filling
from diffcache_openstack.agent.images import host_status
from diffcache_openstack.agent.repository import arriving_images
from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.agent.repository import incoming as incomings
from diffcache_openstack.agent.repository import on_demand
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.agent.state import verifications
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.common.signing import signatures
from diffcache_openstack import objects
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import gate
from diffcache_openstack.rpc import methods
from diffcache_openstack.sites import views


class RepositoryParts(typing.NamedTuple):
    """What a repository has besides other hosts.

    :ivar images: registers images
    :ivar incoming: files that may be registered
    :ivar patches: creates patches on request
    :ivar arriving: images that are being added; None if it follows no image
        service
    """

    images: catalogue.Repository
    incoming: incomings.Incoming
    patches: on_demand.OnDemand
    arriving: arriving_images.ArrivingImages | None = None


class AgentManager:
    """The endpoint; :class:`.agent_api.AgentAPI` is the contract.

    :param host: this host's state
    :param server: writes images below allowed directories
    :param filler: follows the plan
    :param status: describes this host
    :param repository: its parts; None where this is no repository
    """

    target = agent_api.AgentAPI.target()

    def __init__(self, host: host_state.HostState, server: serving.ImageServer,
                 filler: filling.Filler, status: host_status.HostStatus,
                 repository: RepositoryParts | None = None) -> None:
        self._host = host
        self._server = server
        self._filler = filler
        self._status = status
        self._repository = repository
        self._verifications = verifications.Verifications(
            host.held, self._replace_damaged)

    @oslo_messaging.expose
    def hold(self, ctxt: contexts.RequestContext, generation: int,
             items: list, shares: list | None = None) -> None:
        """Follow the part of a plan that concerns this host.

        :raises InvalidInput: a time window of a precache job cannot be read
        """
        if self._repository is not None:
            return
        self._filler.hold(filling.FillPlan.received(generation, items,
                                                    shares or []))
        self._host.report_due.set()

    @oslo_messaging.expose
    def site_map_changed(self, ctxt: contexts.RequestContext,
                         generation: int) -> None:
        """Fetch the site's map if it is not the one in use."""
        if generation != self._host.site_map.current().generation:
            self._host.report_due.set()

    @oslo_messaging.expose
    def get_image(self, ctxt: contexts.RequestContext, image_id: str,
                  output: str, mode: str | None = None) -> objects.Request:
        """Write an image to a path of this host.

        :raises InvalidInput: the path is below none of the directories that
            images may be delivered to
        :raises NotFound: the catalogue has no such image
        """
        serving.check_mode(mode)
        return self._server.deliver_image(image_id, output, mode,
                                          contents.Watch())

    @oslo_messaging.expose
    def register_image(self, ctxt: contexts.RequestContext, path: str,
                       image_id: str, name: str) -> objects.Image:
        """Add an image file of this host to the repository.

        :raises InvalidInput: this is no repository, or the file is unusable
        :raises Conflict: the id belongs to other content already
        """
        repository = self._existing_repository()
        with repository.incoming.open(path) as opened:
            record = repository.images.register(opened, image_id, name)
        return objects.Image(**dataclasses.asdict(record))

    @oslo_messaging.expose
    def create_patch(self, ctxt: contexts.RequestContext, target: str,
                     bases: list[str], seconds: float, mbps: float
                     ) -> objects.Patch | None:
        """Create a patch that a host waits for, if that is faster.

        :raises InvalidInput: this is no repository
        :raises Busy: no further patch is created now
        """
        found = self._existing_repository().patches.create(
            on_demand.PatchRequest(target, tuple(bases), seconds, mbps))
        return None if found is None \
            else objects.Patch(**dataclasses.asdict(found))

    @oslo_messaging.expose
    def await_image(self, ctxt: contexts.RequestContext, image_id: str,
                    size: int, mbps: float) -> objects.Image | None:
        """Return an image that is just being added, if that is worth it.

        :raises InvalidInput: this is no repository
        """
        arriving = self._existing_repository().arriving
        return None if arriving is None \
            else arriving.wait(image_id, size, mbps)

    def _existing_repository(self) -> RepositoryParts:
        if self._repository is None:
            raise exceptions.InvalidInput(
                f'Host {self._host.name} is no repository; send the request'
                f' to the one whose [agent] role is "repository".')
        return self._repository

    @oslo_messaging.expose
    def verify_object(self, ctxt: contexts.RequestContext, kind: str,
                      object_id: str) -> None:
        """Verify an object that a peer received damaged; drop it if it is."""
        self._verifications.request(views.Key(kind, object_id))

    def _replace_damaged(self) -> None:
        self._host.report_due.set()
        self._filler.wake()

    @oslo_messaging.expose
    def status(self, ctxt: contexts.RequestContext) -> dict:
        """Return what the agent is doing."""
        return self._status.report()


def new_server(bus: messaging.Bus, host: str, *endpoints: object
               ) -> oslo_messaging.MessageHandlingServer:
    """Return an RPC server, not yet started, for the agent of a host."""
    target = oslo_messaging.Target(topic=remote.agent_topic(host),
                                   server=host)
    return bus.server(target, list(endpoints), gate.Gate(
        methods.AGENT, bus.security,
        signatures.MemoryLedger(bus.security.lifetime)))
