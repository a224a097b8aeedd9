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
"""Commands for Open CAS, and its answers in CSV."""

import collections.abc
import csv
import dataclasses
import io

from diffcache_openstack.ssdcache.engines import commands

LIST = ('casadm', '--list-caches', '--output-format', 'csv')
# Classes of requests, but that of requests in no other.
CLASSES = 32
# In KiB, of requests in sequence.
MOST_CUTOFF = 4194181
_NOTHING = 'No caches running'
_COLUMNS = ['type', 'id', 'disk', 'status', 'write policy', 'device']
_CLASS_COLUMNS = 'IO class id,IO class name,Eviction priority,Allocation'
_SIZE = 'Cache Size [4KiB Blocks]'
_HIT = ('Read hits', 'Write hits')
_MISS = ('Read partial misses', 'Read full misses', 'Write partial misses',
         'Write full misses')
_PAST = ('Pass-Through reads', 'Pass-Through writes')


@dataclasses.dataclass(frozen=True)
class Core:
    """A device that is cached.

    :ivar disk: its path
    :ivar path: of the device that clients use
    """

    disk: str
    path: str
    is_active: bool


@dataclasses.dataclass(frozen=True)
class Cache:
    """A cache, and its cores by number.

    :ivar disk: path of its device
    :ivar policy: its mode, such as ``wt``
    """

    disk: str
    is_running: bool
    policy: str
    cores: collections.abc.Mapping[int, Core]


@dataclasses.dataclass(frozen=True)
class Counts:
    """What is cached of a core, in blocks, and its requests."""

    blocks: int
    dirty: int
    reads: int
    writes: int
    hits: int
    misses: int
    bypassed: int


def start(cache: int, device: str, is_forced: bool) -> list[str]:
    """Return the command that starts an empty cache, in write-through.

    :param is_forced: whether what the device has is overwritten
    """
    return ['casadm', '--start-cache', '--cache-device', device, '--cache-id',
            str(cache), '--cache-mode', 'wt', '--cache-line-size', '4',
            *(['--force'] if is_forced else [])]


def add_core(cache: int, core: int, device: str) -> list[str]:
    """Return the command that puts the cache before a device."""
    return ['casadm', '--add-core', *_core(cache, core), '--core-device',
            device]


def remove_core(cache: int, core: int) -> list[str]:
    """Return the command that removes an unused core device."""
    return ['casadm', '--remove-core', *_core(cache, core)]


def set_cutoff(cache: int, core: int, sequential: int) -> list[str]:
    """Return the command that keeps long sequences out of the cache.

    :param sequential: bytes; 0 for none
    """
    words = ['casadm', '--set-param', '--name', 'seq-cutoff',
             *_core(cache, core)]
    if not sequential:
        return [*words, '--policy', 'never']
    threshold = min(max(sequential // 1024, 1), MOST_CUTOFF)
    return [*words, '--policy', 'always', '--threshold', str(threshold)]


def load_classes(cache: int) -> list[str]:
    """Return the command that reads classes from its input."""
    return ['casadm', '--io-class', '--load-config', '--cache-id', str(cache),
            '--file', '/dev/stdin']


def classes(percents: collections.abc.Mapping[int, int]) -> str:
    """Return classes that are a partition for each core, and no other.

    :param percents: of the cache that cores have at most; their requests
        pass by with 0
    """
    return '\n'.join((
        _CLASS_COLUMNS, '0,unclassified,22,0.00',
        *(f'{core},core_id:eq:{core}&done,1,{percent / 100:.2f}'
          for core, percent in sorted(percents.items())), ''))


def show_cache(cache: int) -> list[str]:
    """Return the command that describes a cache."""
    return ['casadm', '--stats', '--cache-id', str(cache), '--filter', 'conf',
            '--output-format', 'csv']


def show_core(cache: int, core: int) -> list[str]:
    """Return the command that shows the counts of a core."""
    return ['casadm', '--stats', *_core(cache, core), '--output-format',
            'csv']


def parse_list(cache: int, text: str) -> Cache | None:
    """Return a cache that was listed, if it is among them.

    :raises UnknownOutput: the list cannot be read
    """
    if not text.strip() or text.strip() == _NOTHING:
        return None
    found, cores, at = None, {}, None
    for row in _rows(LIST, text, _COLUMNS):
        kind, disk = row['type'], row['disk']
        if kind == 'cache':
            at = commands.number(LIST, row['id'])
            if at == cache:
                found = Cache(disk, row['status'] == 'Running',
                              row['write policy'], cores)
        elif kind == 'core' and at == cache:
            cores[commands.number(LIST, row['id'])] = Core(
                disk, row['device'], row['status'] == 'Active')
        elif kind == 'core pool':
            at = None
        elif kind != 'core':
            raise commands.unknown(LIST, kind)
    return found


def parse_size(cache: int, text: str) -> int:
    """Return the blocks of a cache that was described.

    :raises UnknownOutput: it cannot be read
    """
    words = show_cache(cache)
    return commands.number(words, _row(words, text, [_SIZE])[_SIZE])


def parse_counts(cache: int, core: int, text: str) -> Counts:
    """Return the counts of a core.

    :raises UnknownOutput: they cannot be read
    """
    words = show_core(cache, core)
    blocks = {name: f'{name} [4KiB Blocks]' for name in (
        'Occupancy', 'Dirty', 'Reads from exported object',
        'Writes to exported object')}
    requests = {name: f'{name} [Requests]' for name in (
        *_HIT, *_MISS, *_PAST)}
    columns = blocks | requests
    row = _row(words, text, list(columns.values()))
    found = {name: commands.number(words, row[column])
             for name, column in columns.items()}
    return Counts(*(found[name] for name in blocks),
                  *(sum(found[name] for name in names)
                    for names in (_HIT, _MISS, _PAST)))


def _core(cache: int, core: int) -> list[str]:
    return ['--cache-id', str(cache), '--core-id', str(core)]


def _row(words: collections.abc.Sequence[str], text: str,
         columns: collections.abc.Sequence[str]) -> dict[str, str]:
    rows = _rows(words, text, columns)
    if len(rows) != 1:
        raise commands.unknown(words, text)
    return rows[0]


def _rows(words: collections.abc.Sequence[str], text: str,
          columns: collections.abc.Sequence[str]) -> list[dict[str, str]]:
    """Return rows that have columns, and may have others."""
    try:
        found = list(csv.DictReader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise commands.unknown(words, text) from error
    for row in found:
        if None in row or any(row.get(column) is None for column in columns):
            raise commands.unknown(words, list(row.values()))
    return found
