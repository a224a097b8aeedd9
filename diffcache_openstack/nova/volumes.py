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
import typing

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.cached_volumes import write_back_notes
from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import connections
from diffcache_openstack.nova import domains
from diffcache_openstack.nova import guest_disks
from diffcache_openstack.nova import guest_paths
from diffcache_openstack.nova import tallies
from diffcache_openstack.nova import volume_departures
from diffcache_openstack.nova import volume_nodes
from diffcache_openstack.objects import volume_specs as qos
from nova import exception as nova_exception
from nova.objects import block_device

LOG = logging.getLogger(__name__)

NOT_SEEN = ('nova-compute does not find the agent\'s note that the volume is'
            ' in write-back; set [diffcache] write_back_notes.')


class VolumeCache(volume_departures.Departures):
    """The volumes that the SSD cache of this host has.

    :param client: of this host's agent
    :param tally: counts those that should be cached and are not
    :param notes: of volumes in write-back
    :param keeps_nbd: returns what keeps all volumes of a server on NBD
    """

    def __init__(self, client: local_client.LocalClient,
                 tally: tallies.Tally, notes: write_back_notes.Notes,
                 keeps_nbd: collections.abc.Callable[[typing.Any], str | None]
                 ) -> None:
        super().__init__(client, notes)
        self._tally = tally
        self._keeps_nbd = keeps_nbd
        self._migrating = threading.local()

    def passed(self, connection: connections.Connection, reason: str,
               error: Exception | None = None) -> None:
        """Count and log a volume that is not cached though its type says so.

        :param reason: short, for counts
        """
        self._tally.uncached(reason)
        LOG.warning('Volume %s is used without the SSD cache: %s',
                    connections.volume_id(connection), error or reason)

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

    def mode(self, wanted: qos.Specs, connection: connections.Connection
             ) -> str:
        """Return the mode to attach a volume with."""
        if self._source():
            return qos.PASS_THROUGH
        if wanted.mode != qos.WRITE_BACK:
            return wanted.mode
        if not connections.is_held(connection):
            self._tally.uncached('not held by Cinder')
            LOG.warning('Volume %s is cached in write-through, not in'
                        ' write-back: Cinder would not have its host write'
                        ' back what it lacks before a snapshot. Set'
                        ' volume_driver ='
                        ' diffcache_openstack.cinder.driver.load for its'
                        ' backend', connections.volume_id(connection))
            return qos.WRITE_THROUGH
        return qos.WRITE_THROUGH if self.is_replacing() else wanted.mode

    @contextlib.contextmanager
    def replacing(self, connection: connections.Connection
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
            self.give_back([connections.volume_id(connection)])
            raise
        finally:
            self._migrating.replacing = False

    def is_replacing(self) -> bool:
        """Return whether a volume takes the place of another one now."""
        return getattr(self._migrating, 'replacing', False)

    def nbd_reason(self, connection: connections.Connection,
                   instance: typing.Any,
                   mapping: block_device.BlockDeviceMapping | None
                   ) -> str | None:
        """Return why QEMU has to reach a volume by NBD; None for any way.

        :param mapping: how the server has it; None if Nova cannot tell
        """
        if self._source():
            return 'it came with a live migration'
        if self.is_replacing():
            return 'it took the place of another volume'
        if mapping is None:
            return 'Nova did not say how its server has it'
        return guest_paths.nbd_reason(connection, instance, mapping,
                                      self._keeps_nbd)

    def expect(self, connection: connections.Connection) -> None:
        """Have this host learn how a volume is used where it comes from."""
        source = self._source()
        if not source:
            return
        try:
            self.client.expect_volume(connections.volume_id(connection),
                                      source)
        except exceptions.DiffCacheError as error:
            LOG.warning('Volume %s will begin with an empty SSD cache: %s',
                        connections.volume_id(connection), error)

    def _source(self) -> str | None:
        """Return the host that a server is migrated from, if it is now."""
        return getattr(self._migrating, 'source', None)

    def show_size(self, domain: typing.Any, disk: guest_disks.Disk,
                  connection: connections.Connection, size: int | None
                  ) -> None:
        """Have a running guest see that a volume was extended.

        :param size: in bytes; None if the host could not find it out
        :raises VolumeExtendFailed: it sees the new size after a hard reboot,
            or when the volume is extended again
        """
        volume_id = connections.volume_id(connection)
        name = connections.cached_as(connection)
        with _showing(volume_id, size) as known:
            if disk.is_vhost:
                # The cache shows the guest what it finds. It has done so
                # already, unless it did not answer.
                self.client.resize_volume(name)
                return
            _check_idle(domain, disk.device)
            volume_nodes.show_size(
                domains.monitor(domain), volume_nodes.of(disk), known,
                functools.partial(self.client.disconnect_volume, name))

    def begin(self, found: collections.abc.Iterable[connections.Connection]
              ) -> None:
        """Begin to cache volumes that no other host writes any more."""
        for connection in found:
            export = connection.get('data', {}).get(connections.KEY)
            if not export or export.get('mode') != qos.PASS_THROUGH:
                continue
            try:
                wanted = qos.parse(connections.specs(connection))
                if wanted is not None:
                    mode = self.mode(wanted, connection)
                    self.client.set_volume_mode(
                        connections.volume_id(connection), mode)
                    self._check_begun(connection, mode)
            except exceptions.DiffCacheError as error:
                self.passed(connection, type(error).__name__, error)

    def _check_begun(self, connection: connections.Connection, mode: str
                     ) -> None:
        """Leave write-back if notes of such volumes are not seen here."""
        if mode != qos.WRITE_BACK or self.is_noted(connection):
            return
        volume_id = connections.volume_id(connection)
        found = self.client.ssd_cache()['volumes'].get(volume_id)
        if found and found['mode'] == mode:
            self.client.set_volume_mode(volume_id, qos.WRITE_THROUGH)
            LOG.error('Volume %s is cached in write-through: %s', volume_id,
                      NOT_SEEN)


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
