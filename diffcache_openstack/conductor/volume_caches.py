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
"""Volumes in SSD caches: whose they are, and what hosts report of them."""

import collections.abc
import typing

from oslo_log import log
import oslo_messaging

from diffcache_openstack.cloud import servers
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.db import engine
from diffcache_openstack.db import volume_caches
from diffcache_openstack import objects
from diffcache_openstack.rpc import agent_volumes_api
from diffcache_openstack.rpc import conductor_volumes_api

LOG = log.getLogger(__name__)


class VolumeCaches:
    """Stores the reports of hosts, with servers and projects of Nova.

    Changes are made by hosts, which answer with what the volume is then. It is
    an RPC endpoint; :class:`.conductor_volumes_api.VolumesAPI` is the
    contract.

    :param database: the conductor's
    :param nova: asked which server a volume is attached to
    :param agents: RPC client of hosts
    """

    target = conductor_volumes_api.VolumesAPI.target()

    def __init__(self, database: engine.Database, nova: servers.Servers,
                 agents: agent_volumes_api.AgentVolumesAPI) -> None:
        self._database = database
        self._nova = nova
        self._agents = agents

    def put(self, host: str, cache: objects.SsdCache,
            volumes: collections.abc.Sequence[objects.VolumeCache] | None
            ) -> None:
        """Replace what is known of a host's SSD cache.

        :param volumes: in it; None if they are not known
        :raises NotFound: the host is not registered
        """
        self._database.write(volume_caches.put_cache, host, cache)
        if volumes is None:
            return
        found = self._database.read(volume_caches.owners, host)
        if any(volume.id not in found for volume in volumes):
            found |= self._owners(host)
            self._warn_of_losses(host, {
                volume.id for volume in volumes} & found.keys())
        self._database.write(volume_caches.put_volumes, host, volumes, found)

    def _warn_of_losses(self, host: str, volume_ids: set[str]) -> None:
        """Log which volumes came without what a dead host has of them."""
        lost = self._database.read(volume_caches.left_behind, host,
                                   volume_ids)
        for volume_id, other in lost.items():
            LOG.error('Volume %s is used on host %s, and host %s, which does'
                      ' not answer, had it in write-back: what it had not'
                      ' written back is lost. Check the content of the'
                      ' volume.', volume_id, host, other)

    @oslo_messaging.expose
    def change_volume(self, ctxt: contexts.RequestContext, volume_id: str,
                      generation: int, settings: dict[str, typing.Any]
                      ) -> None:
        """Change settings of a volume on its host."""
        self._have_host(volume_id, lambda host: self._agents.change_volume(
            ctxt, host, volume_id, generation, settings))

    @oslo_messaging.expose
    def follow_type(self, ctxt: contexts.RequestContext, volume_id: str,
                    settings: dict[str, typing.Any]) -> None:
        """Have a volume follow its type, which was changed."""
        self._have_host(volume_id, lambda host: self._agents.follow_type(
            ctxt, host, volume_id, settings))

    @oslo_messaging.expose
    def flush_volume(self, ctxt: contexts.RequestContext, volume_id: str
                     ) -> None:
        """Have a volume's dirty blocks written back."""
        self._have_host(volume_id, lambda host: self._agents.flush_volume(
            ctxt, host, volume_id))

    @oslo_messaging.expose
    def accept_loss(self, ctxt: contexts.RequestContext, volume_id: str
                    ) -> None:
        """Have flushes succeed although a volume's storage lost blocks."""
        self._have_host(volume_id, lambda host: self._agents.accept_loss(
            ctxt, host, volume_id))

    @oslo_messaging.expose
    def invalidate_volume(self, ctxt: contexts.RequestContext, volume_id: str
                          ) -> None:
        """Have forgotten what is cached of a volume."""
        self._have_host(volume_id, lambda host: self._agents.invalidate_volume(
            ctxt, host, volume_id))

    def _have_host(self, volume_id: str,
                   work: typing.Callable[[str], objects.VolumeCache]) -> None:
        """Have the host of a volume do some work, and note its answer.

        Until hosts report it, only Nova knows that a server was migrated.

        :param work: called with the host's name; raises NotFound if the host
            does not have the volume
        :raises NotFound: it is in no cache
        :raises Busy: its server is being migrated
        :raises ServiceUnavailable: the host does not answer, or for another
            volume, which may be another host's
        """
        place = self._database.read(volume_caches.place_of, volume_id)
        host = place.host
        try:
            volume = work(host)
        except exceptions.NotFound:
            host = self._present_host(volume_id, place)
            if host == place.host:
                raise
            volume = work(host)
            LOG.info('Volume %s has moved from host %s to host %s',
                     volume_id, place.host, host)
        if volume.id != volume_id:
            raise exceptions.ServiceUnavailable(
                f'Host {host} answered for volume {volume.id} instead of'
                f' {volume_id}. Check its agent, and whether the host can be'
                f' trusted.')
        self._database.write(volume_caches.update_volume, host, volume)

    def _present_host(self, volume_id: str, place: volume_caches.VolumePlace
                      ) -> str:
        """Return where the server of a volume is that has left its host.

        :returns: the same host if Nova knows no other
        :raises Busy: the server is being migrated, or changed otherwise
        :raises ServiceUnavailable: Nova does not answer
        """
        if place.server_id is None:
            return place.host
        try:
            server = self._nova.get(place.server_id)
        except exceptions.NotFound:
            return place.host
        except exceptions.RetryableError as error:
            raise exceptions.ServiceUnavailable(
                f'Volume {volume_id} has left the SSD cache of host'
                f' {place.host}, and Nova does not say where server'
                f' {place.server_id} is. Repeat this in some seconds:'
                f' {error}') from error
        if server.host == place.host and server.task is not None:
            raise exceptions.Busy(
                f'Volume {volume_id} has left the SSD cache of host'
                f' {place.host}: the task of server {server.id} is'
                f' {server.task}. Repeat this when that is done ("openstack'
                f' server show {server.id}").')
        return server.host or place.host

    def _owners(self, host: str) -> dict[str, volume_caches.VolumeOwner]:
        """Return what Nova says of the volumes of a host's servers."""
        try:
            return {
                volume: volume_caches.VolumeOwner(server.id, server.project_id)
                for volume, server in self._nova.volumes_on(host).items()}
        except exceptions.RetryableError as error:
            LOG.warning('Only operators see new volumes in the SSD cache of'
                        ' %s, until Nova answers: %s', host, error)
            return {}
