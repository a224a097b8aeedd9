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
"""Names of hosts as users may know them.

Users get the ID that Nova shows for the host of a server (``hostId``): it
differs by project, and equal IDs are the same host.
"""

import collections.abc
import hashlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import listing


def host_id(project_id: str | None, host: str) -> str:
    """Return the ID that Nova shows to a project for a host."""
    return hashlib.sha224(f'{project_id or ""}{host}'.encode()).hexdigest()


class HostIds:
    """Replaces names of hosts in the IDs of a precache job's targets.

    :param project_id: of the job
    :param hosts: names of the hosts of the job
    """

    def __init__(self, project_id: str | None,
                 hosts: collections.abc.Iterable[str]) -> None:
        self._ids = {host: host_id(project_id, host) for host in hosts}
        self._hosts = {each: host for host, each in self._ids.items()}

    def conceal(self, part: listing.Part) -> listing.Part:
        """Return a page of targets whose IDs have no names of hosts."""
        for entry in part.entries:
            entry['id'] = self._concealed(entry['id'])
        marker = part.next_marker
        return part._replace(
            next_marker=marker and self._concealed(marker))

    def reveal(self, target_id: str) -> str:
        """Return the ID of a target as the database knows it.

        :raises InvalidInput: the job has no such host
        """
        concealed, _separator, image_id = target_id.rpartition('/')
        host = self._hosts.get(concealed)
        if host is None:
            raise exceptions.InvalidInput(
                f'The marker {target_id} names no target; list again without'
                f' a marker.')
        return f'{host}/{image_id}'

    def _concealed(self, target_id):
        host, _separator, image_id = target_id.rpartition('/')
        return f'{self._ids[host]}/{image_id}'
