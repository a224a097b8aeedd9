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
"""RPC endpoint for versions: of the REST API, and of agents."""

import typing

import oslo_messaging

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import messaging
from diffcache_openstack.conductor.versions import heads
from diffcache_openstack.conductor.versions import service
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from diffcache_openstack.rpc import conductor_versions_api


class VersionsManager:
    """The endpoint; :class:`.conductor_versions_api.VersionsAPI` calls it.

    :param worker: has versions saved, restored and deleted
    :param agents: RPC client, which cancels tasks
    :param store_heads: decides which writer changes a store
    """

    target = oslo_messaging.Target(namespace=conductor_versions_api.NAMESPACE,
                                   version=conductor_versions_api.VERSION)

    def __init__(self, worker: service.VersionService, agents: typing.Any,
                 store_heads: heads.StoreHeads):
        self._versions = worker
        self._heads = store_heads
        self._agents = agents

    @messaging.exposed
    def create_version(self, ctxt: contexts.RequestContext,
                       new: objects.NewVersion) -> None:
        """Start to save a server."""
        self._versions.create(new)

    @messaging.exposed
    def update_version(self, ctxt: contexts.RequestContext, version_id: str,
                       generation: int, values: dict) -> None:
        """Change what may be changed of a version."""
        self._versions.update(version_id, generation, values)

    @messaging.exposed
    def delete_version(self, ctxt: contexts.RequestContext, version_id: str
                       ) -> None:
        """Start to delete a version."""
        self._versions.delete(version_id)

    @messaging.exposed
    def restore_version(self, ctxt: contexts.RequestContext, version_id: str,
                        task_id: str, keep_version: str | None,
                        dry_run: bool, way: str = versions.AUTO) -> None:
        """Start to restore a server to a version."""
        self._versions.restore(version_id, task_id, keep_version, dry_run,
                               way)

    @messaging.exposed
    def export_version(self, ctxt: contexts.RequestContext, version_id: str,
                       task_id: str, name: str) -> None:
        """Start to export a version as an image."""
        self._versions.export(version_id, task_id, name)

    @messaging.exposed
    def diff_versions(self, ctxt: contexts.RequestContext, version_id: str,
                      against: str, task_id: str) -> None:
        """Start to compare two versions."""
        self._versions.diff(version_id, against, task_id)

    @messaging.exposed
    def verify_versions(self, ctxt: contexts.RequestContext, project_id: str,
                        task_id: str) -> None:
        """Start to verify the store of a project."""
        self._versions.verify(project_id, task_id)

    @messaging.exposed
    def rotate_key(self, ctxt: contexts.RequestContext, project_id: str,
                   task_id: str) -> None:
        """Start to replace the key of a project's store."""
        self._versions.rotate_key(project_id, task_id)

    @messaging.exposed
    def cancel_task(self, ctxt: contexts.RequestContext, task_id: str
                    ) -> None:
        """Cancel a task."""
        self._versions.cancel(ctxt, task_id, self._agents)

    @messaging.exposed
    def set_policy(self, ctxt: contexts.RequestContext,
                   policy: objects.VersionPolicy) -> str:
        """Set a policy."""
        return self._versions.set_policy(policy)

    @messaging.exposed
    def unset_policy(self, ctxt: contexts.RequestContext, policy_id: str
                     ) -> None:
        """Remove a policy."""
        self._versions.unset_policy(policy_id)

    @messaging.exposed
    def report_task(self, ctxt: contexts.RequestContext,
                    report: objects.TaskReport) -> bool:
        """Note the progress of a task; return whether it is still wanted."""
        return self._versions.report(report, ctxt.bound_host)

    @messaging.exposed
    def begin_local(self, ctxt: contexts.RequestContext, host: str,
                    new: objects.NewVersion) -> list | None:
        """Return a task for a host that is about to lose a server."""
        return self._versions.begin_local(host, new)

    @messaging.exposed
    def open_version(self, ctxt: contexts.RequestContext, host: str,
                     version_id: str, project_id: str
                     ) -> objects.VersionDisk:
        """Let a host read a version, which is not deleted meanwhile."""
        return self._versions.open(host, version_id, project_id)

    @messaging.exposed
    def close_version(self, ctxt: contexts.RequestContext, host: str,
                      version_id: str) -> None:
        """Note that a host reads a version no longer."""
        self._versions.close(host, version_id)

    @messaging.exposed
    def read_head(self, ctxt: contexts.RequestContext, host: str,
                  task_id: str, place: str) -> list | None:
        """Return the head of a store."""
        return self._heads.read(host, task_id, place)

    @messaging.exposed
    def move_head(self, ctxt: contexts.RequestContext, host: str,
                  task_id: str, place: str, base: list | None, head: list
                  ) -> None:
        """Move the head of a store to the next catalogue."""
        self._heads.move(host, task_id, place, base, head)
