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
"""Commands for the kernel's device mapper, and its answers.

Formats are those of the kernel's documentation, device-mapper/cache.rst.
"""

import collections.abc
import dataclasses

from diffcache_openstack.ssdcache.engines import commands

SECTOR = 512
# The unit in which dm-cache caches.
CHUNK = 65536
# Devices of this suite begin with it.
PREFIX = 'diffcache-'
# Modes of this suite, and the features of dm-cache that they are.
FEATURES = {'write-through': 'writethrough', 'pass-through': 'passthrough',
            'write-back': 'writeback'}
TABLES = ('dmsetup', 'table')
STATUS = ('dmsetup', 'status')
_MODES = {feature: mode for mode, feature in FEATURES.items()}
_CACHE, _LINEAR = 'cache', 'linear'
_EMPTY = 'No devices found'


@dataclasses.dataclass(frozen=True)
class Table:
    """What a device consists of.

    :ivar size: bytes
    :ivar origin: ``MAJOR:MINOR``
    :ivar mode: of the cache; none without one
    """

    size: int
    origin: str
    mode: str | None


@dataclasses.dataclass(frozen=True)
class Status:
    """The state of a cache, in chunks of :ivar:`chunk` bytes and in requests.

    :ivar is_failed: requests fail; everything else is 0
    """

    chunk: int = 0
    used: int = 0
    total: int = 0
    read_hits: int = 0
    read_misses: int = 0
    write_hits: int = 0
    write_misses: int = 0
    demotions: int = 0
    dirty: int = 0
    is_failed: bool = dataclasses.field(default=False, kw_only=True)


def path(name: str) -> str:
    """Return the path of a device."""
    return f'/dev/mapper/{name}'


def linear_table(size: int, origin: str) -> str:
    """Return the table of a device without a cache.

    :param size: bytes
    :param origin: ``MAJOR:MINOR``
    """
    return f'0 {size // SECTOR} {_LINEAR} {origin} 0'


def cache_table(table: Table, metadata: str, blocks: str) -> str:
    """Return the table of a device with a cache.

    :param table: with a mode
    :param metadata: path of the device for the cache's metadata
    :param blocks: path of the device for cached blocks
    """
    assert table.mode is not None
    return (f'0 {table.size // SECTOR} {_CACHE} {metadata} {blocks}'
            f' {table.origin} {CHUNK // SECTOR} 1 {FEATURES[table.mode]}'
            ' smq 0')


def create(name: str, table: str) -> list[str]:
    """Return the command that creates a device."""
    return ['dmsetup', 'create', name, '--table', table]


def remove(name: str) -> list[str]:
    """Return the command that removes an unused device."""
    return ['dmsetup', 'remove', name]


def exchange(name: str, table: str) -> list[list[str]]:
    """Return the commands that give a device in use another table.

    Requests wait between the second and the third.
    """
    return [['dmsetup', 'load', name, '--table', table],
            ['dmsetup', 'suspend', name], ['dmsetup', 'resume', name]]


def invalidate(name: str, chunks: int) -> list[str]:
    """Return the command that empties a cache in pass-through.

    :param chunks: that it has
    """
    return ['dmsetup', 'message', name, '0', 'invalidate_cblocks',
            f'0-{chunks}']


def parse_tables(text: str) -> dict[str, Table]:
    """Return the tables of this suite's devices, by name.

    :raises UnknownOutput: one is of another kind
    """
    found = {}
    for name, size, target, rest in _lines(TABLES, text):
        if target == _LINEAR and len(rest) == 2:
            found[name] = Table(size, rest[0], None)
        elif target == _CACHE and len(rest) > 5:
            features = _counted(TABLES, rest[4:])
            modes = [_MODES[each] for each in features if each in _MODES]
            if len(modes) != 1:
                raise commands.unknown(TABLES, ' '.join(rest))
            found[name] = Table(size, rest[2], modes[0])
        else:
            raise commands.unknown(TABLES, f'{name}: {target}')
    return found


def parse_status(text: str) -> dict[str, Status]:
    """Return the state of this suite's devices with a cache, by name.

    :raises UnknownOutput: it cannot be read
    """
    return {name: _status(rest)
            for name, _size, target, rest in _lines(STATUS, text)
            if target == _CACHE}


def _status(words: list[str]) -> Status:
    if words in (['Fail'], ['Error']):
        return Status(is_failed=True)
    if len(words) < 12:
        raise commands.unknown(STATUS, ' '.join(words))
    used, slash, total = words[3].partition('/')
    if not slash:
        raise commands.unknown(STATUS, words[3])
    sectors, *counts = (commands.number(STATUS, word) for word in (
        words[2], used, total, *words[4:9], words[10]))
    return Status(sectors * SECTOR, *counts)


def _lines(words: collections.abc.Sequence[str], text: str
           ) -> list[tuple[str, int, str, list[str]]]:
    """Return name, bytes, target and its fields of this suite's devices."""
    found = []
    if text.strip() == _EMPTY:
        return []
    for line in text.splitlines():
        name, colon, rest = line.partition(': ')
        if not colon and not name.endswith(':'):
            raise commands.unknown(words, line)
        if not name.startswith(PREFIX):
            continue
        fields = rest.split()
        if len(fields) < 3 or any(name == other[0] for other in found):
            raise commands.unknown(words, line)
        # A device of ours has one segment, which begins at 0.
        if commands.number(words, fields[0]) != 0:
            raise commands.unknown(words, line)
        found.append((name, commands.number(words, fields[1]) * SECTOR,
                      fields[2], fields[3:]))
    return found


def _counted(words: collections.abc.Sequence[str], fields: list[str]
             ) -> list[str]:
    """Return fields that their number is before."""
    count = commands.number(words, fields[0])
    if count >= len(fields):
        raise commands.unknown(words, ' '.join(fields))
    return fields[1:count + 1]
