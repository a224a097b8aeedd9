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
"""A QEMU process that has the volumes of a stopped server open.

An agent has no rights to block devices, and speaks no protocol of storage:
the hypervisor does. So a domain of the agent's own gets the volumes as the
server has them, starts paused, and never runs; QEMU serves them by NBD. While
it has them, QEMU's locks keep the server from being started with volumes that
are files or block devices. libvirt ends it with the agent's connection.
"""

import collections.abc
import contextlib
import copy
import string
import types
import typing
import uuid
from xml.etree import ElementTree

from diffcache_openstack.common import exceptions

# The UUIDs of such domains follow from those of servers.
_DOMAINS = uuid.UUID('7c0d9a53-8d0e-4c86-9f0b-2f1a64f0f5a1')
# Of a disk's element, what says how QEMU opens it.
_KEPT = ('driver', 'source', 'auth', 'serial')
_DRIVER = ('name', 'type', 'cache', 'io', 'discard')
_MEMORY_MIB = 64


def uuid_of(server_id: str) -> str:
    """Return the UUID of the domain that opens a server's volumes."""
    return str(uuid.uuid5(_DOMAINS, server_id))


def document(server_id: str, server: ElementTree.Element,
             disks: collections.abc.Iterable[ElementTree.Element]) -> str:
    """Return the document of a domain that opens disks of a server.

    :param server: the server's domain
    :param disks: elements of it
    """
    domain = ElementTree.Element('domain', type=server.get('type', 'qemu'))
    _add(domain, 'name', f'diffcache-{server_id}')
    _add(domain, 'uuid', uuid_of(server_id))
    _add(domain, 'memory', str(_MEMORY_MIB), unit='MiB')
    _add(domain, 'vcpu', '1')
    kind = server.find('os/type')
    arch = None if kind is None else kind.get('arch')
    _add(_add(domain, 'os'), 'type', 'hvm',
         **({} if arch is None else {'arch': arch}))
    devices = _add(domain, 'devices')
    emulator = server.findtext('devices/emulator')
    if emulator:
        _add(devices, 'emulator', emulator)
    for letter, disk in zip(string.ascii_lowercase, disks):
        devices.append(_disk(disk, f'vd{letter}'))
    return ElementTree.tostring(domain, encoding='unicode')


def _disk(found: ElementTree.Element, name: str) -> ElementTree.Element:
    disk = ElementTree.Element('disk', type=found.get('type', ''),
                               device='disk')
    for child in found:
        if child.tag in _KEPT:
            disk.append(copy.deepcopy(child))
    driver, source = disk.find('driver'), disk.find('source')
    if driver is not None:
        driver.attrib = {key: value for key, value in driver.attrib.items()
                         if key in _DRIVER}
    if source is not None:
        source.attrib.pop('index', None)
    _add(disk, 'target', dev=name, bus='virtio')
    # Lets QEMU's NBD server write besides the device, which never does.
    _add(disk, 'shareable')
    return disk


def _add(parent: ElementTree.Element, tag: str, text: str | None = None,
         **attributes: str) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, tag, attributes)
    child.text = text
    return child


@contextlib.contextmanager
def started(library: types.ModuleType, uri: str, server_id: str, text: str
            ) -> typing.Iterator[typing.Any]:
    """Start a domain for the time of a ``with`` block; yield it.

    :param library: the module ``libvirt``
    :param text: its document
    :raises Busy: a server has one of the volumes open
    :raises ServiceUnavailable: libvirt does not start it
    """
    connection = None
    try:
        connection = library.open(uri)
        _end(library, connection, server_id)
        domain = connection.createXML(
            text, library.VIR_DOMAIN_START_PAUSED
            | library.VIR_DOMAIN_START_AUTODESTROY)
    except library.libvirtError as error:
        if connection is not None:
            connection.close()
        kind = (exceptions.Busy if ' lock' in str(error)
                else exceptions.ServiceUnavailable)
        raise kind(f'libvirt at {uri} could not open the volumes of server'
                   f' {server_id}: {error}') from error
    try:
        yield domain
    finally:
        # Else it would end soon after the connection.
        with contextlib.suppress(library.libvirtError):
            domain.destroy()
        with contextlib.suppress(library.libvirtError):
            connection.close()


def _end(library: types.ModuleType, connection: typing.Any, server_id: str
         ) -> None:
    """End the domain of an agent that was killed, if libvirt has not yet."""
    try:
        connection.lookupByUUIDString(uuid_of(server_id)).destroy()
    except library.libvirtError as error:
        if error.get_error_code() not in (library.VIR_ERR_NO_DOMAIN,
                                          library.VIR_ERR_OPERATION_INVALID):
            raise
