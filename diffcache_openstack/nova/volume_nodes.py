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
import typing
from xml.etree import ElementTree

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import qemu_monitor
from diffcache_openstack.nova import block_nodes


@dataclasses.dataclass(frozen=True)
class CachedDisk:
    """A disk of a running server that is an export of the cache.

    :ivar device: its name in the guest, such as vdb
    :ivar layer: its nodes in QEMU
    :ivar waits: QEMU repeats requests when the connection to the cache ends
    """

    device: str
    layer: block_nodes.Layer
    waits: bool


def find(document: str, volume_id: str) -> CachedDisk | None:
    """Return the disk of a volume, if QEMU reaches it through the cache.

    :param document: libvirt's, of a running server
    """
    # Written by libvirt, which escapes what users choose.
    tree = ElementTree.fromstring(document)  # nosec B314
    for disk in tree.iterfind("devices/disk[@type='network']"):
        source = disk.find("source[@protocol='nbd'][@index]")
        host = disk.find("source/host[@transport='unix']")
        target = disk.find('target')
        if source is not None and host is not None and target is not None \
                and disk.findtext('serial') == volume_id:
            return CachedDisk(target.attrib['dev'],
                              _layer(disk, source, host, volume_id),
                              source.find('reconnect') is not None)
    return None


def volume_ids(document: str) -> list[str]:
    """Return the volumes that QEMU reaches through the cache.

    :param document: libvirt's, of a running server
    """
    tree = ElementTree.fromstring(document)  # nosec B314
    return [serial for disk in tree.iterfind("devices/disk[@type='network']")
            if disk.find("source[@protocol='nbd']/host[@transport='unix']")
            is not None and (serial := disk.findtext('serial'))]


def show_size(monitor: qemu_monitor.Monitor, disk: CachedDisk, size: int,
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


def _find_top(monitor: qemu_monitor.Monitor, disk: CachedDisk
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


def _layer(disk: typing.Any, source: typing.Any, host: typing.Any,
           volume_id: str) -> block_nodes.Layer:
    """Return the nodes of a disk, with the options that libvirt gave them."""
    driver = disk.find('driver').attrib
    shared = {'discard': driver['discard']} if 'discard' in driver else {}
    storage = {**shared, 'driver': 'nbd', 'auto-read-only': True,
               'server': {'type': 'unix', 'path': host.get('socket')},
               'export': source.get('name')}
    reconnect = source.find('reconnect')
    if reconnect is not None:
        storage['reconnect-delay'] = int(reconnect.get('delay'))
    form = {**shared, 'read-only': disk.find('readonly') is not None}
    if 'detect_zeroes' in driver:
        form['detect-zeroes'] = driver['detect_zeroes']
    return block_nodes.Layer(f'volume {volume_id}', source.get('index'),
                             storage, form)
