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
and is back, the path names another file with the same bytes.
"""

import collections.abc
import dataclasses
import typing
from xml.etree import ElementTree

from diffcache_openstack.common import qemu_monitor
from diffcache_openstack.nova import block_nodes


@dataclasses.dataclass(frozen=True)
class Overlay:
    """A disk of a running server, as libvirt describes it.

    :ivar device: its name in the guest, such as vda
    :ivar base: the file that it is an overlay of
    :ivar number: of the base in the names of QEMU's block nodes
    :ivar stops: whether an error stops the guest, instead of reaching it
    :ivar options: of the base's file in QEMU, besides its name and caching
    :ivar top: of the disk, as ``number`` is of the base
    :ivar form: options of the disk's format in QEMU, besides its driver
    """

    device: str
    base: str
    number: str
    stops: bool
    options: tuple[tuple[str, str], ...] = ()
    top: str = ''
    form: tuple[tuple[str, typing.Any], ...] = ()


def overlays(document: str) -> collections.abc.Iterator[Overlay]:
    """Yield the disks of a running server that are files with a base.

    :param document: libvirt's
    """
    # Written by libvirt, which escapes what users choose.
    tree = ElementTree.fromstring(document)  # nosec B314
    for disk in tree.iterfind("devices/disk[@type='file']"):
        driver, target = disk.find('driver'), disk.find('target')
        own = disk.find('source[@index]')
        backing = disk.find("backingStore[@type='file'][@index]")
        if driver is None or target is None or own is None or backing is None:
            continue
        source = backing.find('source')
        if source is None:
            continue
        options = {'aio': driver.get('io'), 'discard': driver.get('discard')}
        yield Overlay(
            target.attrib['dev'], source.attrib['file'],
            backing.attrib['index'], driver.get('rerror_policy') == 'stop',
            tuple((key, value) for key, value in options.items() if value),
            own.attrib['index'], _form(driver))


def _form(driver: ElementTree.Element) -> tuple[tuple[str, typing.Any], ...]:
    """Return the options that libvirt gives QEMU for the format of a disk."""
    found: dict[str, typing.Any] = {'read-only': False}
    if 'detect_zeroes' in driver.attrib:
        found['detect-zeroes'] = driver.get('detect_zeroes')
        if 'discard' in driver.attrib:
            found['discard'] = driver.get('discard')
    if driver.get('discard_no_unref') == 'on':
        found['discard-no-unref'] = True
    return tuple(found.items())


def open_anew(monitor: qemu_monitor.Monitor, overlay: Overlay) -> None:
    """Have QEMU open a disk's base image anew, by its path.

    A call that was cut off is completed by the next; see
    :func:`.block_nodes.open_anew`.

    :raises PermanentError: QEMU refused a step, or cannot do it
    :raises ServiceUnavailable: the server has ended, or does not answer
    """
    file = {'driver': 'file', 'filename': overlay.base}
    options = dict(overlay.options)
    # It is read-only, and discards nothing.
    bare = {key: value for key, value in options.items() if key != 'discard'}
    block_nodes.open_anew(monitor, block_nodes.Layer(
        f'base image {overlay.base}', overlay.number,
        storage={**options, **file, 'auto-read-only': True},
        form={'read-only': True},
        above=block_nodes.Above(
            overlay.top, {**dict(overlay.form), 'driver': 'qcow2'},
            {**bare, **file, 'read-only': True})))
