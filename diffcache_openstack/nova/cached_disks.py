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
"""Disks of servers that are volumes of the SSD cache."""

import typing

from lxml import etree

from diffcache_openstack.cached_volumes import rates
from diffcache_openstack.nova import guest_disks
from diffcache_openstack.nova import lazy_disks
from nova.virt.libvirt import config as vconfig

# What the agent says of a volume that is attached.
Export = dict[str, typing.Any]

_parse_disk = vconfig.LibvirtConfigGuestDisk.parse_dom
_format_disk = vconfig.LibvirtConfigGuestDisk.format_dom


def _parse_own_disk(self: typing.Any, xmldoc: typing.Any) -> None:
    """Take a disk's fields from libvirt's document."""
    _parse_disk(self, xmldoc)
    host = xmldoc.find("source/host[@transport='unix']")
    if host is not None:
        # Nova has read a host without a name, and could not write it.
        self.source_hosts, self.source_ports = [], []
        self.unix_socket = host.get('socket')
    if self.source_type == guest_disks.VHOST:
        self.unix_socket = xmldoc.find('source').get('path')
        # Nova finds the disks of volumes by it, which libvirt refuses here.
        self.serial = guest_disks.volume_id(xmldoc)


def _format_own_disk(self: typing.Any) -> typing.Any:
    """Return a disk as libvirt's document has it."""
    disk = _format_disk(self)
    path = getattr(self, 'unix_socket', None)
    if self.source_type == guest_disks.VHOST:
        source = etree.Element('source', type='unix', path=path)
        # Seconds between two attempts: the cache starts a process meanwhile.
        etree.SubElement(source, 'reconnect', enabled='yes', timeout='1')
        target = disk.find('target')
        target.addprevious(source)
        for serial in disk.findall('serial'):
            disk.remove(serial)
    elif path is not None:
        etree.SubElement(disk.find('source'), 'host', transport='unix',
                         socket=path)
    return disk


def install() -> None:
    """Have Nova read and write disks of the cache: to detach them.

    Its class is changed, because Nova makes such disks of what libvirt has in
    many places, and calls the class by its name itself.
    """
    vconfig.LibvirtConfigGuestDisk.parse_dom = _parse_own_disk
    vconfig.LibvirtConfigGuestDisk.format_dom = _format_own_disk


class CachedDisk(vconfig.LibvirtConfigGuestDisk):
    """A disk that QEMU reaches over NBD, and waits for if it goes away."""

    def __init__(self, disk: vconfig.LibvirtConfigGuestDisk,
                 export: Export) -> None:
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
        if export.get('rates'):
            # The cache enforces them.
            for name in rates.NAMES:
                setattr(self, f'disk_{name}', None)
        self._delay = str(export['reconnect_delay'])

    def format_dom(self) -> typing.Any:
        """Return the element of libvirt's document."""
        disk = super().format_dom()
        # Errors while the cache does not run are not the guest's.
        lazy_disks.stop_at_errors(disk)
        etree.SubElement(disk.find('source'), 'reconnect', delay=self._delay)
        return disk


class VhostDisk(vconfig.LibvirtConfigGuestDisk):
    """A disk whose requests reach the cache without QEMU (vhost-user).

    Of what a disk can have, libvirt 9 refuses here limits, caching, discard,
    policies for errors, a serial number and encryption.
    """

    def __init__(self, disk: vconfig.LibvirtConfigGuestDisk, export: Export
                 ) -> None:
        super().__init__()
        self.source_type = guest_disks.VHOST
        self.unix_socket = export['vhost']
        self.driver_name, self.driver_format = 'qemu', 'raw'
        self.target_dev, self.target_bus = disk.target_dev, disk.target_bus
        self.boot_order, self.device_addr = disk.boot_order, disk.device_addr
        # For Nova, which leaves it out of the document.
        self.serial = disk.serial
        self.alias = disk.alias
