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
"""Snapshots and backups of volumes in write-back, from Cinder's notifications.

Cinder reads the volume, which lacks what is dirty in the SSD cache of a host.
It does not wait for those who listen: the snapshot may be older than the end
of the flush.
"""

from oslo_log import log

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import notifications
from diffcache_openstack.conductor import volume_caches

LOG = log.getLogger(__name__)

# Of single snapshots, also those of groups of volumes.
BEGUN = r'^(snapshot|backup)\.create\.start$'


class Snapshots:
    """Has volumes flushed of which Cinder begins a snapshot or a backup.

    :param volumes: in the SSD caches of hosts
    """

    def __init__(self, volumes: volume_caches.VolumeCaches) -> None:
        self._volumes = volumes
        self._context = contexts.RequestContext.for_service('conductor')

    def handlers(self) -> dict[str, notifications.Handler]:
        """Return what processes which notifications."""
        return {BEGUN: self.begun}

    def begun(self, notification: dict) -> None:
        """Have the volume of a snapshot or a backup flushed.

        It is not repeated: the snapshot is complete by then.

        :raises KeyError: it is no such notification
        """
        payload = notification['payload']
        kind = notification['event_type'].partition('.')[0]
        volume_id, name = payload['volume_id'], payload[f'{kind}_id']
        if payload.get('snapshot_id') and kind == 'backup':
            return  # Cinder reads the snapshot, not the volume.
        try:
            self._volumes.flush_volume(self._context, volume_id)
        except exceptions.NotFound:
            return  # It is in no cache.
        except exceptions.DiffCacheError as error:
            LOG.error('Volume %s was not flushed for %s %s, which may lack'
                      ' what its server wrote last. Flush the volume'
                      ' ("openstack volume cache flush %s") and repeat the %s:'
                      ' %s', volume_id, kind, name, volume_id, kind, error)
            return
        LOG.info('Volume %s was flushed for %s %s', volume_id, kind, name)
