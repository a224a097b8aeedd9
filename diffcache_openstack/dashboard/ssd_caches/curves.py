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
"""Layout of the curve of a volume: misses over sizes of its partition."""

import bisect
import dataclasses
import typing

from diffcache_openstack.dashboard import formats

WIDTH, HEIGHT = 640, 300
_LEFT, _TOP, _RIGHT, _BOTTOM = 60, 16, 24, 44
_PERCENT = 100
_GRID = (0, 25, 50, 75, 100)
# Sizes that the table below the curve has, as parts of the present one.
_PARTS = (0.25, 0.5, 1, 2, 4)


@dataclasses.dataclass(frozen=True)
class Mark:
    """A line of the grid, or of the present size.

    :ivar at: its place, in pixels
    """

    at: float
    label: str


@dataclasses.dataclass(frozen=True)
class Point:
    """What a partition of a size would have had.

    :ivar size: as it is shown
    :ivar misses: part of the references, as it is shown
    :ivar latency: mean of all references, as it is shown
    """

    size: str
    misses: str
    latency: str
    is_current: bool


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A curve as it is drawn.

    :ivar path: of SVG, steps down from all references
    """

    path: str
    across: list[Mark]
    down: list[Mark]
    current: Mark
    points: list[Point]

    #: Edges of the plane, in pixels.
    left, top = _LEFT, _TOP
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    width, height = WIDTH, HEIGHT


def draw(curve: dict[str, typing.Any], limit: int) -> Drawing:
    """Lay a curve out.

    :param curve: of the service: ``sizes`` (blocks, ascending) and the
        ``hits`` that partitions of these would have had
    :param limit: blocks that the partition has
    """
    end = max([1, limit, *curve['sizes']])

    def across(blocks):
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * blocks / end, 1)

    return Drawing(
        _path(curve, across), [Mark(_down(share), f'{share}%')
                               for share in _GRID],
        [Mark(across(end * part / 4), formats.blocks(round(end * part / 4)))
         for part in range(5)],
        Mark(across(limit), formats.blocks(limit)),
        [_point(curve, round(limit * part), part == 1) for part in _PARTS])


def _path(curve, across):
    """Return steps: the misses fall where a partition has a size."""
    steps = [f'M{across(0)},{_down(_PERCENT)}']
    for size, hits in zip(curve['sizes'], curve['hits']):
        share = _PERCENT * _misses(curve, hits)
        steps.append(f'H{across(size)} V{_down(share)}')
    return ' '.join([*steps, f'H{WIDTH - _RIGHT}'])


def _down(percent):
    return round(_TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - percent / _PERCENT),
                 1)


def _misses(curve, hits):
    """Return the part of the references that misses."""
    return 1 - hits / max(1, curve['references'])


def _point(curve, size, is_current):
    larger = bisect.bisect_right(curve['sizes'], size)
    misses = _misses(curve, curve['hits'][larger - 1] if larger else 0)
    mean = curve['hit_us'] + misses * (curve['miss_us'] - curve['hit_us'])
    return Point(formats.blocks(size), f'{misses:.0%}',
                 formats.seconds(mean / 1e6), is_current)
