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
"""Numbers of blocks, as they travel with a volume from host to host.

The runs of blocks in ascending order, each as two numbers: how many blocks are
between its begin and the end of the one before, and how many it has. A number
has seven bits in each byte, the lowest first; the highest bit says that more
follow (LEB128). All of it is sent as base64.
"""

import base64
import binascii
import collections.abc
import typing

from diffcache_openstack.common import exceptions

# Of one volume, 512 MiB.
MOST_BLOCKS = 1 << 17
MOST_CHARACTERS = 1 << 20
PATTERN = r'[A-Za-z0-9+/]*={0,2}'
# Volumes have fewer blocks.
_MOST_BITS = 48


class Run(typing.NamedTuple):
    """Blocks that follow one another: number of the first, how many."""

    first: int
    blocks: int


def pack(runs: collections.abc.Iterable[Run]) -> str:
    """Return the text of runs in ascending order.

    The last ones are left out where it would be too long.
    """
    packed, end = bytearray(), 0
    for first, count in runs:
        more = _number(first - end) + _number(count)
        if len(packed) + len(more) > MOST_CHARACTERS // 4 * 3:
            break
        packed += more
        end = first + count
    return base64.b64encode(packed).decode()


def unpack(text: str) -> list[Run]:
    """Return the runs of a text from an untrusted host.

    :raises InvalidInput: the text has another form, or too many blocks
    """
    if len(text) > MOST_CHARACTERS:
        raise exceptions.InvalidInput(
            f'A list of blocks has at most {MOST_CHARACTERS} characters, not'
            f' {len(text)}.')
    try:
        packed = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise exceptions.InvalidInput(
            f'A list of blocks is no base64: {error}') from error
    runs, end, blocks = [], 0, 0
    numbers = list(_numbers(packed))
    if len(numbers) % 2:
        raise exceptions.InvalidInput('A list of blocks breaks off.')
    for gap, count in zip(numbers[::2], numbers[1::2]):
        runs.append(Run(end + gap, count))
        end += gap + count
        blocks += count
        if not count or end >> _MOST_BITS or blocks > MOST_BLOCKS:
            raise exceptions.InvalidInput(
                f'A list of blocks has no empty runs, at most {MOST_BLOCKS}'
                f' blocks, and none that no volume has.')
    return runs


def divided(runs: collections.abc.Iterable[Run], most: int
            ) -> collections.abc.Iterator[list[Run]]:
    """Yield the same blocks in parts of at most this many."""
    part: list[Run] = []
    left = most
    for first, count in runs:
        while count:
            here = min(count, left)
            part.append(Run(first, here))
            first, count, left = first + here, count - here, left - here
            if not left:
                yield part
                part, left = [], most
    if part:
        yield part


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7f:
        found.append(value & 0x7f | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _numbers(packed: bytes) -> collections.abc.Iterator[int]:
    """Yield numbers.

    :raises InvalidInput: one is too large, or breaks off
    """
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7f) << shift
        shift += 7
        if not byte & 0x80:
            yield value
            value = shift = 0
        elif shift > _MOST_BITS:
            raise exceptions.InvalidInput('A list of blocks has a number that'
                                          ' is too large.')
    if shift:
        raise exceptions.InvalidInput('A list of blocks breaks off.')
