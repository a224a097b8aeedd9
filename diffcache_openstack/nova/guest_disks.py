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
"""Disks of the SSD cache in libvirt's documents of servers."""

import dataclasses
import pathlib
import typing
from xml.etree import ElementTree

from diffcache_openstack.common import exceptions

# The type of disks whose requests bypass QEMU.
VHOST = 'vhostuser'
# What libvirt has before the names that its users give to devices.
_ALIAS = 'ua-'


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk of a server that is a volume of the cache.

    :ivar volume_id: None if the document does not say
    :ivar device: its name in the guest, such as vdb
    :ivar export: name of the volume's export
    :ivar is_vhost: it is reached by vhost-user, and not by NBD
    :ivar element: of the document
    """

    volume_id: str | None
    device: str
    export: str
    is_vhost: bool
    element: typing.Any


def volume_id(element: typing.Any) -> str | None:
    """Return the volume that a disk is.

    Nova has its ID as the serial number, and as the device's name. Disks of
    vhost-user have that alone.

    :param element: of the disk
    """
    serial, alias = element.findtext('serial'), element.find('alias')
    if serial or alias is None:
        return serial
    name = alias.get('name', '')
    return name.removeprefix(_ALIAS) if name.startswith(_ALIAS) else None


def cached(document: str) -> list[Disk]:
    """Return the disks of a server that QEMU reaches through the cache."""
    # Written by libvirt, which escapes what users choose.
    tree = ElementTree.fromstring(document)  # nosec B314
    return [found for element in tree.iterfind('devices/disk')
            if (found := _disk(element)) is not None]


def _disk(element: typing.Any) -> Disk | None:
    source, target = element.find('source'), element.find('target')
    if source is None or target is None:
        return None
    kind, export = element.get('type'), None
    if kind == VHOST:
        # The socket of a volume has the name of its export.
        export = pathlib.PurePath(source.get('path', '')).name
    elif kind == 'network' and source.get('protocol') == 'nbd' \
            and source.find("host[@transport='unix']") is not None:
        export = source.get('name')
    if not export:
        return None
    return Disk(volume_id(element), target.get('dev'), export, kind == VHOST,
                element)


def find(document: str, wanted: str) -> Disk | None:
    """Return the disk of a volume, if QEMU reaches it through the cache.

    :param document: libvirt's, of a server
    :param wanted: ID of the volume
    """
    return next((disk for disk in cached(document)
                 if disk.volume_id == wanted), None)


def volume_ids(document: str) -> list[str]:
    """Return the volumes that QEMU reaches through the cache."""
    return [disk.volume_id for disk in cached(document) if disk.volume_id]


def refuse_vhost(document: str, volume_id: str | None = None) -> None:
    """Refuse what QEMU cannot do with volumes whose requests bypass it.

    :param volume_id: that it is about; None for all of the server
    :raises Conflict: the server has one
    """
    found = [disk.volume_id or disk.device for disk in cached(document)
             if disk.is_vhost and volume_id in (None, disk.volume_id)]
    if found:
        raise exceptions.Conflict(
            f'Volume {", ".join(found)} is reached by vhost-user, so that QEMU'
            f' can neither copy nor migrate it. Detach it, or stop the'
            f' server and migrate it cold.')
