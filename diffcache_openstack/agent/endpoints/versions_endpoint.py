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
"""RPC endpoint of an agent for tasks on versions."""

import oslo_messaging

from diffcache_openstack.agent.versions import version_service
from diffcache_openstack.common import contexts
from diffcache_openstack import objects
from diffcache_openstack.rpc import agent_versions_api


class VersionsManager:
    """The endpoint; :class:`.agent_versions_api.AgentVersionsAPI` calls it.

    :param versions: performs the tasks
    """

    target = agent_versions_api.AgentVersionsAPI.target()

    def __init__(self, versions: version_service.VersionService):
        self._versions = versions

    @oslo_messaging.expose
    def perform(self, ctxt: contexts.RequestContext,
                task: objects.VersionTask) -> None:
        """Perform a task."""
        self._versions.tasks.perform(task)

    @oslo_messaging.expose
    def cancel(self, ctxt: contexts.RequestContext, task_id: str) -> None:
        """Cancel a task."""
        self._versions.tasks.cancel(task_id)
