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
"""Layout of the heat maps of a profile: what servers read, and when.

An image is drawn like text: cells from left to right, then the next line. A
cell is as many chunks as are needed for the whole image to fit.
"""

import collections.abc
import dataclasses
import typing

from django.utils.translation import gettext_lazy as _

from diffcache_openstack.dashboard import formats

COLUMNS, MOST_LINES = 64, 24
LEVELS = 5
_SIDE = 12
_LEFT, _TOP = 70, 4
_SECOND_US = 10 ** 6


@dataclasses.dataclass(frozen=True)
class Cell:
    """A part of the image that servers read.

    :ivar left: of its square, in pixels
    :ivar top: of its square
    :ivar frequent: level of the part of the servers that read it, 1 to LEVELS
    :ivar early: level of the time of its first read; LEVELS is the earliest
    """

    left: int
    top: int
    frequent: int
    early: int
    title: str


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of the map, in figures.

    :ivar middle: of the line, in pixels
    :ivar start: offset in the image, as it is shown
    :ivar end: likewise
    :ivar read: bytes that were read, as they are shown
    :ivar servers: largest part of the servers that read a chunk, as it is
        shown
    :ivar first: mean time of the earliest read, as it is shown
    """

    middle: int
    start: str
    end: str
    read: str
    servers: str = ''
    first: str = ''


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Both heat maps of a profile, which have the same cells.

    :ivar outline: path of SVG around the image
    :ivar lines: all of them, from the image's start
    :ivar frequent: what each level of servers stands for, the least first
    :ivar early: what each level of times stands for, the latest first
    :ivar cell: bytes of a cell, as they are shown
    """

    outline: str
    cells: list[Cell]
    lines: list[Line]
    frequent: list[tuple[int, str]]
    early: list[tuple[int, str]]
    cell: str
    height: int

    width = _LEFT + COLUMNS * _SIDE + 4
    left, side = _LEFT, _SIDE

    @property
    def read_lines(self) -> list[Line]:
        """The lines of which something was read."""
        return [line for line in self.lines if line.servers]


class _Part(typing.NamedTuple):
    """What was read of a cell or line: bytes, servers, mean microseconds."""

    read: int
    servers: int
    first_us: float


def draw(profile: typing.Any, size: int) -> Drawing:
    """Lay the heat maps of a profile out.

    :param profile: with its rows
    :param size: bytes of the image
    """
    plane = _Plane(profile, size)
    return Drawing(
        plane.outline(), plane.cells(), plane.lines(),
        [(level, f'≤ {level / LEVELS:.0%}')
         for level in range(1, LEVELS + 1)],
        [(level, f'≤ {formats.seconds(plane.until(level))}')
         for level in range(1, LEVELS + 1)],
        formats.size(plane.cell), _TOP + plane.count_lines() * _SIDE + 4)


class _Plane:
    """An image of which a profile is known, divided into cells."""

    def __init__(self, profile: typing.Any, size: int):
        self._rows = profile.rows or []
        self._chunk = profile.chunk
        chunks = max([1, -(-size // self._chunk),
                      *(chunk + 1 for chunk, _count, _us in self._rows)])
        self._chunks_of_cell = -(-chunks // (COLUMNS * MOST_LINES))
        self._cells = -(-chunks // self._chunks_of_cell)
        self._end = max(size, 1)
        self._most = max((count for _chunk, count, _us in self._rows),
                         default=1)
        self._latest = max((us for _chunk, _count, us in self._rows),
                           default=0) or 1

    @property
    def cell(self) -> int:
        """Bytes of a cell."""
        return self._chunks_of_cell * self._chunk

    def count_lines(self) -> int:
        """Return the number of lines."""
        return -(-self._cells // COLUMNS)

    def until(self, level: int) -> float:
        """Return the seconds until which reads have a level."""
        return (self._latest * (LEVELS - level + 1) / LEVELS / _SECOND_US)

    def outline(self) -> str:
        """Return the path around all cells; the last line may be shorter."""
        whole, rest = divmod(self._cells, COLUMNS)
        right, bottom = _LEFT + COLUMNS * _SIDE, _TOP + whole * _SIDE
        if not whole:
            right, bottom, rest = _LEFT + rest * _SIDE, _TOP + _SIDE, 0
        last = (f' H{_LEFT + rest * _SIDE} V{bottom + _SIDE}' if rest else '')
        return f'M{_LEFT},{_TOP} H{right} V{bottom}{last} H{_LEFT} Z'

    def cells(self) -> list[Cell]:
        """Return the cells that were read."""
        found = []
        for number, part in self._parts(self._chunks_of_cell).items():
            line, column = divmod(number, COLUMNS)
            found.append(Cell(
                _LEFT + column * _SIDE, _TOP + line * _SIDE,
                max(1, -(-part.servers * LEVELS // self._most)),
                LEVELS - min(LEVELS - 1,
                             int(part.first_us * LEVELS / self._latest)),
                _('%(start)s to %(end)s: read by %(servers)s of the servers,'
                  ' first after %(first)s') % {
                      **self._span(number * self.cell, self.cell),
                      **self._figures(part)}))
        return found

    def lines(self) -> list[Line]:
        """Return all lines."""
        parts = self._parts(self._chunks_of_cell * COLUMNS)
        length = self.cell * COLUMNS
        found = []
        for number in range(self.count_lines()):
            part = parts.get(number)
            found.append(Line(
                _TOP + number * _SIDE + _SIDE // 2,
                **self._span(number * length, length),
                read=formats.size(part.read if part else 0),
                **(self._figures(part) if part else {})))
        return found

    def _span(self, start, length):
        return {'start': formats.size(start),
                'end': formats.size(min(start + length, self._end))}

    def _figures(self, part):
        return {'servers': formats.share(part.servers, self._most),
                'first': formats.seconds(part.first_us / _SECOND_US)}

    def _parts(self, chunks: int) -> collections.abc.Mapping[int, _Part]:
        """Return what was read by the number of so many chunks."""
        found: dict[int, _Part] = {}
        for chunk, count, mean_us in sorted(self._rows):
            before = found.get(chunk // chunks, _Part(0, 0, mean_us))
            found[chunk // chunks] = _Part(
                before.read + self._chunk, max(before.servers, count),
                min(before.first_us, mean_us))
        return found
