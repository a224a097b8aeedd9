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
"""Client side of the conductor RPC API for versions of servers.

The REST API requests work; agents report their progress.
"""

import typing

from oslo_config import cfg
import oslo_messaging

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import messaging
from diffcache_openstack.common import rpc_history
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from diffcache_openstack.rpc import conductor_api

NAMESPACE = 'versions'
HISTORY = rpc_history.History({
    '1.0': ('create_version', 'update_version', 'delete_version',
            'restore_version', 'export_version', 'diff_versions',
            'verify_versions', 'cancel_task', 'set_policy', 'unset_policy',
            'report_task', 'begin_local', 'read_head', 'move_head',
            'rotate_key', 'open_version', 'close_version'),
})
VERSION = HISTORY.latest


class VersionsAPI:
    """Client side of the API for versions.

    All methods raise ServiceUnavailable if no conductor answers.
    """

    def __init__(self, bus: messaging.Bus, conf: cfg.ConfigOpts):
        target = oslo_messaging.Target(
            topic=conductor_api.TOPIC, namespace=NAMESPACE)
        self._client = bus.client(target, conf.conductor.rpc_timeout,
                                  HISTORY)

    def create_version(self, ctxt: contexts.RequestContext,
                       new: objects.NewVersion) -> None:
        """Save a server as a version; idempotent by the version's id.

        :raises Conflict: the server is being restored
        """
        self._client.call(ctxt, 'create_version', new=new)

    def update_version(self, ctxt: contexts.RequestContext, version_id: str,
                       generation: int, values: dict[str, typing.Any]
                       ) -> None:
        """Change a version's name, description or protection.

        :param generation: the one that the caller has seen
        :raises NotFound: there is no such version
        :raises Busy: it was changed since
        """
        self._client.call(ctxt, 'update_version', version_id=version_id,
                          generation=generation, values=values)

    def delete_version(self, ctxt: contexts.RequestContext, version_id: str
                       ) -> None:
        """Delete a version; other versions stay complete.

        :raises NotFound: there is no such version
        :raises Conflict: it is protected, or being saved
        """
        self._client.call(ctxt, 'delete_version', version_id=version_id)

    def restore_version(self, ctxt: contexts.RequestContext, version_id: str,
                        task_id: str, keep_version: str | None,
                        dry_run: bool, way: str = versions.AUTO) -> None:
        """Restore a stopped server to a version.

        :param task_id: that the task is to have
        :param keep_version: the id that the version of the server's present
            state is to have; None keeps none
        :param dry_run: only report what would be written
        :param way: one of objects.versions.METHODS
        :raises NotFound: there is no such version, or server
        :raises Conflict: the server is not stopped, or is being restored, or
            the version is not complete
        """
        chosen = {} if way == versions.AUTO else {'way': way}
        self._client.call(ctxt, 'restore_version', version_id=version_id,
                          task_id=task_id, keep_version=keep_version,
                          dry_run=dry_run, **chosen)

    def export_version(self, ctxt: contexts.RequestContext, version_id: str,
                       task_id: str, name: str) -> None:
        """Export a version as an image of its project.

        An image that it was exported as before is used if it still exists.

        :raises NotFound: there is no such version
        :raises Conflict: the version is not complete
        """
        self._client.call(ctxt, 'export_version', version_id=version_id,
                          task_id=task_id, name=name)

    def diff_versions(self, ctxt: contexts.RequestContext, version_id: str,
                      against: str, task_id: str) -> None:
        """Compare two versions.

        :raises NotFound: there is no such version
        :raises Conflict: one is not complete, or they are of two projects
        """
        self._client.call(ctxt, 'diff_versions', version_id=version_id,
                          against=against, task_id=task_id)

    def verify_versions(self, ctxt: contexts.RequestContext, project_id: str,
                        task_id: str) -> None:
        """Read and verify everything that a project has stored.

        :raises NotFound: the project has no versions
        """
        self._client.call(ctxt, 'verify_versions', project_id=project_id,
                          task_id=task_id)

    def rotate_key(self, ctxt: contexts.RequestContext, project_id: str,
                   task_id: str) -> None:
        """Replace the key of a project's store; idempotent by the task's id.

        :raises NotFound: the project has no versions
        """
        self._client.call(ctxt, 'rotate_key', project_id=project_id,
                          task_id=task_id)

    def cancel_task(self, ctxt: contexts.RequestContext, task_id: str
                    ) -> None:
        """Cancel a task; idempotent.

        :raises NotFound: there is no such task
        :raises Conflict: it cannot be interrupted
        """
        self._client.call(ctxt, 'cancel_task', task_id=task_id)

    def set_policy(self, ctxt: contexts.RequestContext,
                   policy: objects.VersionPolicy) -> str:
        """Set the policy of a server or a project; return its id."""
        return self._client.call(ctxt, 'set_policy', policy=policy)

    def unset_policy(self, ctxt: contexts.RequestContext, policy_id: str
                     ) -> None:
        """Remove a policy.

        :raises NotFound: there is no such policy
        """
        self._client.call(ctxt, 'unset_policy', policy_id=policy_id)

    def report_task(self, ctxt: contexts.RequestContext,
                    report: objects.TaskReport) -> bool:
        """Report the progress of a host with a task.

        :returns: whether to continue it
        """
        return self._client.call(ctxt, 'report_task', report=report)

    def begin_local(self, ctxt: contexts.RequestContext, host: str,
                    new: objects.NewVersion) -> tuple[
                        objects.VersionTask, bool] | None:
        """Start the version that a policy requests before an operation.

        :param new: its trigger names the operation
        :returns: the task, which the host does now, and whether the
            server's policy requires it; None if no policy requests it
        :raises Busy: it has to wait for another task of its project
        """
        answer = self._client.call(ctxt, 'begin_local', host=host, new=new)
        return None if answer is None else (answer[0], answer[1])

    def open_version(self, ctxt: contexts.RequestContext, host: str,
                     version_id: str, project_id: str
                     ) -> objects.VersionDisk:
        """Let a host read a version; return what its store has of its disk.

        The version is not deleted within the next
        :data:`.objects.versions.READ_SECONDS`; a repeated call begins them
        anew.

        :param project_id: of the server that reads it
        :raises NotFound: the project has no such version
        :raises Conflict: the version is not complete, or has several disks
        :raises Forbidden: the host has no server of the project
        :raises ServiceUnavailable: Nova does not answer
        """
        return self._client.call(ctxt, 'open_version', host=host,
                                 version_id=version_id,
                                 project_id=project_id)

    def close_version(self, ctxt: contexts.RequestContext, host: str,
                      version_id: str) -> None:
        """Note that a host reads a version no longer; idempotent."""
        self._client.call(ctxt, 'close_version', host=host,
                          version_id=version_id)

    def read_head(self, ctxt: contexts.RequestContext, host: str,
                  task_id: str, place: str) -> tuple[int, str] | None:
        """Return the head of a store that was decided last.

        :param task_id: a task of the host that changes the store of its
            project
        :param place: a hash of the store's URI
        :returns: number and digest of the catalogue; None if there is none
        :raises Forbidden: the host does not perform the task
        """
        found = self._client.call(ctxt, 'read_head', host=host,
                                  task_id=task_id, place=place)
        return None if found is None else (found[0], found[1])

    def move_head(self, ctxt: contexts.RequestContext, host: str,
                  task_id: str, place: str, base: tuple[int, str] | None,
                  head: tuple[int, str]) -> None:
        """Move the head of a store to the next catalogue; idempotent.

        The parameters are those of :meth:`read_head`.

        :param base: the catalogue that was changed; None in an empty store
        :raises Busy: another writer moved the head from there
        :raises Forbidden: the host does not perform the task
        """
        self._client.call(ctxt, 'move_head', host=host, task_id=task_id,
                          place=place, base=base, head=head)
