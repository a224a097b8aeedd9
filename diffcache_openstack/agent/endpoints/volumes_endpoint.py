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
"""RPC endpoint of an agent for volumes in its host's SSD cache."""

import oslo_messaging

from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import volume_reports
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.remote_calls import conductor_holds_api
from diffcache_openstack.rpc import agent_volumes_api


class VolumesManager:
    """The endpoint; :class:`.agent_volumes_api.AgentVolumesAPI` calls it.

    :param volumes: in the SSD cache; None on a host without one
    """

    target = agent_volumes_api.AgentVolumesAPI.target()

    def __init__(self, volumes: cached_volumes.CachedVolumes | None):
        self._volumes = volumes

    @oslo_messaging.expose
    def change_volume(self, ctxt: contexts.RequestContext, volume_id: str,
                      generation: int, settings: dict) -> objects.VolumeCache:
        """Change settings of a volume."""
        self._need().change(volume_id, generation, settings)
        return volume_reports.volume(self._need(), volume_id)

    @oslo_messaging.expose
    def follow_type(self, ctxt: contexts.RequestContext, volume_id: str,
                    settings: dict) -> objects.VolumeCache:
        """Have a volume follow its type, which was changed."""
        self._need().follow_type(volume_id, settings)
        return volume_reports.volume(self._need(), volume_id)

    @oslo_messaging.expose
    def flush_volume(self, ctxt: contexts.RequestContext, volume_id: str
                     ) -> objects.VolumeCache:
        """Write a volume's dirty blocks back."""
        self._need().flush(volume_id)
        return volume_reports.volume(self._need(), volume_id)

    @oslo_messaging.expose
    def accept_loss(self, ctxt: contexts.RequestContext, volume_id: str
                    ) -> objects.VolumeCache:
        """Have flushes succeed although a volume's storage lost blocks."""
        self._need().accept_loss(volume_id)
        return volume_reports.volume(self._need(), volume_id)

    @oslo_messaging.expose
    def invalidate_volume(self, ctxt: contexts.RequestContext, volume_id: str
                          ) -> objects.VolumeCache:
        """Forget what is cached of a volume."""
        self._need().invalidate(volume_id)
        return volume_reports.volume(self._need(), volume_id)

    @oslo_messaging.expose
    def begin_hold(self, ctxt: contexts.RequestContext, volume_id: str,
                   hold_id: str, lease: float) -> None:
        """Write a volume's dirty blocks back, and keep it so."""
        self._need().hold(volume_id, hold_id, lease,
                          conductor_holds_api.WAIT_SECONDS)

    @oslo_messaging.expose
    def renew_hold(self, ctxt: contexts.RequestContext, volume_id: str,
                   hold_id: str, lease: float) -> None:
        """Have a hold last longer."""
        self._need().renew_hold(volume_id, hold_id, lease)

    @oslo_messaging.expose
    def end_hold(self, ctxt: contexts.RequestContext, volume_id: str,
                 hold_id: str) -> None:
        """End a hold."""
        self._need().end_hold(volume_id, hold_id)

    @oslo_messaging.expose
    def begin_queue(self, ctxt: contexts.RequestContext, volume_id: str,
                    seconds: float) -> None:
        """Have a volume's writes wait."""
        self._need().queue(volume_id, seconds)

    @oslo_messaging.expose
    def end_queue(self, ctxt: contexts.RequestContext, volume_id: str
                  ) -> None:
        """Have a volume's writes go on."""
        self._need().end_queue(volume_id)

    @oslo_messaging.expose
    def volume_use(self, ctxt: contexts.RequestContext, volume_id: str
                   ) -> objects.VolumeUse:
        """Return how a volume is used here, for the host that it moves to."""
        return volume_reports.use(self._need(), volume_id)

    def _need(self) -> cached_volumes.CachedVolumes:
        if self._volumes is None:
            raise exceptions.NotFound(
                'This host has no SSD cache; set [ssd_cache] control.')
        return self._volumes
