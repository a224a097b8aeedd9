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
"""Volumes of Cinder through the SSD cache of their server's host.

The QoS specs of a volume's type say whether. The cache is between QEMU and
the block device that Nova connected, so that it works with any storage that
gives one, and with images of Ceph RBD.
"""

import collections.abc
import contextlib
import functools
import logging
import threading
import time
import typing

from lxml import etree
import oslo_messaging
from oslo_utils import excutils

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.cached_volumes import origins
from diffcache_openstack.cached_volumes import write_back_notes
from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import domains
from diffcache_openstack.nova import lazy_disks
from diffcache_openstack.nova import tallies
from diffcache_openstack.nova import volume_nodes
from diffcache_openstack.objects import volume_specs as qos
from nova import context as nova_context
from nova import exception as nova_exception
from nova.objects import block_device
from nova.virt import block_device as driver_block_device
from nova.virt.libvirt import config as vconfig

LOG = logging.getLogger(__name__)

# In the data of a connection, which Nova keeps with the server: how QEMU
# reaches the volume through the cache.
KEY = 'diffcache_ssd_cache'
# A volume is drained as long as it has fewer dirty blocks after this time.
_DRAIN_S = 30.0
_NOT_SEEN = ('nova-compute does not find the agent\'s note that the volume is'
             ' in write-back; set [diffcache] write_back_notes.')

Connection = dict[str, typing.Any]


_parse_disk = vconfig.LibvirtConfigGuestDisk.parse_dom
_format_disk = vconfig.LibvirtConfigGuestDisk.format_dom


def _parse_unix_disk(self: typing.Any, xmldoc: typing.Any) -> None:
    """Take a disk's fields from libvirt's document."""
    _parse_disk(self, xmldoc)
    host = xmldoc.find("source/host[@transport='unix']")
    if host is not None:
        # Nova has read a host without a name, and could not write it.
        self.source_hosts, self.source_ports = [], []
        self.unix_socket = host.get('socket')


def _format_unix_disk(self: typing.Any) -> typing.Any:
    """Return a disk as libvirt's document has it."""
    disk = _format_disk(self)
    path = getattr(self, 'unix_socket', None)
    if path is not None:
        etree.SubElement(disk.find('source'), 'host', transport='unix',
                         socket=path)
    return disk


def install() -> None:
    """Have Nova read and write disks on unix sockets: to detach them.

    Its class is changed, because Nova makes such disks of what libvirt has in
    many places, and calls the class by its name itself.
    """
    vconfig.LibvirtConfigGuestDisk.parse_dom = _parse_unix_disk
    vconfig.LibvirtConfigGuestDisk.format_dom = _format_unix_disk


class CachedDisk(vconfig.LibvirtConfigGuestDisk):
    """A disk that QEMU reaches over NBD, and waits for if it goes away."""

    def __init__(self, disk: vconfig.LibvirtConfigGuestDisk,
                 export: dict[str, typing.Any]) -> None:
        super().__init__()
        self.__dict__.update(disk.__dict__)
        self.source_type = 'network'
        self.source_protocol = 'nbd'
        self.source_path = None
        self.source_name = export['export']
        self.unix_socket = export['socket']
        # Of an image of RBD: the cache reads it, not QEMU.
        self.source_hosts, self.source_ports = [], []
        self.auth_username = self.auth_secret_uuid = None
        self.auth_secret_type = None
        # Of files and block devices only.
        self.driver_io = None
        self._delay = str(export['reconnect_delay'])

    def format_dom(self) -> typing.Any:
        """Return the element of libvirt's document."""
        disk = super().format_dom()
        # Errors while the cache does not run are not the guest's.
        lazy_disks.stop_at_errors(disk)
        etree.SubElement(disk.find('source'), 'reconnect', delay=self._delay)
        return disk


class VolumeCache:
    """Chooses the volumes that are cached.

    :param client: of this host's agent
    :param tally: counts those that should be cached and are not
    :param notes: of volumes in write-back
    """

    def __init__(self, client: local_client.LocalClient,
                 tally: tallies.Tally, notes: write_back_notes.Notes) -> None:
        self.client = client
        self._tally = tally
        self._notes = notes
        self._migrating = threading.local()
        self._leaving: set[str] = set()
        self._leaving_lock = threading.Lock()

    def around(self, driver: typing.Any, connection: Connection
               ) -> typing.Any:
        """Return what connects a volume: the driver, or one around it."""
        try:
            wanted = qos.parse(_specs(connection))
        except qos.SpecsError as error:
            self.passed(connection, 'specs', error)
            wanted = None
        reason = _unsuitable(connection)
        if wanted is not None and reason is None:
            return CachedVolumeDriver(driver, wanted, self)
        if self.is_noted(connection):
            driver = FormerVolumeDriver(driver, self)
        if wanted is None or reason is None:
            return driver
        self.passed(connection, reason)
        return (RefusedVolumeDriver(driver, reason) if wanted.required
                else driver)

    def passed(self, connection: Connection, reason: str,
               error: Exception | None = None) -> None:
        """Count and log a volume that is not cached though its type says so.

        :param reason: short, for counts
        """
        self._tally.uncached(reason)
        LOG.warning('Volume %s is used without the SSD cache: %s',
                    _volume_id(connection), error or reason)

    @contextlib.contextmanager
    def migrating(self, host: str) -> collections.abc.Iterator[None]:
        """Connect volumes within that another host still writes.

        :param host: its name
        """
        self._migrating.source = host
        try:
            yield
        finally:
            self._migrating.source = None

    def mode(self, wanted: qos.Specs, connection: Connection) -> str:
        """Return the mode to attach a volume with."""
        if self._source():
            return qos.PASS_THROUGH
        if wanted.mode != qos.WRITE_BACK:
            return wanted.mode
        if not _is_held(connection):
            self._tally.uncached('not held by Cinder')
            LOG.warning('Volume %s is cached in write-through, not in'
                        ' write-back: Cinder would not have its host write'
                        ' back what it lacks before a snapshot. Set'
                        ' volume_driver ='
                        ' diffcache_openstack.cinder.driver.load for its'
                        ' backend', _volume_id(connection))
            return qos.WRITE_THROUGH
        return qos.WRITE_THROUGH if self.is_replacing() else wanted.mode

    @contextlib.contextmanager
    def replacing(self, connection: Connection
                  ) -> collections.abc.Iterator[None]:
        """Connect a volume within that takes the place of another one.

        Neither is in write-back then. Cinder may exchange the IDs of the two
        afterwards, and the new one would be detached under another ID than it
        was attached with.

        :param connection: of the volume that is replaced
        :raises VolumeDetachFailed: the cache may have newer blocks of it
        """
        if self.is_noted(connection):
            self.stay_out(connection)
        self._migrating.replacing = True
        try:
            yield
        except Exception:
            self.give_back([_volume_id(connection)])
            raise
        finally:
            self._migrating.replacing = False

    def is_replacing(self) -> bool:
        """Return whether a volume takes the place of another one now."""
        return getattr(self._migrating, 'replacing', False)

    @contextlib.contextmanager
    def reconnecting(self) -> collections.abc.Iterator[None]:
        """Disconnect volumes within that are then connected again.

        The cache keeps those that it holds since the host was started: it
        can write their blocks back only when they are connected.
        """
        self._migrating.reconnecting = True
        try:
            yield
        finally:
            self._migrating.reconnecting = False

    def _stays_held(self, volume_id: str) -> bool:
        """Return whether a volume is held until it is connected again."""
        if not getattr(self._migrating, 'reconnecting', False):
            return False
        found = self._shown(volume_id)
        return found is not None and found.get('state') == choices.HELD

    def is_noted(self, connection: Connection) -> bool:
        """Return whether the cache may have newer blocks than a volume."""
        return self._has_note(_volume_id(connection))

    def _has_note(self, volume_id: str) -> bool:
        try:
            return self._notes.has(volume_id)
        except OSError as error:
            LOG.warning('Could not find out whether volume %s is in'
                        ' write-back: %s', volume_id, error)
            return True

    def leave(self, connection: Connection) -> None:
        """Detach a volume from the cache.

        A cache that does not answer loses nothing, unless the volume is in
        write-back: otherwise it has all that was written.

        :raises VolumeDetachFailed: the cache may have newer blocks
        """
        volume_id = _volume_id(connection)
        if self._stays_held(volume_id):
            return
        try:
            if self.is_noted(connection):
                self._drain(volume_id)
            for name in {volume_id, _cached_as(connection)}:
                self.client.detach_volume(name)
        except exceptions.DiffCacheError as error:
            if self.is_noted(connection):
                raise nova_exception.VolumeDetachFailed(
                    volume_id=volume_id, reason=self._unsaved(
                        volume_id, error)) from error
            LOG.warning('Could not detach volume %s from the SSD cache, which'
                        ' keeps it open until it is attached again: %s',
                        volume_id, error)

    def end_guest(self, exports: collections.abc.Set[str]) -> None:
        """Have the cache forget what a server that ended has lost.

        It expects to have lost what it had not flushed.

        :param exports: that it used
        """
        if not exports:
            return
        try:
            for name, volume in self.client.ssd_cache()['volumes'].items():
                if volume['export'] in exports and volume['losses']:
                    self.client.end_volume_guest(name)
        except exceptions.DiffCacheError as error:
            LOG.warning('Could not tell the SSD cache that a server ended;'
                        ' flushes of its volumes fail if their storage lost'
                        ' something: %s', error)

    def forget(self, connection: Connection) -> None:
        """Detach a volume whose server runs on another host since.

        :raises VolumeDetachFailed: the cache may have newer blocks
        """
        volume_id = _volume_id(connection)
        try:
            self.client.forget_volume(volume_id)
        except exceptions.DiffCacheError as error:
            raise nova_exception.VolumeDetachFailed(
                volume_id=volume_id, reason=self._unsaved(
                    volume_id, error)) from error

    def refuse_unsaved(self, connection: Connection, reason: typing.Any
                       ) -> None:
        """Refuse to use a volume without the blocks that it lacks.

        :raises VolumeAttachFailed: the cache may have some
        """
        if self.is_noted(connection):
            volume_id = _volume_id(connection)
            raise nova_exception.VolumeAttachFailed(
                volume_id=volume_id,
                reason=self._unsaved(volume_id, reason))

    def _unsaved(self, volume_id: str, reason: typing.Any) -> str:
        dirty = self._dirty(volume_id)
        count = 'an unknown number of' if dirty is None else dirty
        return (f'it is cached in write-back, and {count} blocks that it lacks'
                f' are in the SSD cache of this host: {reason} Repeat this'
                f' when the cache runs and the storage can be written.')

    def _dirty(self, volume_id: str) -> int | None:
        """Return the blocks that a volume lacks; None if it is unknown."""
        found = self._shown(volume_id)
        return None if found is None else found['dirty']

    def _shown(self, volume_id: str) -> dict[str, typing.Any] | None:
        """Return what the cache has of a volume; None if it is unknown."""
        try:
            return self.client.ssd_cache()['volumes'].get(volume_id)
        except exceptions.DiffCacheError:
            return None

    def _drain(self, volume_id: str) -> None:
        """Write a volume's dirty blocks back, however many they are.

        :raises Busy: they do not become fewer
        """
        before = None
        while True:
            try:
                self.client.drain_volume(volume_id, _DRAIN_S, leaves=True)
                return
            except exceptions.NotFound:
                return  # It is not attached.
            except exceptions.Busy:
                left = self._dirty(volume_id)
                if left is None or before is not None and left >= before:
                    raise
                before = left

    def stay_out(self, connection: Connection) -> None:
        """Keep a volume out of write-back until it is attached again.

        :raises VolumeDetachFailed: the cache may have newer blocks
        """
        volume_id = _volume_id(connection)
        try:
            self._drain(volume_id)
        except exceptions.DiffCacheError as error:
            if self.is_noted(connection):
                raise nova_exception.VolumeDetachFailed(
                    volume_id=volume_id, reason=self._unsaved(
                        volume_id, error)) from error
            LOG.warning('Could not keep volume %s out of write-back: %s',
                        volume_id, error)

    def prepare(self, volume_ids: collections.abc.Iterable[str],
                leaves: bool) -> None:
        """Write back what a server's volumes lack, before it is migrated.

        Without the agent, servers whose volumes lack nothing can leave.

        :param leaves: it is migrated now, and not only checked
        :raises RetryableError: it takes longer than some seconds, or the
            cache does not answer
        :raises Conflict: a volume cannot be written
        :raises NotFound: the cache has lost a volume that was in write-back
        """
        end = time.monotonic() + _DRAIN_S
        for volume_id in volume_ids:
            try:
                self.client.drain_volume(
                    volume_id, max(0.0, end - time.monotonic()), leaves)
            except exceptions.DiffCacheError as error:
                if self._has_note(volume_id):
                    raise
                if isinstance(error, exceptions.NotFound):
                    continue  # It is not attached.
                LOG.warning('Do not have volume %s cached in write-back'
                            ' before its server was migrated: %s', volume_id,
                            error)

    def give_back(self, volume_ids: collections.abc.Iterable[str]) -> None:
        """Let volumes be in write-back again, as their server stays."""
        for volume_id in volume_ids:
            try:
                self.client.give_volume_back(volume_id)
            except exceptions.NotFound:
                pass
            except exceptions.DiffCacheError as error:
                LOG.warning('Volume %s stays in write-through until it is'
                            ' attached again: %s', volume_id, error)

    @contextlib.contextmanager
    def leaving(self, server_id: str) -> collections.abc.Iterator[None]:
        """Migrate a server within, from before libvirt begins."""
        with self._leaving_lock:
            self._leaving.add(server_id)
        try:
            yield
        finally:
            with self._leaving_lock:
                self._leaving.discard(server_id)

    @contextlib.contextmanager
    def staying(self, server_id: str) -> collections.abc.Iterator[bool]:
        """Tell whether a server stays; none begins to leave within."""
        with self._leaving_lock:
            yield server_id not in self._leaving

    def expect(self, connection: Connection) -> None:
        """Have this host learn how a volume is used where it comes from."""
        source = self._source()
        if not source:
            return
        try:
            self.client.expect_volume(_volume_id(connection), source)
        except exceptions.DiffCacheError as error:
            LOG.warning('Volume %s will begin with an empty SSD cache: %s',
                        _volume_id(connection), error)

    def _source(self) -> str | None:
        """Return the host that a server is migrated from, if it is now."""
        return getattr(self._migrating, 'source', None)

    def show_size(self, domain: typing.Any, disk: volume_nodes.CachedDisk,
                  connection: Connection, size: int | None) -> None:
        """Have a running guest see that a volume was extended.

        :param size: in bytes; None if the host could not find it out
        :raises VolumeExtendFailed: it sees the new size after a hard reboot,
            or when the volume is extended again
        """
        volume_id = _volume_id(connection)
        with _showing(volume_id, size) as known:
            _check_idle(domain, disk.device)
            volume_nodes.show_size(
                domains.monitor(domain), disk, known,
                functools.partial(self.client.disconnect_volume,
                                  _cached_as(connection)))

    def begin(self, connections: collections.abc.Iterable[Connection]
              ) -> None:
        """Begin to cache volumes that no other host writes any more."""
        for connection in connections:
            export = connection.get('data', {}).get(KEY)
            if not export or export.get('mode') != qos.PASS_THROUGH:
                continue
            try:
                wanted = qos.parse(_specs(connection))
                if wanted is not None:
                    mode = self.mode(wanted, connection)
                    self.client.set_volume_mode(_volume_id(connection), mode)
                    self._check_begun(connection, mode)
            except exceptions.DiffCacheError as error:
                self.passed(connection, type(error).__name__, error)

    def _check_begun(self, connection: Connection, mode: str) -> None:
        """Leave write-back if notes of such volumes are not seen here."""
        if mode != qos.WRITE_BACK or self.is_noted(connection):
            return
        volume_id = _volume_id(connection)
        found = self.client.ssd_cache()['volumes'].get(volume_id)
        if found and found['mode'] == mode:
            self.client.set_volume_mode(volume_id, qos.WRITE_THROUGH)
            LOG.error('Volume %s is cached in write-through: %s', volume_id,
                      _NOT_SEEN)


class CachedVolumeDriver:
    """A volume driver of Nova, and the cache behind it.

    :param driver: connects the volume to the host
    :param wanted: how it is to be cached
    :param cache: of this host
    """

    def __init__(self, driver: typing.Any, wanted: qos.Specs,
                 cache: VolumeCache) -> None:
        self._driver = driver
        self._wanted = wanted
        self._cache = cache

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._driver, name)

    def connect_volume(self, connection_info: Connection,
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

    def _disconnect_refused(self, connection: Connection, instance: typing.Any
                            ) -> None:
        """Leave nothing of a volume on the host that is not used there."""
        volume_id = _volume_id(connection)
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

    def _cache_connected(self, connection_info: Connection,
                         instance: typing.Any) -> None:
        """Attach a volume that is connected to the cache.

        :raises VolumeAttachFailed: as :meth:`connect_volume`
        """
        data = connection_info['data']
        data.pop(KEY, None)
        origin = _origin(connection_info)
        if not origin:
            self._cache.refuse_unsaved(connection_info, 'no block device')
            self._refuse_required(connection_info, 'no block device')
            self._cache.passed(connection_info, 'no block device')
            return
        mode = self._cache.mode(self._wanted, connection_info)
        try:
            export = self._cache.client.attach_volume(
                _volume_id(connection_info), {
                    **qos.settings(self._wanted), 'origin': origin,
                    'mode': mode, 'holdable': _is_held(connection_info),
                    'attachment': _attachment_id(connection_info, instance)})
            self._check_seen(connection_info, export)
        except exceptions.DiffCacheError as error:
            self._cache.refuse_unsaved(connection_info, error)
            self._refuse_required(connection_info, error)
            self._cache.passed(connection_info, type(error).__name__, error)
            return
        if self._cache.is_replacing():
            self._cache.stay_out(connection_info)
        data[KEY] = {**export, 'mode': mode,
                     'volume': _volume_id(connection_info)}
        LOG.info('Volume %s is cached on the SSD, %s',
                 _volume_id(connection_info), mode)
        self._cache.expect(connection_info)

    def _check_seen(self, connection: Connection,
                    export: dict[str, typing.Any]) -> None:
        """Check that notes of volumes in write-back are seen here.

        :raises PermanentError: they are not
        """
        if export['noted'] and not self._cache.is_noted(connection):
            self._cache.client.detach_volume(_volume_id(connection))
            raise exceptions.PermanentError(_NOT_SEEN)

    def _refuse_required(self, connection, reason):
        if self._wanted.required:
            raise _required(connection, reason)

    def disconnect_volume(self, connection_info: Connection,
                          instance: typing.Any, force: bool = False) -> None:
        """Detach a volume from the cache, and disconnect it.

        :raises VolumeDetachFailed: the cache may have newer blocks
        """
        self._cache.leave(connection_info)
        self._driver.disconnect_volume(connection_info, instance, force=force)

    def extend_volume(self, connection_info: Connection,
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
            self._cache.client.resize_volume(_cached_as(connection_info))
        except exceptions.DiffCacheError as error:
            LOG.warning('Could not resize volume %s in the SSD cache: %s',
                        _volume_id(connection_info), error)
        return size

    def get_config(self, connection_info: Connection,
                   disk_info: dict[str, typing.Any]
                   ) -> vconfig.LibvirtConfigGuestDisk:
        """Return how QEMU reaches the volume."""
        disk = self._driver.get_config(connection_info, disk_info)
        export = connection_info['data'].get(KEY)
        # A guest that sends SCSI commands needs the device itself.
        if not export or disk.source_device != 'disk':
            return disk
        return CachedDisk(disk, export)


class FormerVolumeDriver:
    """A volume driver of Nova, for a volume that was cached in write-back.

    :param driver: connects the volume to the host
    :param cache: of this host
    """

    def __init__(self, driver: typing.Any, cache: VolumeCache) -> None:
        self._driver = driver
        self._cache = cache

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._driver, name)

    def connect_volume(self, connection_info: Connection,
                       instance: typing.Any) -> None:
        """Connect a volume without the cache, which has written it back.

        :raises VolumeDetachFailed: the cache may have newer blocks
        """
        self._cache.leave(connection_info)
        self._driver.connect_volume(connection_info, instance)

    def disconnect_volume(self, connection_info: Connection,
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

    def connect_volume(self, connection_info: Connection,
                       instance: typing.Any) -> None:
        """Connect nothing.

        :raises VolumeAttachFailed: always
        """
        raise _required(connection_info, self._reason)


def _required(connection: Connection, reason: object
              ) -> nova_exception.VolumeAttachFailed:
    """Return the refusal of a volume that is not used without the cache."""
    return nova_exception.VolumeAttachFailed(
        volume_id=_volume_id(connection),
        reason=f'its type requires the SSD cache: {reason}')


@contextlib.contextmanager
def _showing(volume_id: str, size: int | None
             ) -> collections.abc.Iterator[int]:
    """Check that a size is known, and log that a guest sees it.

    :raises VolumeExtendFailed: the guest does not see the size
    """
    try:
        if size is None:
            raise exceptions.PermanentError(
                'its new size is unknown on this host')
        yield size
    except exceptions.DiffCacheError as error:
        raise nova_exception.VolumeExtendFailed(
            volume_id=volume_id, reason=f'The server sees the new size after'
            f' a hard reboot: {error}') from error
    LOG.info('The server with volume %s sees its new size, %d bytes',
             volume_id, size)


def _check_idle(domain: typing.Any, device: str) -> None:
    """Check that no other work changes a disk.

    :raises Busy: the server is being migrated, or the disk copied
    """
    if domains.is_busy(domain, device):
        raise exceptions.Busy(
            'the server is being migrated, or its disk copied')


def _specs(connection: Connection) -> dict[str, str]:
    """Return what the type of a volume says.

    Cinder's driver of this suite adds what its extra specs say.
    """
    found = _mark(connection).get(
        'specs', connection.get('data', {}).get('qos_specs'))
    return found if isinstance(found, dict) else {}


def _is_held(connection: Connection) -> bool:
    """Return whether Cinder has a volume held before it reads it."""
    return _mark(connection).get('held') is True


def _unsuitable(connection: Connection) -> str | None:
    """Return why a volume cannot be cached, if it cannot."""
    data = connection.get('data', {})
    if connection.get('multiattach'):
        return 'multi-attach'
    if data.get('encrypted'):
        return 'encrypted'
    if data.get('access_mode') == 'ro':
        return 'read-only'
    if data.get('format', 'raw') != 'raw':
        return 'not raw'
    # A file on a share. Without Cinder's word, Nova may have to put another
    # file in front of it, which it cannot where QEMU reaches it over NBD.
    if 'export' in data and _mark(connection).get('snapshots') != 'cinder':
        return 'its snapshots are made by Nova'
    return None


def _mark(connection: Connection) -> dict[str, typing.Any]:
    """Return what Cinder's driver of this suite says of a volume."""
    found = connection.get('data', {}).get(qos.MARK)
    return found if isinstance(found, dict) else {}


def _origin(connection: Connection) -> str | None:
    """Return what the cache reads of a volume that is connected."""
    data = connection['data']
    if connection.get('driver_volume_type') != 'rbd':
        return data.get('device_path')
    user = data.get('auth_username') if data.get('auth_enabled') else None
    return origins.rbd(data['name'], user, zip(data.get('hosts') or (),
                                               data.get('ports') or ()))


def _attachment_id(connection: Connection, instance: typing.Any
                   ) -> str | None:
    """Return the ID of a volume's attachment; None if Nova cannot tell now.

    Nova removes it from what Cinder says of a connection.
    """
    volume_id = _volume_id(connection)
    try:
        found = block_device.BlockDeviceMapping.get_by_volume_and_instance(
            nova_context.get_admin_context(), volume_id, instance.uuid)
    except (nova_exception.NovaException,
            oslo_messaging.MessagingException) as error:
        LOG.warning('Could not find the attachment of volume %s: a change of'
                    ' its type holds until a hard reboot: %s', volume_id,
                    error)
        return None
    return found.attachment_id


def _cached_as(connection: Connection) -> str:
    """Return the ID that a volume was attached to the cache with.

    Cinder exchanges the IDs of the two when it has migrated one that is in
    use, and Nova those of its connection.
    """
    return str(connection['data'].get(KEY, {}).get('volume')
               or _volume_id(connection))


def _volume_id(connection: Connection) -> str:
    return str(driver_block_device.get_volume_id(connection))
