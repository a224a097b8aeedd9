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
"""The rule by which guests reach volumes of the SSD cache.

By vhost-user a request reaches the cache without QEMU, which costs the host
less. What QEMU does for a disk cannot be had there: such volumes are reached
by NBD.
"""

import collections.abc
import os
import time
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import connections
from diffcache_openstack.nova import guest_disks
import nova.conf
from nova import exception as nova_exception
from nova.objects import block_device
from nova.virt import hardware
from nova.virt.libvirt import blockinfo

CONF = nova.conf.CONF

# libvirt has vhost-user for disks of virtio alone.
BUS = 'virtio'
# libvirt 9.0 has QEMU connect again to what it was started with, and not to
# what was added since: such a disk would wait for ever after a failure.
WAS_STARTED = ('it was attached after its server was started; a hard reboot'
               ' decides anew')
# Each takes one of the eight regions of memory that a guest's process maps at
# most, and the first one two.
MOST_NODES = 4
# The agent has a cache that was stopped serve its volumes again within.
_SOCKET_SECONDS = 30.0
_PAUSE_SECONDS = 0.5


def nbd_reason(connection: connections.Connection, instance: typing.Any,
               mapping: block_device.BlockDeviceMapping,
               of_server: collections.abc.Callable[[typing.Any], str | None]
               ) -> str | None:
    """Return why QEMU has to reach a volume by NBD; None for any way.

    Encrypted volumes and those whose snapshots Nova makes are not cached.

    :param mapping: how the server has the volume
    :param of_server: what keeps all volumes of a server on NBD, if anything
    """
    data = connection['data']
    try:
        connections.rates(connection)
    except exceptions.InvalidInput as error:
        return f'its type has limits that the cache cannot enforce: {error}'
    if data.get('logical_block_size') or data.get('physical_block_size'):
        return 'its storage has a block size of its own'
    disk = blockinfo.get_info_from_bdm(
        instance, CONF.libvirt.virt_type, instance.image_meta, {
            'device_name': mapping.device_name, 'disk_bus': mapping.disk_bus,
            'device_type': mapping.device_type})
    if (disk['type'], disk['bus']) != ('disk', BUS):
        return f'it is a {disk["type"]} on the bus {disk["bus"]}'
    if mapping.boot_index == 0:
        # Firmware was not tried with it.
        return 'its server boots from it'
    if hardware.get_mem_encryption_constraint(instance.flavor,
                                              instance.image_meta):
        return 'the memory of its server is encrypted'
    return of_server(instance)


def await_sockets(document: str) -> None:
    """Wait until a server's volumes are served by vhost-user.

    QEMU would wait without end, and libvirt with it.

    :param document: of the server that is to be started
    :raises InstancePowerOnFailure: one is not
    """
    deadline = time.monotonic() + _SOCKET_SECONDS
    disks = [disk for disk in guest_disks.cached(document) if disk.is_vhost]
    while missing := [
            disk for disk in disks
            if not os.path.exists(disk.element.find('source').get('path'))]:
        if time.monotonic() > deadline:
            raise nova_exception.InstancePowerOnFailure(
                reason=f'The SSD cache does not serve volume'
                f' {missing[0].volume_id} by vhost-user any more; reboot the'
                f' server hard.')
        time.sleep(_PAUSE_SECONDS)
