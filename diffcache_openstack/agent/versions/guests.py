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
"""Servers of this host in libvirt: their disks, monitors and agents."""

import collections.abc
import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import re
import types
import typing
from xml.etree import ElementTree

from diffcache_openstack import _native
from diffcache_openstack.agent.versions import stopped_volumes
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import qemu_monitor
from diffcache_openstack.objects import fields
from diffcache_openstack.versions.disks import disk_files

LOG = logging.getLogger(__name__)

# Seconds that a guest's agent may take for an answer.
_AGENT_SECONDS = 20
_AGENT_CHANNEL = "./devices/channel/target[@name='org.qemu.guest_agent.0']"
# libvirt's message if the agent answered with an error. Its error code does
# not differ from that of libvirt's own errors.
_REFUSED = 'unable to execute QEMU agent command'
_FORMATS = ('raw', 'qcow2')
_DISKS = "./devices/disk[@device='disk']"
_UUID = re.compile(fields.UUID_PATTERN)


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk of a server that is a file of this host.

    :param device: its name in the guest, such as vda
    :param base: its base image, if it has one
    """

    device: str
    path: pathlib.Path
    format: str
    base: pathlib.Path | None = None


@dataclasses.dataclass(frozen=True)
class Volume:
    """A volume of Cinder that a server has.

    :param device: its name in the guest, such as vdb
    :param alias: the id of its device in QEMU; None while it is stopped
    :param refused: why it cannot be saved, if so
    """

    id: str
    device: str
    alias: str | None = None
    refused: str | None = None


@dataclasses.dataclass(frozen=True)
class Guest:
    """A server of the hypervisor.

    :param monitor: None while it is stopped
    :param agent: None if no agent is connected
    :param volumes: those of Cinder, which are none of its disks
    """

    server_id: str
    disks: tuple[Disk, ...]
    monitor: qemu_monitor.Monitor | None = None
    agent: 'GuestAgent | None' = None
    volumes: tuple[Volume, ...] = ()

    @property
    def running(self) -> bool:
        """Whether a hypervisor uses its disks."""
        return self.monitor is not None


class GuestAgent:
    """The guest agent of a domain, through libvirt; it is not trusted."""

    def __init__(self, library: types.ModuleType, qemu: types.ModuleType,
                 domain: typing.Any) -> None:
        self._library = library
        self._qemu = qemu
        self._domain = domain

    def count(self, name: str) -> int:
        """Run a command without arguments whose answer is a number.

        :raises PermanentError: the guest refused, or gave another answer
        :raises ServiceUnavailable: no answer came
        """
        try:
            answer = json.loads(self._qemu.qemuAgentCommand(
                self._domain, json.dumps({'execute': name}), _AGENT_SECONDS,
                0))
        except self._library.libvirtError as error:
            if _REFUSED in str(error):
                raise exceptions.PermanentError(
                    f'The guest agent of server {self._domain.UUIDString()}'
                    f' refused {name}: {error}') from error
            raise self._silent(name, error) from error
        except (ValueError, RecursionError) as error:
            raise self._silent(name, error) from error
        value = answer.get('return') if isinstance(answer, dict) else None
        if not isinstance(value, int):
            raise exceptions.PermanentError(
                f'The guest agent of server {self._domain.UUIDString()}'
                f' refused {name}: {str(answer)[:200]}')
        return value

    def _silent(self, name, error):
        return exceptions.ServiceUnavailable(
            f'The guest agent of server {self._domain.UUIDString()} did not'
            f' answer {name}: {error}')


class Guests:
    """The servers of this host.

    :param uri: of the hypervisor
    :param directories: below which disks and base images are
    """

    def __init__(self, uri: str, directories: typing.Iterable[str]) -> None:
        self._uri = uri
        self._directories = [pathlib.Path(os.path.realpath(name))
                             for name in directories]
        self._connection: typing.Any = None

    def find(self, server_id: str) -> Guest:
        """Return a server of this host.

        :raises NotFound: this host has no such server, or it has no disk
            that can be saved
        :raises InvalidInput: a disk is outside of the allowed directories
        :raises ServiceUnavailable: libvirt does not answer
        """
        library, qemu = _libraries()
        domain, running, tree = self._describe(library, server_id)
        disks, volumes = tuple(self._disks(tree)), tuple(_volumes(tree))
        if not disks and not volumes:
            raise exceptions.NotFound(
                f'Server {server_id} has no disk that is a file of this host,'
                f' and no volume: neither images in Ceph (images_type = rbd)'
                f' nor logical volumes (lvm) can be saved yet.')
        if not running:
            return Guest(server_id, disks, volumes=volumes)
        return Guest(
            server_id, disks, qemu_monitor.Monitor(library, qemu, domain),
            GuestAgent(library, qemu, domain) if _has_agent(tree) else None,
            volumes)

    def _describe(self, library: types.ModuleType, server_id: str
                  ) -> tuple[typing.Any, bool, ElementTree.Element]:
        """Return the domain of a server, whether it runs, and its document.

        Errors are those of :meth:`find`.
        """
        try:
            domain = self._connect(library).lookupByUUIDString(server_id)
            running = bool(domain.isActive())
            text = domain.XMLDesc(
                0 if running else library.VIR_DOMAIN_XML_INACTIVE)
        except library.libvirtError as error:
            if error.get_error_code() in (library.VIR_ERR_NO_DOMAIN,
                                          library.VIR_ERR_INVALID_ARG):
                raise exceptions.NotFound(
                    f'Server {server_id} is not on this host.') from error
            raise exceptions.ServiceUnavailable(
                f'libvirt at {self._uri} could not describe server'
                f' {server_id}: {error}') from error
        # Written by libvirt, which escapes what users choose.
        return domain, running, ElementTree.fromstring(text)  # nosec B314

    @contextlib.contextmanager
    def open_volumes(self, server_id: str,
                     ids: collections.abc.Sequence[str]
                     ) -> typing.Iterator[Guest]:
        """Have QEMU open volumes of a stopped server for a ``with`` block.

        Yields what has them: a guest that never runs, without disks of its
        own; its volumes are in the order of ``ids``.

        :raises Conflict: the server runs, or does not have one of them
        :raises Busy: something else has one of them open
        :raises ServiceUnavailable: libvirt does not open them
        """
        library, qemu = _libraries()
        _domain, running, tree = self._describe(library, server_id)
        if running:
            raise exceptions.Conflict(f'Server {server_id} was started.')
        elements = {_volume_id(each): each for each in tree.findall(_DISKS)}
        if missing := [each for each in ids if each not in elements]:
            raise exceptions.Conflict(
                f'Server {server_id} does not have volume'
                f' {", ".join(missing)} any more.')
        text = stopped_volumes.document(server_id, tree,
                                        [elements[each] for each in ids])
        with stopped_volumes.started(library, self._uri, server_id,
                                     text) as domain:
            opened = {each.id: each for each in _volumes(
                ElementTree.fromstring(domain.XMLDesc(0)))}  # nosec B314
            yield Guest(server_id, (),
                        qemu_monitor.Monitor(library, qemu, domain),
                        volumes=tuple(opened[each] for each in ids))

    def directory(self, guest: Guest) -> pathlib.Path:
        """Return the directory that Nova has for a server.

        :raises NotFound: it is in none of the allowed directories
        """
        for path in (*(disk.path.parent for disk in guest.disks),
                     *(each / guest.server_id for each in self._directories)):
            if path.is_dir():
                return path
        raise exceptions.NotFound(
            f'Server {guest.server_id} has no directory in one of [versions]'
            f' directories; add Nova\'s instances_path there.')

    def device_of(self, server_id: str, path: str) -> str:
        """Return the name that a disk of a server has in its guest.

        :raises NotFound: this host has no such server
        :raises InvalidInput: the server has no such disk
        :raises ServiceUnavailable: libvirt does not answer
        """
        wanted = self.check(pathlib.Path(path))
        found = [disk.device for disk in self.find(server_id).disks
                 if disk.path == wanted]
        if not found:
            raise exceptions.InvalidInput(
                f'Server {server_id} has no disk {path} that can be saved.')
        return found[0]

    def check(self, path: pathlib.Path) -> pathlib.Path:
        """Return the real path of a file in the allowed directories.

        :raises InvalidInput: it is outside; the message names the option
        """
        real = pathlib.Path(os.path.realpath(path))
        if not any(real.is_relative_to(directory)
                   for directory in self._directories):
            raise exceptions.InvalidInput(
                f'{path} is below none of [versions] directories; add its'
                f' directory there if it is one of Nova\'s.')
        return real

    def _disks(self, tree):
        for element in tree.findall(_DISKS):
            if _volume_id(element) is not None:
                continue
            source = element.find('source')
            driver, target = element.find('driver'), element.find('target')
            if element.get('type') != 'file' or source is None \
                    or target is None or driver is None:
                continue
            kind = driver.get('type')
            if kind not in _FORMATS:
                LOG.warning('Not saving disk %s: its format is %s',
                            source.get('file'), kind)
                continue
            path = self.check(pathlib.Path(source.get('file')))
            yield Disk(target.get('dev'), path, kind, self._base(path, kind))

    def _base(self, path, kind):
        """Return the backing file of a disk, if it has one.

        Only the hypervisor and Nova write that name; it is trusted for images
        in the allowed directories.
        """
        if kind != 'qcow2':
            return None
        with disk_files.reading(path) as opened, native_errors.translated():
            backing = _native.version_disk_info(opened, kind)['backing']
        if backing is None:
            return None
        return self.check(path.parent / backing)

    def _connect(self, library):
        if self._connection is None or not self._connection.isAlive():
            self._connection = library.open(self._uri)
        return self._connection


def _volume_id(element: ElementTree.Element) -> str | None:
    """Return the volume that a disk is.

    Nova has its ID as the serial number. Disks that bypass QEMU have none, and
    the name of the device in libvirt.
    """
    found, alias = element.findtext('serial'), element.find('alias')
    if not found and alias is not None:
        found = alias.get('name', '').removeprefix('ua-')
    return found if found and _UUID.fullmatch(found) else None


def _volumes(tree: ElementTree.Element) -> typing.Iterator[Volume]:
    for element in tree.findall(_DISKS):
        volume_id, target = _volume_id(element), element.find('target')
        if volume_id is None or target is None:
            continue
        alias = element.find('alias')
        yield Volume(volume_id, target.get('dev', ''),
                     None if alias is None else alias.get('name'),
                     _refusal(element))


def _refusal(element: ElementTree.Element) -> str | None:
    """Return why QEMU keeps no moment of a volume, if so."""
    if element.get('type') == 'vhostuser':
        return ('its requests bypass QEMU (vhost-user), which could keep no'
                ' moment of it')
    if element.find('.//encryption') is not None:
        return 'it is encrypted'
    if element.find('shareable') is not None:
        return 'other servers may write to it (multiattach)'
    return None


def _has_agent(tree):
    target = tree.find(_AGENT_CHANNEL)
    return target is not None and target.get('state') == 'connected'


def _libraries() -> tuple[types.ModuleType, types.ModuleType]:
    """Import libvirt's bindings, which only compute hosts need.

    :raises PermanentError: they are not installed
    """
    try:
        import libvirt
        import libvirt_qemu
    except ImportError as error:
        raise exceptions.PermanentError(
            'This host cannot save servers: install libvirt-python for its'
            ' agent.') from error
    # Errors are raised, and need not be printed as well.
    libvirt.registerErrorHandler(lambda *_: None, None)
    return libvirt, libvirt_qemu
