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
"""Having QEMU see the new size of a volume in the SSD cache.

QEMU takes the size of an export when it connects. If it waits for the cache
when its connection ends, the cache ends it, and QEMU connects again. Otherwise
(libvirt 9.0) the node with the connection is replaced by another one.
"""

import collections.abc
import dataclasses

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import qemu_monitor
from diffcache_openstack.nova import block_nodes
from diffcache_openstack.nova import guest_disks


@dataclasses.dataclass(frozen=True)
class Nodes:
    """What QEMU has of a disk that is an export of the cache.

    :ivar device: its name in the guest, such as vdb
    :ivar layer: its nodes in QEMU
    :ivar waits: QEMU repeats requests when the connection to the cache ends
    """

    device: str
    layer: block_nodes.Layer
    waits: bool


def of(disk: guest_disks.Disk) -> Nodes:
    """Return the nodes of a disk.

    :param disk: that QEMU of a running server reaches by NBD
    """
    source = disk.element.find('source')
    return Nodes(disk.device, _layer(disk),
                 source.find('reconnect') is not None)


def show_size(monitor: qemu_monitor.Monitor, disk: Nodes, size: int,
              disconnect: collections.abc.Callable[[], None]) -> None:
    """Have a guest see the size that its volume has in the cache.

    A call that was cut off is completed by the next.

    :param size: of the volume, in bytes
    :param disconnect: has the cache end QEMU's connection
    :raises PermanentError: QEMU refused a step, or the cache has the volume
        with a smaller size
    :raises ServiceUnavailable: the server has ended, or does not answer
    """
    if not disk.waits:
        block_nodes.open_anew(monitor, disk.layer)
    top, header = _find_top(monitor, disk)
    if disk.waits:
        disconnect()
        # Any request: QEMU connects again.
        monitor.command('human-monitor-command', **{
            'command-line': f'qemu-io {top} "read 0 512"'})
    monitor.command('block_resize', **{'node-name': top,
                                       'size': size - header})


def _find_top(monitor: qemu_monitor.Monitor, disk: Nodes
              ) -> tuple[str, int]:
    """Return the node of a disk that the guest has, and the bytes below.

    Those are of an encrypted volume's header. libvirt 11.3 gives raw disks no
    node of a format: guests have that of the storage.

    :raises PermanentError: QEMU has no node of the disk
    """
    images = {node['node-name']: node['image'] for node
              in monitor.command('query-named-block-nodes', flat=True)}
    form = block_nodes.format_name(disk.layer.number)
    storage = block_nodes.storage_name(disk.layer.number)
    if form in images:
        details = images[form].get('format-specific', {}).get('data', {})
        return form, details.get('payload-offset', 0)
    if storage in images:
        return storage, 0
    raise exceptions.PermanentError(
        f'QEMU has no node {storage} of disk {disk.device}.')


def _layer(disk: guest_disks.Disk) -> block_nodes.Layer:
    """Return the nodes of a disk, with the options that libvirt gave them."""
    source = disk.element.find('source')
    driver = disk.element.find('driver').attrib
    shared = {'discard': driver['discard']} if 'discard' in driver else {}
    storage = {**shared, 'driver': 'nbd', 'auto-read-only': True,
               'server': {'type': 'unix',
                          'path': source.find('host').get('socket')},
               'export': disk.export}
    reconnect = source.find('reconnect')
    if reconnect is not None:
        storage['reconnect-delay'] = int(reconnect.get('delay'))
    form = {**shared, 'read-only': disk.element.find('readonly') is not None}
    if 'detect_zeroes' in driver:
        form['detect-zeroes'] = driver['detect_zeroes']
    return block_nodes.Layer(f'volume {disk.volume_id}', source.get('index'),
                             storage, form)
