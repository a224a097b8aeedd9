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
"""Servers that version policies save, and which volumes with them."""

import collections.abc

from oslo_log import log

from diffcache_openstack.cloud import servers as nova
from diffcache_openstack.cloud import volumes as cinder
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects

LOG = log.getLogger(__name__)


class PolicyServers:
    """Servers of policies, as Nova and Cinder show them to the conductor."""

    def __init__(self, servers: nova.Servers, volumes: cinder.Volumes
                 ) -> None:
        self._servers = servers
        self._volumes = volumes

    def of(self, policy: objects.VersionPolicy,
           others: collections.abc.Container[str]) -> list[nova.Server]:
        """Return the servers that a policy saves.

        :param others: servers with a policy of their own
        :raises ServiceUnavailable: Nova does not answer
        """
        if policy.server_id is None:
            return [server for server
                    in self._servers.of_project(policy.project_id)
                    if server.id not in others]
        try:
            return [self._servers.get(policy.server_id)]
        except exceptions.NotFound:
            return []  # Deleted; the policy still drops its versions.

    def volumes(self, server: nova.Server) -> list[str]:
        """Return the volumes that a policy saves with a server's disks.

        Those that cannot be saved are left out, which is logged: a policy has
        no user to tell, and the disks are worth saving without them.

        :raises ServiceUnavailable: Cinder does not answer
        """
        chosen, left_out = [], {}
        for each in server.volumes:
            reason = self._reason(server, each)
            if reason is None:
                chosen.append(each)
            else:
                left_out[each] = reason
        if left_out:
            LOG.warning(
                'The policy of server %s saves it without %s', server.id,
                ', '.join(f'volume {each} ({reason})'
                          for each, reason in left_out.items()))
        return chosen

    def _reason(self, server, volume_id):
        """Return why a volume cannot be saved; None if it can."""
        if not server.shows_volumes:
            return f'the server is {server.status}'
        try:
            volume = self._volumes.get_as_service(volume_id)
        except exceptions.PermanentError as error:
            return str(error)
        if volume.project_id != server.project_id:
            return 'of another project'
        return volume.unsaveable
