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
"""Boots of one image to replay: links, instances and what each of them reads.

Times are microseconds (round trips milliseconds), rates megabits per second
of 1e6 bits, offsets and lengths bytes.
"""

import collections.abc
import dataclasses
import json
import os
import reprlib
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import profile_files

# A replay needs some hundred bytes for each of these, so that the largest
# takes about 2 GB.
MAX_FILE_BYTES = 64 << 20
MAX_INSTANCES = 4096
MAX_CHUNKS = 1 << 22
MAX_ACCESSES = 1 << 24
MAX_TRANSFERS = 1 << 23
MAX_EVENTS = 1 << 21

_MAX_TIME_US = 1e14
_MAX_IMAGE_BYTES = 1 << 50
_MAX_COUNT = (1 << 32) - 1
_MIN_MBPS = 1e-3
_MAX_MBPS = 1e9
_MAX_RTT_MS = 1e6
_LINKS = ('wan_mbps', 'wan_rtt_ms', 'lan_mbps', 'lan_rtt_ms')

ReadRow = tuple[float, int, int]
ProfileRow = tuple[int, int, float]


class ScenarioError(exceptions.InvalidInput):
    """The scenario cannot be replayed; the message opens with the field."""


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Boots of one image; native code reads the attributes.

    :param chunk: bytes of a chunk
    :param threshold: readers from which on a chunk is a hint: instances (1
        and above), or a share of them (below 1)
    :param striped: whether each instance has the chunks that it is home of
        at the start
    :param starts_us: when each instance starts
    :param reads: for each instance rows of microseconds since the read
        before was complete, offset and length
    :param profile: rows of chunk, number of instances that read it, and mean
        microseconds from their start; None if nothing is known
    :param in_flight: prefetches of an instance at once; None: the default
    :param read_ahead: chunks that an instance reads ahead in a sequence; 0:
        none, None: the default
    :param rest: chunks of the rest of a file that an instance prefetches
        after the first read of a chunk that nothing was known of; 0: none
    :param files: for ``rest``: start, end, number of the file, position
    :param homes: how many of the instances, the first ones, are homes of
        chunks; None: all
    :param group: adjacent chunks that have the same home
    :param fan_out: for mode ``refer``: to how many others each
        instance sends a chunk
    """

    image_bytes: int
    chunk: int
    threshold: float
    striped: bool
    wan_mbps: float
    wan_rtt_ms: float
    lan_mbps: float
    lan_rtt_ms: float
    starts_us: list[float]
    reads: list[list[ReadRow]]
    profile: list[ProfileRow] | None = None
    in_flight: int | None = None
    read_ahead: int | None = None
    rest: int = 0
    files: collections.abc.Sequence[tuple[int, int, int, int]] = ()
    homes: int | None = None
    group: int = 1
    fan_out: int = 2

    @property
    def chunks(self) -> int:
        """The number of the image's chunks."""
        return -(-self.image_bytes // self.chunk)

    @property
    def accesses(self) -> int:
        """The number of chunks of all reads of all instances."""
        return sum(self._last(row) - row[1] // self.chunk + 1
                   for rows in self.reads for row in rows)

    def distinct_chunks(self) -> int:
        """Return the number of chunks that are read or in the profile."""
        spans = {(row[1] // self.chunk, self._last(row))
                 for rows in self.reads for row in rows}
        found = {row[0] for row in self.profile or ()}
        for first, last in spans:
            found.update(range(first, last + 1))
        return len(found)

    def _last(self, row: ReadRow) -> int:
        return (row[1] + row[2] - 1) // self.chunk


def load(path: str) -> Scenario:
    """Read a scenario file.

    :raises ScenarioError: the file cannot be read, is no JSON, or a field
        cannot be used
    """
    data = read_json(path)
    try:
        return from_dict(data)
    except ScenarioError as error:
        raise ScenarioError(f'{path}: {error}') from error


def profile_of(path: str, data: typing.Any) -> tuple[list[ProfileRow], int]:
    """Return a profile and the bytes of its chunks.

    :param path: of the file that it is from
    :param data: the JSON document of :func:`.profile_files.document`
    :raises InvalidInput: it is of another format
    :raises ScenarioError: there are no rows, or one cannot be used
    """
    profile_files.check_format(path, data)
    if data.get('profile') is None:
        raise ScenarioError(f'{path}: profile: missing')
    chunk = _whole('chunk', data.get('chunk'), 1, _MAX_IMAGE_BYTES)
    return _profile(data['profile'], MAX_CHUNKS) or [], chunk


def read_json(path: str) -> typing.Any:
    """Return the document of a JSON file of limited size.

    :raises ScenarioError: the file cannot be read, or is no JSON
    """
    try:
        with open(path, encoding='utf-8') as source:
            if os.fstat(source.fileno()).st_size > MAX_FILE_BYTES:
                raise ScenarioError(
                    f'{path}: larger than {MAX_FILE_BYTES} bytes; replay'
                    ' fewer instances')
            # A pipe has no size.
            text = source.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ScenarioError(f'{path}: {error.strerror}; name a scenario file')
    except UnicodeDecodeError:
        raise ScenarioError(f'{path}: not a JSON file')
    if len(text) > MAX_FILE_BYTES:
        raise ScenarioError(
            f'{path}: longer than {MAX_FILE_BYTES} characters; replay fewer'
            ' instances')
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f'{path}: not a JSON file: {error}')


def from_dict(data: typing.Any) -> Scenario:
    """Build the scenario that a parsed JSON document describes.

    :raises ScenarioError: one line that opens with the field at fault
    """
    _object('scenario', data)
    image_bytes = _whole('image_bytes', _field(data, 'image_bytes'), 1,
                         _MAX_IMAGE_BYTES)
    chunk = _whole('chunk', _field(data, 'chunk'), 1, _MAX_IMAGE_BYTES)
    if -(-image_bytes // chunk) > MAX_CHUNKS:
        raise ScenarioError(
            f'chunk: the image has more than {MAX_CHUNKS} chunks of {chunk}'
            ' bytes; choose larger ones')
    starts_us, reads = _instances(data, image_bytes)
    scenario = Scenario(
        image_bytes=image_bytes,
        chunk=chunk,
        threshold=_threshold(_field(data, 'threshold')),
        striped=_boolean('striped', _field(data, 'striped')),
        starts_us=starts_us,
        reads=reads,
        profile=_profile(data.get('profile'), -(-image_bytes // chunk)),
        homes=_whole('homes', data.get('homes', len(reads)), 1, len(reads)),
        group=_whole('group', data.get('group', 1), 1, MAX_CHUNKS),
        **_links(_field(data, 'links')))
    _check_size(scenario)
    return scenario


def _check_size(scenario: Scenario) -> None:
    if scenario.accesses > MAX_ACCESSES:
        raise ScenarioError(
            f'instances: the reads cover {scenario.accesses} chunks, at most'
            f' {MAX_ACCESSES} are possible; replay fewer instances')
    known = scenario.distinct_chunks() * len(scenario.reads)
    if known > MAX_ACCESSES:
        raise ScenarioError(
            f'instances: chunks that are read or in the profile, times'
            f' instances, are {known}, at most {MAX_ACCESSES} are possible;'
            ' replay fewer instances')


def _field(data: dict[str, typing.Any], field: str) -> typing.Any:
    if field not in data:
        raise ScenarioError(f'{field}: missing; the scenario must give it')
    return data[field]


def _object(where: str, value: typing.Any) -> None:
    if not isinstance(value, dict):
        raise ScenarioError(f'{where}: expected a JSON object of fields')


def _list(where: str, value: typing.Any) -> list[typing.Any]:
    if not isinstance(value, list):
        raise ScenarioError(f'{where}: expected a list, not'
                            f' {reprlib.repr(value)}')
    return value


def _row(where: str, value: typing.Any, names: str) -> list[typing.Any]:
    if not isinstance(value, list) or len(value) != 3:
        raise ScenarioError(f'{where}: expected [{names}], not'
                            f' {reprlib.repr(value)}')
    return value


def _boolean(where: str, value: typing.Any) -> bool:
    if not isinstance(value, bool):
        raise ScenarioError(f'{where}: expected true or false, not'
                            f' {reprlib.repr(value)}')
    return value


def _number(where: str, value: typing.Any, low: float, high: float) -> float:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    # No comparison with NaN is true.
    if not real or not low <= value <= high:
        raise ScenarioError(f'{where}: expected a number {low:g}..{high:g},'
                            f' not {reprlib.repr(value)}')
    return float(value)


def _whole(where: str, value: typing.Any, low: int, high: int) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        raise ScenarioError(f'{where}: expected a whole number {low}..{high},'
                            f' not {reprlib.repr(value)}')
    return value


def _threshold(value: typing.Any) -> float:
    number = _number('threshold', value, 0, _MAX_COUNT)
    if number == 0:
        raise ScenarioError('threshold: expected a number of instances of at'
                            ' least 1, or a share above 0')
    return number


def _links(value: typing.Any) -> dict[str, typing.Any]:
    _object('links', value)
    found = {}
    for name in _LINKS:
        where = f'links.{name}'
        if name not in value:
            raise ScenarioError(f'{where}: missing; the scenario must give'
                                ' it')
        low, high = ((_MIN_MBPS, _MAX_MBPS) if name.endswith('_mbps')
                     else (0, _MAX_RTT_MS))
        found[name] = _number(where, value[name], low, high)
    return found


def _instances(data: dict[str, typing.Any], image_bytes: int
               ) -> tuple[list[float], list[list[ReadRow]]]:
    given = _list('instances', _field(data, 'instances'))
    if not 1 <= len(given) <= MAX_INSTANCES:
        raise ScenarioError(f'instances: expected 1 to {MAX_INSTANCES}, not'
                            f' {len(given)}')
    starts, reads = [], []
    for n, instance in enumerate(given):
        where = f'instances[{n}]'
        _object(where, instance)
        for name in ('start_us', 'reads'):
            if name not in instance:
                raise ScenarioError(f'{where}.{name}: missing; the scenario'
                                    ' must give it')
        starts.append(_number(f'{where}.start_us', instance['start_us'], 0,
                              _MAX_TIME_US))
        reads.append(list(_reads(f'{where}.reads', instance['reads'],
                                 image_bytes)))
    return starts, reads


def _reads(where: str, given: typing.Any, image_bytes: int
           ) -> collections.abc.Iterator[ReadRow]:
    total = 0.0
    for n, value in enumerate(_list(where, given)):
        at = f'{where}[{n}]'
        think, offset, length = _row(at, value, 'think_us, offset, length')
        think = _number(f'{at}[0]', think, 0, _MAX_TIME_US)
        offset = _whole(f'{at}[1]', offset, 0, image_bytes - 1)
        length = _whole(f'{at}[2]', length, 1, image_bytes - offset)
        total += think
        yield think, offset, length
    if total > _MAX_TIME_US:
        raise ScenarioError(f'{where}: the think times add up to more than'
                            f' {_MAX_TIME_US:g} microseconds')


def _profile(given: typing.Any, chunks: int) -> list[ProfileRow] | None:
    if given is None:
        return None
    rows = []
    seen = set()
    for n, value in enumerate(_list('profile', given)):
        at = f'profile[{n}]'
        chunk, count, mean_us = _row(at, value, 'chunk, count, mean_us')
        chunk = _whole(f'{at}[0]', chunk, 0, chunks - 1)
        if chunk in seen:
            raise ScenarioError(f'{at}[0]: chunk {chunk} is listed twice')
        seen.add(chunk)
        rows.append((chunk, _whole(f'{at}[1]', count, 1, _MAX_COUNT),
                     _number(f'{at}[2]', mean_us, 0, _MAX_TIME_US)))
    return rows
