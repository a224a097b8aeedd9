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
"""Calls about versions of servers: a part of the proxy."""

import collections.abc
import typing

from openstack import exceptions
from openstack import proxy

from diffcache_openstack.client.resources import base
from diffcache_openstack.client.resources import version

Listing = collections.abc.Iterator
Progress = collections.abc.Callable[[typing.Any], None]

ENDED = ('done', 'failed', 'cancelled')


class VersionCalls(proxy.Proxy):
    """Calls about versions; mixed into :class:`.proxy.Proxy`."""

    # Defined by the class that mixes this one in.
    _wait: collections.abc.Callable[..., typing.Any]
    _change: collections.abc.Callable[..., typing.Any]

    def server_versions(self, **query: typing.Any
                        ) -> Listing[version.ServerVersion]:
        """List versions, latest first."""
        return self._list(version.ServerVersion, **query)

    def get_server_version(self, version_id: str) -> version.ServerVersion:
        """Return a version."""
        return self._get(version.ServerVersion, version_id)

    def create_server_version(self, **values: typing.Any
                              ) -> version.ServerVersion:
        """Start to save a server."""
        return self._create(version.ServerVersion, **values)

    def update_server_version(self, version_id: str, **values: typing.Any
                              ) -> version.ServerVersion:
        """Change a version; retry after a concurrent change.

        :param values: by the names of the API
        """
        return self._change(self.get_server_version, version_id, values)

    def delete_server_version(self, version_id: str) -> None:
        """Start to delete a version."""
        self._delete(version.ServerVersion, version_id,
                     ignore_missing=False)

    def restore_server_version(self, version_id: str,
                               **options: bool | str
                               ) -> version.VersionTask:
        """Start to restore a stopped server to a version.

        :param options: ``keep_current``, ``dry_run``, ``method``
        """
        return self._begin(version_id, 'restore', options)

    def export_server_version(self, version_id: str, **options: str
                              ) -> version.VersionTask:
        """Start to export a disk of a version as an image.

        :param options: ``name``, ``device``
        """
        return self._begin(version_id, 'export', options)

    def diff_server_versions(self, version_id: str, against: str
                             ) -> version.VersionTask:
        """Start to compare two versions."""
        return self._begin(version_id, 'diff', {'against': against})

    def version_tasks(self, **query: typing.Any
                      ) -> Listing[version.VersionTask]:
        """List tasks on versions, latest first."""
        return self._list(version.VersionTask, **query)

    def get_version_task(self, task_id: str) -> version.VersionTask:
        """Return a task."""
        return self._get(version.VersionTask, task_id)

    def cancel_version_task(self, task_id: str) -> version.VersionTask:
        """Cancel a task."""
        return self._get_resource(version.VersionTask, task_id).cancel(self)

    def verify_versions(self, project_id: str | None = None
                        ) -> version.VersionTask:
        """Start to verify a project's whole version store."""
        values = {} if project_id is None else {'project_id': project_id}
        return self._task('/version-tasks/verify', {'verify': values})

    def replicate_versions(self, project_id: str | None = None,
                           from_copy: bool = False) -> version.VersionTask:
        """Start to have the copy of a project's store follow it.

        :param from_copy: create the store, which must be empty, of its copy
        """
        values: dict[str, typing.Any] = (
            {} if project_id is None else {'project_id': project_id})
        if from_copy:
            values['from_copy'] = True
        return self._task('/version-tasks/replicate', {'replicate': values})

    def get_version_store(self, project_id: str) -> version.VersionStore:
        """Return the store of a project's versions."""
        return self._get(version.VersionStore, project_id)

    def version_policies(self, **query: typing.Any
                         ) -> Listing[version.VersionPolicy]:
        """List policies by ID."""
        return self._list(version.VersionPolicy, **query)

    def set_version_policy(self, **values: typing.Any
                           ) -> version.VersionPolicy:
        """Replace the policy of a server or the project."""
        return self._create(version.VersionPolicy, **values)

    def unset_version_policy(self, policy_id: str) -> None:
        """Delete a policy."""
        self._delete(version.VersionPolicy, policy_id,
                     ignore_missing=False)

    def wait_for_server_version(self, version_id: str, timeout: float,
                                interval: float = 1.0,
                                progress: Progress | None = None
                                ) -> version.ServerVersion:
        """Wait until saving a version has succeeded or failed.

        :param timeout: seconds
        :param progress: called with the version's task after each poll
        :raises ResourceTimeout: it takes longer
        """
        def is_done(found):
            if progress is not None and found.task:
                progress(version.VersionTask(**found.task))
            return found.state != 'saving'

        return self._wait(lambda: self.get_server_version(version_id),
                          is_done, timeout, interval)

    def wait_for_version_task(self, task_id: str, timeout: float,
                              interval: float = 1.0,
                              progress: Progress | None = None
                              ) -> version.VersionTask:
        """Wait until a task has ended.

        :param timeout: seconds
        :param progress: called with the task after each poll
        :raises ResourceTimeout: it takes longer
        """
        def is_done(task):
            if progress is not None:
                progress(task)
            return task.state in ENDED

        return self._wait(lambda: self.get_version_task(task_id), is_done,
                          timeout, interval)

    def _begin(self, version_id, action, values):
        return self._task(f'/versions/{base.part(version_id)}/{action}',
                          {action: values})

    def _task(self, path, document):
        response = self.post(path, json=document,
                             microversion=base.MAX_MICROVERSION)
        exceptions.raise_from_response(response)
        return version.VersionTask.existing(
            connection=self._get_connection(),
            **response.json()['version_task'])
