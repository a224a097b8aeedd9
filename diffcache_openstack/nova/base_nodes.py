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
"""Having QEMU open a base image anew, under a running guest.

QEMU keeps the file open that a base image was when the guest started. When a
link to an arriving file has been replaced, or what was mounted there has gone
and is back, the path names another file with the same bytes. libvirt's view of
the server stays as it is: the paths and the names of the block nodes.
"""

import collections.abc
import dataclasses
from xml.etree import ElementTree

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import qemu_monitor


@dataclasses.dataclass(frozen=True)
class Overlay:
    """A disk of a running server, as libvirt describes it.

    :ivar device: its name in the guest, such as vda
    :ivar base: the file that it is an overlay of
    :ivar number: of the base in the names of QEMU's block nodes
    :ivar stops: whether an error stops the guest, instead of reaching it
    :ivar options: of the base's file in QEMU, besides its name and caching
    """

    device: str
    base: str
    number: str
    stops: bool
    options: tuple[tuple[str, str], ...] = ()


def overlays(document: str) -> collections.abc.Iterator[Overlay]:
    """Yield the disks of a running server that are files with a base.

    :param document: libvirt's
    """
    # Written by libvirt, which escapes what users choose.
    tree = ElementTree.fromstring(document)  # nosec B314
    for disk in tree.iterfind("devices/disk[@type='file']"):
        driver, target = disk.find('driver'), disk.find('target')
        backing = disk.find("backingStore[@type='file'][@index]")
        if driver is None or target is None or backing is None:
            continue
        source = backing.find('source')
        if source is None:
            continue
        options = {'aio': driver.get('io'), 'discard': driver.get('discard')}
        yield Overlay(
            target.attrib['dev'], source.attrib['file'],
            backing.attrib['index'], driver.get('rerror_policy') == 'stop',
            tuple((key, value) for key, value in options.items() if value))


def open_anew(monitor: qemu_monitor.Monitor, overlay: Overlay) -> None:
    """Have QEMU open a disk's base image anew, by its path.

    The node of the file is replaced by an interim one, deleted, and added
    again under its name. After each step the guest has one of the files, and
    a call that was cut off is completed by the next.

    :raises PermanentError: QEMU refused a step, or cannot do it
    :raises ServiceUnavailable: the server has ended, or does not answer
    """
    Exchange(monitor, overlay).run()


class Exchange:
    """The steps, for one disk of a server."""

    def __init__(self, monitor: qemu_monitor.Monitor,
                 overlay: Overlay) -> None:
        self._monitor = monitor
        self._overlay = overlay
        # As libvirt names them.
        self._format = f'libvirt-{overlay.number}-format'
        self._file = f'libvirt-{overlay.number}-storage'
        self._interim = f'diffcache-{overlay.number}-storage'
        self._cache: dict[str, bool] = {}

    def run(self) -> None:
        """Do all steps."""
        found = {node['node-name']: node for node in self._monitor.command(
            'query-named-block-nodes', flat=True)}
        node = found.get(self._format)
        if node is None or node.get('drv') != 'raw':
            raise exceptions.PermanentError(
                f'QEMU has no node {self._format} for the format of base'
                f' image {self._overlay.base}, so it keeps the file that it'
                f' has until the server is stopped or rebooted hard.')
        self._cache = {key: node['cache'][key]
                       for key in ('direct', 'no-flush')}
        if self._interim not in found or self._delete_unused():
            self._add(self._interim)
        self._use(self._interim)
        if self._file in found:
            self._delete(self._file)
        self._add(self._file)
        self._use(self._file)
        self._delete(self._interim)

    def _delete_unused(self) -> bool:
        """Delete the interim node of a call that was cut off.

        :returns: False if the guest uses it
        """
        try:
            self._delete(self._interim)
        except exceptions.PermanentError:
            return False
        return True

    def _add(self, name: str) -> None:
        # As libvirt adds it.
        self._monitor.command('blockdev-add', **{
            **dict(self._overlay.options), 'driver': 'file',
            'node-name': name, 'auto-read-only': True, 'cache': self._cache,
            'filename': self._overlay.base})

    def _use(self, name: str) -> None:
        self._monitor.command('blockdev-reopen', options=[{
            'driver': 'raw', 'node-name': self._format, 'read-only': True,
            'cache': self._cache, 'file': name}])

    def _delete(self, name: str) -> None:
        self._monitor.command('blockdev-del', **{'node-name': name})
