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
"""Commands for LVM, and its reports in JSON."""

import collections.abc
import dataclasses
import re

from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache.engines import commands

# Logical volumes of this suite have it; others are left alone.
TAG = 'diffcache'
_GROUP = re.compile(r'[A-Za-z0-9+_.][A-Za-z0-9+_.-]{0,126}')
_REPORT = ['--reportformat', 'json', '--units', 'b', '--nosuffix', '--options']


@dataclasses.dataclass(frozen=True)
class Group:
    """A volume group.

    :ivar free: bytes in no logical volume
    :ivar extent: bytes that sizes of logical volumes are multiples of
    """

    free: int
    extent: int


@dataclasses.dataclass(frozen=True)
class LogicalVolume:
    """A logical volume.

    :ivar size: bytes
    :ivar is_ours: it has :data:`TAG`
    """

    size: int
    is_ours: bool


def check_group(group: str) -> None:
    """Refuse what is no name of a volume group.

    :raises InvalidInput: the message names the option
    """
    if not _GROUP.fullmatch(group) or group in ('.', '..'):
        raise exceptions.InvalidInput(
            f'[ssd_cache] volume_group: {group!r} is no name of a volume'
            ' group.')


def path(group: str, name: str) -> str:
    """Return the path of a logical volume."""
    return f'/dev/{group}/{name}'


def show_group(group: str) -> list[str]:
    """Return the command that describes a volume group."""
    return ['vgs', *_REPORT, 'vg_free,vg_extent_size', group]


def show_volumes(group: str) -> list[str]:
    """Return the command that lists the logical volumes of a group."""
    return ['lvs', *_REPORT, 'lv_name,lv_size,lv_tags', group]


def create(group: str, name: str, size: int, is_zeroed: bool) -> list[str]:
    """Return the command that creates a logical volume.

    :param size: bytes
    :param is_zeroed: whether its first 4096 bytes are
    """
    return ['lvcreate', '--yes', '--wipesignatures', 'n', '--zero',
            'y' if is_zeroed else 'n', '--addtag', TAG, '--name', name,
            '--size', f'{size}b', group]


def remove(group: str, names: collections.abc.Iterable[str]) -> list[str]:
    """Return the command that removes logical volumes."""
    return ['lvremove', '--yes', *(f'{group}/{name}' for name in names)]


def parse_group(group: str, text: str) -> Group:
    """Return a volume group that was described.

    :raises UnknownOutput: it cannot be read
    """
    words = show_group(group)
    found = commands.rows(words, text, 'report', 0, 'vg')
    if len(found) != 1:
        raise commands.unknown(words, text)
    free, extent = (commands.number(words, found[0].get(key))
                    for key in ('vg_free', 'vg_extent_size'))
    if not extent:
        raise commands.unknown(words, text)
    return Group(free, extent)


def parse_volumes(group: str, text: str) -> dict[str, LogicalVolume]:
    """Return logical volumes that were listed, by name.

    :raises UnknownOutput: they cannot be read
    """
    words = show_volumes(group)
    found = {}
    for row in commands.rows(words, text, 'report', 0, 'lv'):
        name, tags = row.get('lv_name'), row.get('lv_tags')
        if not isinstance(name, str) or not isinstance(tags, str):
            raise commands.unknown(words, row)
        found[name] = LogicalVolume(
            commands.number(words, row.get('lv_size')),
            TAG in tags.split(','))
    return found
