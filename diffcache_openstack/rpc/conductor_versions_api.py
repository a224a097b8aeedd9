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

from diffcache_openstack.common import contexts
from diffcache_openstack import objects
from diffcache_openstack.objects import fields
from diffcache_openstack.objects import versions
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.remote_calls import wire


class VersionsAPI(remote.API):
    """Client side of the API for versions."""

    NAMESPACE = 'versions'

    @remote.call(remote.CONTROLLER, {'new': fields.ObjectField('NewVersion')})
    def create_version(self, ctxt: contexts.RequestContext,
                       new: objects.NewVersion) -> None:
        """Save a server as a version; idempotent by the version's id.

        :raises Conflict: the server is being restored
        """

    @remote.call(remote.CONTROLLER, {
        'version_id': wire.UUID, 'generation': wire.COUNT,
        'values': wire.record(name=wire.LABEL, description=wire.TEXT,
                              protected=wire.BOOLEAN)})
    def update_version(self, ctxt: contexts.RequestContext, version_id: str,
                       generation: int, values: dict[str, typing.Any]
                       ) -> None:
        """Change a version's name, description or protection.

        :param generation: the one that the caller has seen
        :raises NotFound: there is no such version
        :raises Busy: it was changed since
        """

    @remote.call(remote.CONTROLLER, {'version_id': wire.UUID})
    def delete_version(self, ctxt: contexts.RequestContext, version_id: str
                       ) -> None:
        """Delete a version; other versions stay complete.

        :raises NotFound: there is no such version
        :raises Conflict: it is protected, or being saved
        """

    @remote.call(remote.CONTROLLER, {
        'version_id': wire.UUID, 'task_id': wire.UUID,
        'keep_version': fields.UUIDField(nullable=True),
        'dry_run': wire.BOOLEAN,
        'way': fields.EnumField(versions.METHODS, nullable=True)})
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

    @remote.call(remote.CONTROLLER, {
        'version_id': wire.UUID, 'task_id': wire.UUID, 'name': wire.LABEL,
        'device': fields.StringField(fields.DEVICE_PATTERN, nullable=True)})
    def export_version(self, ctxt: contexts.RequestContext, version_id: str,
                       task_id: str, name: str,
                       device: str | None = None) -> None:
        """Export a disk of a version as an image of its project.

        An image that the first disk was exported as before is used if it still
        exists.

        :param device: of the disk; None for the first
        :raises NotFound: there is no such version, or no such disk
        :raises Conflict: the version is not complete
        """

    @remote.call(remote.CONTROLLER, {
        'version_id': wire.UUID, 'against': wire.UUID, 'task_id': wire.UUID})
    def diff_versions(self, ctxt: contexts.RequestContext, version_id: str,
                      against: str, task_id: str) -> None:
        """Compare two versions.

        :raises NotFound: there is no such version
        :raises Conflict: one is not complete, or they are of two projects
        """

    @remote.call(remote.CONTROLLER, {
        'project_id': wire.ID, 'task_id': wire.UUID,
        'task_kind': fields.EnumField(versions.OF_STORES)})
    def maintain_store(self, ctxt: contexts.RequestContext, project_id: str,
                       task_id: str, task_kind: str) -> None:
        """Verify a project's store, copy it, or rebuild it of its copy.

        :raises NotFound: the project has no versions
        """

    @remote.call(remote.CONTROLLER, {
        'project_id': wire.ID, 'task_id': wire.UUID})
    def rotate_key(self, ctxt: contexts.RequestContext, project_id: str,
                   task_id: str) -> None:
        """Replace the key of a project's store; idempotent by the task's id.

        :raises NotFound: the project has no versions
        """

    @remote.call(remote.CONTROLLER, {'task_id': wire.UUID})
    def cancel_task(self, ctxt: contexts.RequestContext, task_id: str
                    ) -> None:
        """Cancel a task; idempotent.

        :raises NotFound: there is no such task
        :raises Conflict: it cannot be interrupted
        """

    @remote.call(remote.CONTROLLER, {
        'policy': fields.ObjectField('VersionPolicy')})
    def set_policy(self, ctxt: contexts.RequestContext,
                   policy: objects.VersionPolicy) -> str:
        """Set the policy of a server or a project; return its id."""

    @remote.call(remote.CONTROLLER, {'policy_id': wire.UUID})
    def unset_policy(self, ctxt: contexts.RequestContext, policy_id: str
                     ) -> None:
        """Remove a policy.

        :raises NotFound: there is no such policy
        """

    @remote.call(remote.HOSTS, {'report': fields.ObjectField('TaskReport')})
    def report_task(self, ctxt: contexts.RequestContext,
                    report: objects.TaskReport) -> bool:
        """Report the progress of a host with a task.

        :returns: whether to continue it
        """

    @remote.call(remote.HOSTS, {'host': wire.HOST, 'task_id': wire.UUID})
    def take_task(self, ctxt: contexts.RequestContext, host: str,
                  task_id: str) -> objects.VersionTask:
        """Return a task on a volume that a host begins to perform.

        :raises Forbidden: the task is another host's, has ended, or does not
            exist
        """

    @remote.method(remote.HOSTS, {
        'host': wire.HOST, 'new': fields.ObjectField('NewVersion')})
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

    @remote.call(remote.HOSTS, {
        'host': wire.HOST, 'version_id': wire.UUID, 'project_id': wire.ID})
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

    @remote.call(remote.HOSTS, {'host': wire.HOST, 'version_id': wire.UUID})
    def close_version(self, ctxt: contexts.RequestContext, host: str,
                      version_id: str) -> None:
        """Note that a host reads a version no longer; idempotent."""

    @remote.method(remote.HOSTS, {
        'host': wire.HOST, 'task_id': wire.UUID, 'place': wire.PLACE},
        changes=False)
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

    @remote.method(remote.HOSTS, {
        'host': wire.HOST, 'task_id': wire.UUID, 'place': wire.PLACE,
        'least': wire.THREE_NUMBERS, 'counts': wire.THREE_NUMBERS})
    def take_numbers(self, ctxt: contexts.RequestContext, host: str,
                     task_id: str, place: str, least: tuple[int, int, int],
                     counts: tuple[int, int, int]) -> tuple[int, int, int]:
        """Take numbers of packs, maps and versions that no writer has.

        A repeated call takes others. The parameters are those of
        :meth:`read_head`.

        :param least: the first numbers that no catalogue gives
        :param counts: how many of each
        :returns: the first of each
        :raises Forbidden: the host does not perform the task
        :raises InvalidInput: they are more than a save can have
        """
        pack, map_, version = self._client.call(
            ctxt, 'take_numbers', host=host, task_id=task_id, place=place,
            least=least, counts=counts)
        return pack, map_, version

    @remote.call(remote.HOSTS, {
        'host': wire.HOST, 'task_id': wire.UUID, 'place': wire.PLACE,
        'base': wire.position(nullable=True), 'head': wire.position()})
    def move_head(self, ctxt: contexts.RequestContext, host: str,
                  task_id: str, place: str, base: tuple[int, str] | None,
                  head: tuple[int, str]) -> None:
        """Move the head of a store to the next catalogue; idempotent.

        The parameters are those of :meth:`read_head`.

        :param base: the catalogue that was changed; None in an empty store
        :raises Busy: another writer moved the head from there
        :raises Forbidden: the host does not perform the task
        """
