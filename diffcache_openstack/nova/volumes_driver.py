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
"""Nova's libvirt driver, with volumes through the SSD cache of the host."""

import contextlib
import logging
import pathlib
import typing

import libvirt

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.cached_volumes import write_back_notes
from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import cached_disks
from diffcache_openstack.nova import connections
from diffcache_openstack.nova import domains
from diffcache_openstack.nova import guest_disks
from diffcache_openstack.nova import guest_paths
from diffcache_openstack.nova import migrated_disks
from diffcache_openstack.nova import shared_memory
from diffcache_openstack.nova import tallies
from diffcache_openstack.nova import volume_drivers
from diffcache_openstack.nova import volumes
import nova.conf
from nova import exception as nova_exception
from nova.virt import block_device as driver_block_device
from nova.virt import driver as nova_driver
from nova.virt.libvirt import driver

LOG = logging.getLogger(__name__)
CONF = nova.conf.CONF


class VolumesDriver(driver.LibvirtDriver):
    """libvirt, with volumes of Cinder in the SSD cache.

    Base of the driver that Nova loads, which calls :meth:`_open_volumes`.
    """

    _volumes: volumes.VolumeCache

    def _open_volumes(self, client: local_client.LocalClient,
                      tally: tallies.Tally) -> None:
        """Begin to cache volumes.

        :param client: of this host's agent
        """
        cached_disks.install()
        migrated_disks.install()
        self._volumes = volumes.VolumeCache(client, tally, _notes(),
                                            self._nbd_reason)

    def _give_back_volumes(self) -> None:
        """Give volumes back of migrations that ended with this service."""
        for guest in self._active_guests():
            try:
                with self._volumes.staying(guest.uuid) as stays:
                    if stays and not domains.is_migrated(guest._domain):
                        self._volumes.give_back(self._cached_volumes(guest))
            except libvirt.libvirtError as error:
                LOG.debug('Could not look at server %s: %s', guest.uuid,
                          error)

    @staticmethod
    def _cached_volumes(guest: typing.Any) -> list[str]:
        return guest_disks.volume_ids(guest._domain.XMLDesc(0))

    def _hard_reboot(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        """Start a server anew, from nothing but its disks and volumes.

        Also a server that is powered on, or resumed after a start of its host.
        """
        with self._volumes.reconnecting():
            super()._hard_reboot(*args, **kwargs)

    def cleanup(self, context: typing.Any, instance: typing.Any,
                network_info: typing.Any, block_device_info: typing.Any = None,
                *args: typing.Any, **kwargs: typing.Any) -> None:
        """Remove what a server that does not run has on this host.

        Nova ignores errors of volumes where it removes disks, too, and gives
        the volumes to others. So those in write-back are detached before.

        :raises VolumeDetachFailed: the SSD cache may have blocks that a
            volume lacks
        """
        noted = [connection for mapping
                 in nova_driver.block_device_info_get_mapping(
                     block_device_info)
                 if (connection := mapping['connection_info'])
                 and self._volumes.is_noted(connection)]
        behind = []
        if instance.host in (None, CONF.host):
            for connection in noted:
                self._volumes.leave(connection)
        else:
            behind = self._forget(instance, noted)
        with self._volumes.leaving_behind(behind):
            super().cleanup(context, instance, network_info,
                            block_device_info, *args, **kwargs)

    def _forget(self, instance: typing.Any,
                noted: list[connections.Connection]
                ) -> list[connections.Connection]:
        """Have the cache give up volumes whose server runs elsewhere since.

        Nova does this when it starts, and would not start.

        :returns: those that the cache could not give up: their notes refuse
            a later attach to this host, until it has
        """
        behind = []
        for connection in noted:
            try:
                self._volumes.forget(connection)
            except nova_exception.VolumeDetachFailed as error:
                LOG.error('Leaving a volume of server %s, which runs on host'
                          ' %s, in the SSD cache of this one: %s',
                          instance.uuid, instance.host, error)
                behind.append(connection)
        return behind

    def _destroy(self, instance: typing.Any) -> None:
        """End a server's QEMU, and tell the SSD cache that it has ended."""
        exports = self._exports(instance)
        super()._destroy(instance)
        self._volumes.end_guest(exports)

    def _exports(self, instance: typing.Any) -> set[str]:
        """Return the exports of the SSD cache that a server uses."""
        return {disk.export
                for disk in guest_disks.cached(self._document(instance))}

    def _document(self, instance: typing.Any) -> str:
        """Return what libvirt has of a server; an empty document for none."""
        try:
            return self._host.get_guest(instance)._domain.XMLDesc(0)
        except (nova_exception.NovaException, libvirt.libvirtError):
            return '<domain/>'  # It is not on this host any more.

    def _nbd_reason(self, instance: typing.Any) -> str | None:
        """Return what of a server keeps its volumes on NBD, if anything."""
        if not (CONF.libvirt.file_backed_memory > 0
                or shared_memory.is_wanted(instance.flavor)
                or instance.numa_topology is not None
                and self._wants_hugepages(self._get_host_numa_topology(),
                                          instance.numa_topology)):
            return 'the memory of its server is not shared'
        if instance.numa_topology is not None \
                and len(instance.numa_topology.cells) > guest_paths.MOST_NODES:
            return 'its server has too many NUMA nodes'
        with contextlib.suppress(nova_exception.InstanceNotFound):
            # One that was powered off, for a resize, is started anew.
            if self._host.get_guest(instance).is_active():
                return guest_paths.WAS_STARTED
        return None

    def _create_guest(self, context: typing.Any, xml: str,
                      instance: typing.Any, *args: typing.Any,
                      **kwargs: typing.Any) -> typing.Any:
        """Start a server, once its volumes are there.

        :raises InstancePowerOnFailure: one is not served by vhost-user
        """
        guest_paths.await_sockets(xml)
        return super()._create_guest(context, xml, instance, *args, **kwargs)

    def _get_guest_memory_backing_config(
            self, inst_topology: typing.Any, numatune: typing.Any,
            flavor: typing.Any, image_meta: typing.Any) -> typing.Any:
        """Return the backing of a server's memory, shared if it is to be."""
        return shared_memory.share(
            flavor, super()._get_guest_memory_backing_config(
                inst_topology, numatune, flavor, image_meta))

    def _get_volume_driver(self, connection_info: dict[str, typing.Any]
                           ) -> typing.Any:
        """Return what connects a volume, through the SSD cache or not."""
        return volume_drivers.around(
            self._volumes, super()._get_volume_driver(connection_info),
            connection_info)

    def swap_volume(self, context: typing.Any,
                    old_connection_info: dict[str, typing.Any],
                    new_connection_info: dict[str, typing.Any],
                    instance: typing.Any, mountpoint: str, resize_to: int
                    ) -> None:
        """Have a server use another volume with the content of its volume.

        Neither is in write-back then: what the old one lacks is written back
        before, as the server has left it when the new one has taken its
        place.

        :raises VolumeDetachFailed: the SSD cache may have blocks that the
            old volume lacks
        :raises VolumeRebaseFailed: QEMU cannot copy it, as its requests
            bypass it
        """
        try:
            guest_disks.refuse_vhost(
                self._document(instance),
                driver_block_device.get_volume_id(old_connection_info))
        except exceptions.Conflict as error:
            raise nova_exception.VolumeRebaseFailed(
                reason=str(error)) from error
        with self._volumes.replacing(old_connection_info):
            super().swap_volume(context, old_connection_info,
                                new_connection_info, instance, mountpoint,
                                resize_to)

    def extend_volume(self, context: typing.Any,
                      connection_info: dict[str, typing.Any],
                      instance: typing.Any, requested_size: int) -> None:
        """Extend a volume, which a running guest sees at once.

        :raises VolumeExtendFailed: the guest sees it after a hard reboot
        """
        guest = self._host.get_guest(instance)
        # A guest that is stopped sees the size when it is started.
        disk = guest_disks.find(
            guest._domain.XMLDesc(0), driver_block_device.get_volume_id(
                connection_info)) if guest.is_active() else None
        if disk is None:
            super().extend_volume(context, connection_info, instance,
                                  requested_size)
            return
        size = self._extend_volume(connection_info, instance, requested_size)
        self._volumes.show_size(guest._domain, disk, connection_info, size)

    def live_migration(self, context: typing.Any, instance: typing.Any,
                       dest: str, post_method: typing.Any,
                       recover_method: typing.Any,
                       block_migration: typing.Any = False,
                       migrate_data: typing.Any = None) -> None:
        """Migrate a server whose volumes have all that it wrote.

        The check may have been a long time ago.
        """
        guest = self._host.get_guest(instance)
        with self._volumes.leaving(instance.uuid):
            try:
                guest_disks.refuse_vhost(guest._domain.XMLDesc(0))
                self._volumes.prepare(self._cached_volumes(guest),
                                      leaves=True)
            except exceptions.DiffCacheError as error:
                LOG.error('Server %s is not migrated: %s', instance.uuid,
                          error)
                recover_method(context, instance, dest, migrate_data)
                return
            super().live_migration(context, instance, dest, post_method,
                                   recover_method, block_migration,
                                   migrate_data)

    def check_can_live_migrate_source(
            self, context: typing.Any, instance: typing.Any,
            *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        """Check whether the volumes of a server can leave this host.

        Volumes leave write-back, and return to it if the server stays.

        :raises MigrationPreCheckError: a volume bypasses QEMU, or has not
            been written back yet
        """
        guest = self._host.get_guest(instance)
        try:
            guest_disks.refuse_vhost(guest._domain.XMLDesc(0))
            found = super().check_can_live_migrate_source(
                context, instance, *args, **kwargs)
            self._volumes.prepare(self._cached_volumes(guest), leaves=False)
        except exceptions.DiffCacheError as error:
            raise nova_exception.MigrationPreCheckError(
                reason=f'server {instance.uuid} cannot leave: {error}'
            ) from error
        return found

    def pre_live_migration(self, context: typing.Any, instance: typing.Any,
                           *args: typing.Any, **kwargs: typing.Any
                           ) -> typing.Any:
        """Prepare for volumes that another host still writes."""
        with self._volumes.migrating(instance.host):
            return super().pre_live_migration(context, instance, *args,
                                              **kwargs)

    def rollback_live_migration_at_source(
            self, context: typing.Any, instance: typing.Any,
            migrate_data: typing.Any) -> None:
        """Return to the state before a live migration that failed."""
        super().rollback_live_migration_at_source(context, instance,
                                                  migrate_data)
        with contextlib.suppress(nova_exception.InstanceNotFound):
            self._volumes.give_back(self._cached_volumes(
                self._host.get_guest(instance)))

    def post_live_migration_at_destination(
            self, context: typing.Any, instance: typing.Any,
            network_info: typing.Any, block_migration: bool = False,
            block_device_info: typing.Any = None) -> None:
        """Complete a live migration, and begin to cache the volumes."""
        super().post_live_migration_at_destination(
            context, instance, network_info, block_migration,
            block_device_info)
        self._volumes.begin(
            mapping['connection_info'] for mapping in
            nova_driver.block_device_info_get_mapping(block_device_info))


def _notes() -> write_back_notes.Notes:
    group = CONF.diffcache
    return write_back_notes.Notes(pathlib.Path(
        group.write_back_notes
        or pathlib.Path(group.socket).with_name(write_back_notes.NAME)))
