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
"""Block devices of this host, by ``lsblk``."""

import dataclasses
import re

from diffcache_openstack.ssdcache.engines import base
from diffcache_openstack.ssdcache.engines import commands

_NUMBER = re.compile(r'[0-9]{1,4}:[0-9]{1,7}')


@dataclasses.dataclass(frozen=True)
class Device:
    """A block device that can be written.

    :ivar number: ``MAJOR:MINOR``
    :ivar size: bytes
    """

    number: str
    size: int


def command(path: str) -> list[str]:
    """Return the command that describes a device."""
    return ['lsblk', '--json', '--bytes', '--nodeps', '--output',
            'MAJ:MIN,SIZE,RO', path]


def parse(path: str, text: str) -> Device:
    """Return a device that was described.

    :raises UnknownOutput: it cannot be read
    :raises VolumeRefused: the device is read-only
    """
    words = command(path)
    found = commands.rows(words, text, 'blockdevices')
    if len(found) != 1:
        raise commands.unknown(words, text)
    device = found[0]
    number, read_only = device.get('maj:min'), device.get('ro')
    # Releases of util-linux before 2.33 write "0" and "1".
    if not isinstance(number, str) or not _NUMBER.fullmatch(number) \
            or read_only not in (False, True, '0', '1'):
        raise commands.unknown(words, text)
    if read_only in (True, '1'):
        raise base.VolumeRefused(f'{path} is read-only')
    return Device(number, commands.number(words, device.get('size')))


def find(run: commands.Runner, path: str) -> Device:
    """Return the device at a path.

    :raises UnknownOutput: ``lsblk`` answered something unknown
    :raises VolumeRefused: there is none that can be written
    """
    if not path.startswith('/'):
        raise base.VolumeRefused(
            f'{path!r} is no block device of this host, which this engine'
            ' needs')
    return parse(path, run(command(path)))
