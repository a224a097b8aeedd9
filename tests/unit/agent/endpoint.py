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
"""The RPC endpoint of an agent that is a plain object of a test."""

import oslo_messaging

from diffcache_openstack.agent.endpoints import agent_endpoint


class Endpoint:
    """Has an object answer the agent's interface."""

    target = agent_endpoint.AgentManager.target

    def __init__(self, answers):
        self._answers = answers

    @oslo_messaging.expose
    def hold(self, ctxt, generation, items, shares=None):
        self._answers.hold(generation, [tuple(item) for item in items],
                           shares or [])

    @oslo_messaging.expose
    def site_map_changed(self, ctxt, generation):
        self._answers.site_map_changed(generation)

    @oslo_messaging.expose
    def get_image(self, ctxt, image_id, output, mode=None):
        return self._answers.get_image(image_id, output, mode)

    @oslo_messaging.expose
    def register_image(self, ctxt, path, image_id, name):
        return self._answers.register_image(path, image_id, name)

    @oslo_messaging.expose
    def create_patch(self, ctxt, target, bases, seconds, mbps):
        return self._answers.create_patch(target, bases, seconds, mbps)

    @oslo_messaging.expose
    def verify_object(self, ctxt, kind, object_id):
        self._answers.verify_object(kind, object_id)

    @oslo_messaging.expose
    def status(self, ctxt):
        return self._answers.status()


def server(bus, host, answers, *more):
    """An RPC server, not yet started, of such an agent."""
    return agent_endpoint.new_server(bus, host, Endpoint(answers), *more)
