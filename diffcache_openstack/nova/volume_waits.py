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
"""Servers that wait for the SSD cache of their host."""

import collections.abc
import logging
import typing

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import guest_disks

LOG = logging.getLogger(__name__)

# Places of a volume that are logged.
_MOST = 10


class VolumeWait:
    """What volumes in the SSD cache wait for: that the cache runs.

    A server whose volume lost what it wrote is not resumed: QEMU would repeat
    the flush, and the server would continue as if nothing was lost.

    :param client: of this host's agent
    """

    what = 'volumes in the SSD cache'

    def __init__(self, client: local_client.LocalClient) -> None:
        self._client = client
        self._told: dict[str, str] = {}

    def disks(self, document: str) -> collections.abc.Collection[str]:
        """Return the names of cached volumes in libvirt's document."""
        return cached_disks(document).keys()

    def is_over(self, guest: typing.Any, document: str,
                names: collections.abc.Collection[str]) -> bool:
        """Return whether the cache runs, and lost nothing of some disks."""
        exports = cached_disks(document)
        try:
            volumes = self._client.ssd_cache()['volumes']
        except exceptions.DiffCacheError as error:
            LOG.debug('Server %s waits for the SSD cache: %s', guest.uuid,
                      error)
            return False
        wanted = {exports[name] for name in names}
        lost = {name: volume['losses'] for name, volume in volumes.items()
                if volume['export'] in wanted and volume['losses']}
        for name, losses in lost.items():
            self._tell(guest.uuid, name, losses)
        return not lost and wanted <= {
            volume['export'] for volume in volumes.values()}

    def _tell(self, server_id: str, name: str, losses: list[list[int]]
              ) -> None:
        """Log once that a server stays paused, and the next step."""
        places = ', '.join(f'{length} bytes at {start}'
                           for start, length in losses[:_MOST])
        if self._told.get(name) == places:
            return
        self._told[name] = places
        LOG.error(
            'Server %s stays paused: the storage of volume %s lost what it'
            ' wrote (%s). Mend the storage, and reboot the server hard'
            ' (openstack server reboot --hard %s), which loses what it had'
            ' not flushed; or let it continue without those writes (openstack'
            ' volume cache set --accept-loss %s)', server_id, name, places,
            server_id, name)


def cached_disks(document: str) -> dict[str, str]:
    """Return the exports of disks of the cache, by the names of the disks.

    Those that bypass QEMU are left out: their errors do not stop the server.
    """
    return {disk.device: disk.export for disk in guest_disks.cached(document)
            if not disk.is_vhost}
