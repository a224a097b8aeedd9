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
"""Client side of the conductor RPC API for backups of volumes.

cinder-backup requests them; the agent of its host does the work.
"""

from diffcache_openstack.common import contexts
from diffcache_openstack import objects
from diffcache_openstack.objects import fields
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.remote_calls import wire


class BackupsAPI(remote.OutsideAPI):
    """Client side of the API for backups of volumes.

    A backup is a version of its volume, with the id that it has in Cinder.
    """

    NAMESPACE = 'backups'

    @remote.call(remote.CINDER, {
        'new': fields.ObjectField('NewVersion'), 'agent': wire.HOST})
    def begin_backup(self, ctxt: contexts.RequestContext,
                     new: objects.NewVersion, agent: str) -> str | None:
        """Return the id of the task that saves a volume; None if it is saved.

        After a task that failed, and for a host that no longer performs it,
        another one is begun. Again while it runs returns the same one.

        :param new: has the backup's id, ``volume_id`` and
            ``volume_metadata``
        :param agent: the host whose agent performs the task
        :raises Busy: it has to wait for another task of the project
        :raises Conflict: the backup is being deleted, or its id is that of
            another project's or volume's
        """

    @remote.method(remote.CINDER, {
        'backup_id': wire.UUID, 'project_id': wire.ID, 'volume_id': wire.ID,
        'agent': wire.HOST})
    def begin_restore(self, ctxt: contexts.RequestContext, backup_id: str,
                      project_id: str, volume_id: str, agent: str
                      ) -> tuple[str, str]:
        """Begin to write a backup to a volume.

        :param volume_id: of the volume that is written
        :returns: the id of the task, and the ``volume_metadata``
        :raises NotFound: the project has no such backup
        :raises Conflict: it is not complete
        """
        found = self._client.call(
            ctxt, 'begin_restore', backup_id=backup_id, project_id=project_id,
            volume_id=volume_id, agent=agent)
        return found[0], found[1]

    @remote.call(remote.CINDER, {
        'backup_id': wire.UUID, 'project_id': wire.ID})
    def delete_backup(self, ctxt: contexts.RequestContext, backup_id: str,
                      project_id: str) -> None:
        """Delete a backup; other backups of its volume stay complete.

        Work on it is cancelled. One that does not exist is no error.
        """

    @remote.call(remote.CINDER, {
        'backup_id': wire.UUID, 'project_id': wire.ID}, changes=False)
    def verify_backup(self, ctxt: contexts.RequestContext, backup_id: str,
                      project_id: str) -> None:
        """Check that a backup can be restored, as far as the database knows.

        :raises NotFound: the project has no such backup
        :raises Conflict: it is not complete
        """
