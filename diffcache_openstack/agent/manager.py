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
"""What an agent answers over RPC."""

import typing

import oslo_messaging

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import messaging
from diffcache_openstack import objects
from diffcache_openstack.rpc import agent_api


class Worker(typing.Protocol):
    """The agent behind the endpoint; see :mod:`agent.service`."""

    def hold(self, generation: int, items: list, limits: list) -> None:
        """Take a plan's items for this host, and what jobs allow for them."""

    def site_map_changed(self, generation: int) -> None:
        """Fetch the site's map if it is newer."""

    def get_image(self, template_id: str, output: str, mode: str | None
                  ) -> objects.Request:
        """Write an image to a path."""

    def register_image(self, path: str, template_id: str, name: str
                       ) -> objects.Template:
        """Take an image file in; repositories only."""

    def verify_object(self, kind: str, object_id: str) -> None:
        """Read an object that is held; drop it if it is damaged."""

    def status(self) -> dict:
        """What is going on, as plain values."""


class AgentManager:
    """The RPC endpoint of an agent; :class:`.rpcapi.AgentAPI` calls it."""

    target = oslo_messaging.Target(version=agent_api.VERSION)

    def __init__(self, worker: Worker):
        self._worker = worker

    @messaging.exposed
    def hold(self, ctxt: contexts.RequestContext, generation: int,
             items: list, shares: list | None = None) -> None:
        """Take the part of a plan that concerns this host."""
        self._worker.hold(generation, [tuple(item) for item in items],
                          shares or [])

    @messaging.exposed
    def site_map_changed(self, ctxt: contexts.RequestContext,
                         generation: int) -> None:
        """Learn that the site's map has a new generation."""
        self._worker.site_map_changed(generation)

    @messaging.exposed
    def get_image(self, ctxt: contexts.RequestContext, template_id: str,
                  output: str, mode: str | None) -> objects.Request:
        """Write an image to a path of this host."""
        return self._worker.get_image(template_id, output, mode)

    @messaging.exposed
    def register_image(self, ctxt: contexts.RequestContext, path: str,
                       template_id: str, name: str) -> objects.Template:
        """Take an image file of this host in."""
        return self._worker.register_image(path, template_id, name)

    @messaging.exposed
    def verify_object(self, ctxt: contexts.RequestContext, kind: str,
                      object_id: str) -> None:
        """Read an object that somebody received damaged."""
        self._worker.verify_object(kind, object_id)

    @messaging.exposed
    def status(self, ctxt: contexts.RequestContext) -> dict:
        """What the agent is doing."""
        return self._worker.status()


def serve(bus: messaging.Bus, host: str, worker: Worker, *more: object
          ) -> oslo_messaging.MessageHandlingServer:
    """A server, not yet started, for the agent of a host.

    :param more: endpoints of other interfaces that the agent has
    """
    target = oslo_messaging.Target(topic=agent_api.topic_of(host), server=host)
    return bus.server(target, [AgentManager(worker), *more])
