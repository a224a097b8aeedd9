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
"""Nova's volume drivers, for volumes that are cached or should be."""

import logging
import typing

from oslo_utils import excutils

from diffcache_openstack.cached_volumes import rates
from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import cached_disks
from diffcache_openstack.nova import connections
from diffcache_openstack.nova import guest_paths
from diffcache_openstack.nova import volumes
from diffcache_openstack.objects import volume_specs as qos
from nova import exception as nova_exception
from nova.virt.libvirt import config as vconfig

LOG = logging.getLogger(__name__)
KEY = connections.KEY


def around(cache: volumes.VolumeCache, driver: typing.Any,
           connection: connections.Connection) -> typing.Any:
    """Return what connects a volume: the driver, or one around it."""
    try:
        wanted = qos.parse(connections.specs(connection))
    except qos.SpecsError as error:
        cache.passed(connection, 'specs', error)
        wanted = None
    reason = connections.unsuitable(connection)
    if wanted is not None and reason is None:
        return CachedVolumeDriver(driver, wanted, cache)
    if cache.is_noted(connection):
        driver = FormerVolumeDriver(driver, cache)
    if wanted is None or reason is None:
        return driver
    cache.passed(connection, reason)
    return (RefusedVolumeDriver(driver, reason) if wanted.required
            else driver)


class CachedVolumeDriver:
    """A volume driver of Nova, and the cache behind it.

    :param driver: connects the volume to the host
    :param wanted: how it is to be cached
    :param cache: of this host
    """

    def __init__(self, driver: typing.Any, wanted: qos.Specs,
                 cache: volumes.VolumeCache) -> None:
        self._driver = driver
        self._wanted = wanted
        self._cache = cache

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._driver, name)

    def connect_volume(self, connection_info: connections.Connection,
                       instance: typing.Any) -> None:
        """Connect a volume, and attach it to the cache.

        It is used without the cache if that fails. Nova disconnects nothing
        that this refused: it is disconnected again then.

        :raises VolumeAttachFailed: it fails, and its type requires the cache,
            or the cache may have newer blocks
        """
        self._driver.connect_volume(connection_info, instance)
        try:
            self._cache_connected(connection_info, instance)
        except Exception:
            with excutils.save_and_reraise_exception():
                self._disconnect_refused(connection_info, instance)

    def _disconnect_refused(self, connection: connections.Connection,
                            instance: typing.Any) -> None:
        """Leave nothing of a volume on the host that is not used there."""
        volume_id = connections.volume_id(connection)
        try:
            self._cache.leave(connection)
        except nova_exception.VolumeDetachFailed as error:
            # It has what the volume lacks, and is to keep that.
            LOG.warning('Volume %s stays in the SSD cache of this host: %s',
                        volume_id, error)
        try:
            self._driver.disconnect_volume(connection, instance)
        except Exception:
            LOG.exception('Could not disconnect volume %s, which is not used'
                          ' here, from this host', volume_id)

    def _cache_connected(self, connection_info: connections.Connection,
                         instance: typing.Any) -> None:
        """Attach a volume that is connected to the cache.

        :raises VolumeAttachFailed: as :meth:`connect_volume`
        """
        data = connection_info['data']
        data.pop(KEY, None)
        origin = connections.origin(connection_info)
        if not origin:
            self._cache.refuse_unsaved(connection_info, 'no block device')
            self._refuse_required(connection_info, 'no block device')
            self._cache.passed(connection_info, 'no block device')
            return
        mode = self._cache.mode(self._wanted, connection_info)
        mapping = connections.mapping(connection_info, instance)
        try:
            export = self._cache.client.attach_volume(
                connections.volume_id(connection_info), {
                    **qos.settings(self._wanted), 'origin': origin,
                    'mode': mode,
                    'holdable': connections.is_held(connection_info),
                    'attachment': mapping and mapping.attachment_id,
                    'rates': _rates(connection_info),
                    'nbd_reason': self._cache.nbd_reason(
                        connection_info, instance, mapping)})
            self._check_seen(connection_info, export)
        except exceptions.DiffCacheError as error:
            self._cache.refuse_unsaved(connection_info, error)
            self._refuse_required(connection_info, error)
            self._cache.passed(connection_info, type(error).__name__, error)
            return
        if self._cache.is_replacing():
            self._cache.stay_out(connection_info)
        data[KEY] = {**export, 'mode': mode,
                     'volume': connections.volume_id(connection_info)}
        LOG.info('Volume %s is cached on the SSD, %s, and reached by %s',
                 connections.volume_id(connection_info), mode,
                 'vhost-user' if export['vhost'] else 'NBD')
        self._cache.expect(connection_info)

    def _check_seen(self, connection: connections.Connection,
                    export: dict[str, typing.Any]) -> None:
        """Check that notes of volumes in write-back are seen here.

        :raises PermanentError: they are not
        """
        if export['noted'] and not self._cache.is_noted(connection):
            self._cache.client.detach_volume(connections.volume_id(connection))
            raise exceptions.PermanentError(volumes.NOT_SEEN)

    def _refuse_required(self, connection, reason):
        if self._wanted.required:
            raise _required(connection, reason)

    def disconnect_volume(self, connection_info: connections.Connection,
                          instance: typing.Any, force: bool = False) -> None:
        """Detach a volume from the cache, and disconnect it.

        :raises VolumeDetachFailed: the cache may have newer blocks
        """
        self._cache.leave(connection_info)
        self._driver.disconnect_volume(connection_info, instance, force=force)

    def extend_volume(self, connection_info: connections.Connection,
                      instance: typing.Any, requested_size: int) -> int:
        """Extend a volume on the host, and in the cache.

        :returns: the new size in bytes
        :raises NotImplementedError: the driver cannot, and the volume is not
            cached
        """
        cached = KEY in connection_info['data']
        try:
            size = self._driver.extend_volume(connection_info, instance,
                                              requested_size)
        except NotImplementedError:
            if not cached:
                raise
            # Devices may follow by themselves; QEMU refuses one that did not.
            size = requested_size
        if not cached:
            return size
        try:
            self._cache.client.resize_volume(
                connections.cached_as(connection_info))
        except exceptions.DiffCacheError as error:
            LOG.warning('Could not resize volume %s in the SSD cache: %s',
                        connections.volume_id(connection_info), error)
        return size

    def get_config(self, connection_info: connections.Connection,
                   disk_info: dict[str, typing.Any]
                   ) -> vconfig.LibvirtConfigGuestDisk:
        """Return how QEMU reaches the volume."""
        disk = self._driver.get_config(connection_info, disk_info)
        export = connection_info['data'].get(KEY)
        # A guest that sends SCSI commands needs the device itself.
        if not export or disk.source_device != 'disk':
            return disk
        if export['vhost'] and disk.target_bus == guest_paths.BUS:
            return cached_disks.VhostDisk(disk, export)
        return cached_disks.CachedDisk(disk, export)


class FormerVolumeDriver:
    """A volume driver of Nova, for a volume that was cached in write-back.

    :param driver: connects the volume to the host
    :param cache: of this host
    """

    def __init__(self, driver: typing.Any, cache: volumes.VolumeCache) -> None:
        self._driver = driver
        self._cache = cache

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._driver, name)

    def connect_volume(self, connection_info: connections.Connection,
                       instance: typing.Any) -> None:
        """Connect a volume without the cache, which has written it back.

        :raises VolumeDetachFailed: the cache may have newer blocks
        """
        self._cache.leave(connection_info)
        self._driver.connect_volume(connection_info, instance)

    def disconnect_volume(self, connection_info: connections.Connection,
                          instance: typing.Any, force: bool = False) -> None:
        """Detach a volume from the cache, and disconnect it.

        :raises VolumeDetachFailed: the cache may have newer blocks
        """
        self._cache.leave(connection_info)
        self._driver.disconnect_volume(connection_info, instance, force=force)


class RefusedVolumeDriver:
    """A volume driver of Nova, for a volume that is to be cached and cannot.

    What is connected already, before its type required the cache, is
    disconnected as ever.

    :param driver: of the volume
    :param reason: why it cannot be cached
    """

    def __init__(self, driver: typing.Any, reason: str) -> None:
        self._driver = driver
        self._reason = reason

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._driver, name)

    def connect_volume(self, connection_info: connections.Connection,
                       instance: typing.Any) -> None:
        """Connect nothing.

        :raises VolumeAttachFailed: always
        """
        raise _required(connection_info, self._reason)


def _rates(connection: connections.Connection) -> rates.Rates:
    """Return what the cache lets a volume do per second.

    QEMU enforces what the cache cannot.
    """
    try:
        return connections.rates(connection)
    except exceptions.InvalidInput as error:
        LOG.warning('QEMU limits volume %s: %s',
                    connections.volume_id(connection), error)
        return {}


def _required(connection: connections.Connection, reason: object
              ) -> nova_exception.VolumeAttachFailed:
    """Return the refusal of a volume that is not used without the cache."""
    return nova_exception.VolumeAttachFailed(
        volume_id=connections.volume_id(connection),
        reason=f'its type requires the SSD cache: {reason}')
