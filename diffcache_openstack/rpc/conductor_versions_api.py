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
"""Having servers saved and restored: the conductor's interface for it.

The REST API asks for work; agents tell how far they are with it.
"""

import typing

from oslo_config import cfg
import oslo_messaging

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import messaging
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from diffcache_openstack.rpc import conductor_api

NAMESPACE = 'versions'
VERSION = '1.1'


class VersionsAPI:
    """The interface, seen from a client.

    All methods raise ServiceUnavailable if no conductor answers.

    Version history:

    * 1.0: first version
    * 1.1: ``way`` of restore_version
    """

    def __init__(self, bus: messaging.Bus, conf: cfg.ConfigOpts):
        target = oslo_messaging.Target(
            topic=conductor_api.TOPIC, namespace=NAMESPACE, version=VERSION)
        self._client = bus.client(target, conf.conductor.rpc_timeout)

    def create_version(self, ctxt: contexts.RequestContext,
                       new: objects.NewVersion) -> None:
        """Have a server saved; a version whose id is known is left alone.

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
        """Have a version deleted; others stay whole.

        :raises NotFound: there is no such version
        :raises Conflict: it is protected, or being saved
        """
        self._client.call(ctxt, 'delete_version', version_id=version_id)

    def restore_version(self, ctxt: contexts.RequestContext, version_id: str,
                        task_id: str, keep_version: str | None,
                        dry_run: bool, way: str = versions.AUTO) -> None:
        """Have a stopped server go back to a version.

        :param task_id: that the task is to have
        :param keep_version: the id that the version of the server's present
            state is to have; None keeps none
        :param dry_run: only tell what would be written
        :param way: one of objects.versions.METHODS
        :raises NotFound: there is no such version, or server
        :raises Conflict: the server is not stopped, or is being restored, or
            the version is not complete
        """
        self._client.call(ctxt, 'restore_version', version_id=version_id,
                          task_id=task_id, keep_version=keep_version,
                          dry_run=dry_run, way=way)

    def export_version(self, ctxt: contexts.RequestContext, version_id: str,
                       task_id: str, name: str) -> None:
        """Have a version made an image of its project.

        An image that was made of it before, and is still there, will do.

        :raises NotFound: there is no such version
        :raises Conflict: the version is not complete
        """
        self._client.call(ctxt, 'export_version', version_id=version_id,
                          task_id=task_id, name=name)

    def diff_versions(self, ctxt: contexts.RequestContext, version_id: str,
                      against: str, task_id: str) -> None:
        """Have two versions compared.

        :raises NotFound: there is no such version
        :raises Conflict: one is not complete, or they are of two projects
        """
        self._client.call(ctxt, 'diff_versions', version_id=version_id,
                          against=against, task_id=task_id)

    def verify_versions(self, ctxt: contexts.RequestContext, project_id: str,
                        task_id: str) -> None:
        """Have all that a project has stored read and verified.

        :raises NotFound: the project has no versions
        """
        self._client.call(ctxt, 'verify_versions', project_id=project_id,
                          task_id=task_id)

    def cancel_task(self, ctxt: contexts.RequestContext, task_id: str
                    ) -> None:
        """Cancel a task; again is no error.

        :raises NotFound: there is no such task
        :raises Conflict: it has to be brought to its end
        """
        self._client.call(ctxt, 'cancel_task', task_id=task_id)

    def set_policy(self, ctxt: contexts.RequestContext,
                   policy: objects.VersionPolicy) -> str:
        """Set the policy of a server or a project; returns its id."""
        return self._client.call(ctxt, 'set_policy', policy=policy)

    def unset_policy(self, ctxt: contexts.RequestContext, policy_id: str
                     ) -> None:
        """Take a policy away.

        :raises NotFound: there is no such policy
        """
        self._client.call(ctxt, 'unset_policy', policy_id=policy_id)

    def report_task(self, ctxt: contexts.RequestContext,
                    report: objects.TaskReport) -> bool:
        """Tell how far a host is with a task.

        :returns: whether to go on with it
        """
        return self._client.call(ctxt, 'report_task', report=report)

    def begin_local(self, ctxt: contexts.RequestContext, host: str,
                    new: objects.NewVersion) -> tuple[
                        objects.VersionTask, bool] | None:
        """Ask whether a server is to be saved before it goes.

        :param new: its trigger says where it goes
        :returns: the task, which is the host's to do now, and whether the
            server's policy requires it; None if no policy asks for it
        :raises Busy: it has to wait for another task of its project
        """
        answer = self._client.call(ctxt, 'begin_local', host=host, new=new)
        return None if answer is None else (answer[0], answer[1])
