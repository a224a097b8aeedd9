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
"""What is known of one image's boots, carried to another image.

The next build of an image has most of the content of the one before, and an
unrelated image of the same distribution has files of the same paths. Where
the content of a chunk is in the other image, a profile's row goes there.
"""

import bisect
import collections.abc
import typing

from diffcache_openstack.prefetch import by_file
from diffcache_openstack.prefetch import profiles

# A chunk of the target gets the row of a source chunk that has at least this
# share of its content there.
LEAST_SHARE = 0.25
# A way of finding content is the last one for a chunk of which it finds this
# share.
ENOUGH = 0.5
# Targets that get the row of one source chunk. With the least share more than
# four have it only where content is repeated.
MOST_TARGETS = 4


class Common(typing.NamedTuple):
    """Content of a source's chunk that a target's chunk has.

    :ivar target: number of the chunk in the image that is carried to
    :ivar source: number of the chunk in the image of the profile
    :ivar amount: of the content, in the unit of the source chunk's size
    """

    target: int
    source: int
    amount: int


# Sizes and what is in common, of one way to find content.
Way = tuple[dict[int, int], list[Common]]


def carry(rows: profiles.Rows, sizes: collections.abc.Mapping[int, int],
          common: collections.abc.Iterable[Common]) -> profiles.Rows:
    """Return the profile of another image, as far as it has the content.

    A source chunk's row goes to each target chunk that has at least
    :data:`LEAST_SHARE` of the source chunk's content, to
    :data:`MOST_TARGETS` at most: those that have the most of it, the lowest
    of equals. A target chunk that several rows go to gets the one of the most
    instances, then the earliest. So no count and no time is greater than in
    the source, each target chunk is one that ``common`` names, and a profile
    carried to its own image (each chunk in common with itself alone) stays.

    :param rows: {chunk: (count, total_us)} of the image that was booted
    :param sizes: {source chunk: content}, in any unit, such as blocks that are
        not zero, or bytes of files; chunks without one are not carried
    :param common: what the two images have in common, each pair of target and
        source once; sources without a row are passed over
    """
    found: dict[int, list[Common]] = {}
    for each in common:
        size = sizes.get(each.source, 0)
        if each.source in rows and size > 0 and (
                each.amount >= LEAST_SHARE * size):
            found.setdefault(each.source, []).append(each)
    carried: profiles.Rows = {}
    for source, places in found.items():
        places.sort(key=lambda place: (-place.amount, place.target))
        for place in places[:MOST_TARGETS]:
            known = carried.get(place.target)
            if known is None or _urgency(rows[source]) < _urgency(known):
                carried[place.target] = rows[source]
    return profiles.bounded(carried)


def common_files(source: by_file.Files, target: by_file.Files,
                 chunks: collections.abc.Iterable[int], chunk_bytes: int
                 ) -> Way:
    """Find the files of some chunks in another image, by their names.

    A byte of a file corresponds to the byte of the other image's file of that
    name that is at the same relative position. What is named otherwise than
    by a path, such as metadata, corresponds by position; what has an empty
    name does not.

    :returns: for each source chunk its bytes that have names, and those in
        chunks of the target; arguments of :func:`carry`
    """
    places = _Places(target, chunk_bytes)
    ends = _ends(source)
    sizes: dict[int, int] = {}
    found: dict[tuple[int, int], float] = {}
    for chunk in set(chunks):
        size = 0
        for start, end, file, position in source.within(
                chunk * chunk_bytes, (chunk + 1) * chunk_bytes):
            name = source.names[file]
            if not name:
                continue
            size += end - start
            for at, amount in places.of(name, ends[file], position,
                                        position + end - start):
                found[at, chunk] = found.get((at, chunk), 0) + amount
        sizes[chunk] = size
    return sizes, [Common(*pair, round(amount))
                   for pair, amount in sorted(found.items())]


def carry_in_turn(rows: profiles.Rows,
                  ways: collections.abc.Iterable[Way]) -> profiles.Rows:
    """Return a profile carried by several ways of finding content.

    A way carries the rows of chunks of which none before it found
    :data:`ENOUGH` of their content. A target chunk keeps the row that it got
    first.

    :param ways: the arguments of :func:`carry`
    """
    carried: profiles.Rows = {}
    left = rows
    for sizes, common in ways:
        carried = carry(left, sizes, common) | carried
        found: dict[int, int] = {}
        for each in common:
            found[each.source] = found.get(each.source, 0) + each.amount
        left = {chunk: row for chunk, row in left.items()
                if found.get(chunk, 0) < ENOUGH * sizes.get(chunk, 0)
                or not sizes.get(chunk, 0)}
    return profiles.bounded(carried)


def _ends(files: by_file.Files) -> list[int]:
    """Return where the stored content of each file ends."""
    ends = [0] * len(files.names)
    for start, end, file, position in files.extents:
        ends[file] = max(ends[file], position + end - start)
    return ends


class _Places:
    """The chunks that files of an image are stored in, by name."""

    def __init__(self, files: by_file.Files, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._ends = _ends(files)
        # The first of equal names: paths of another partition.
        self._numbers: dict[str, int] = {}
        for number, name in enumerate(files.names):
            self._numbers.setdefault(name, number)
        self._parts: dict[int, list[tuple[int, int, int]]] = {}
        for start, end, file, position in files.extents:
            self._parts.setdefault(file, []).append(
                (position, position + end - start, start))
        for parts in self._parts.values():
            parts.sort()

    def of(self, name: str, size: int, start: int, end: int
           ) -> collections.abc.Iterator[tuple[int, float]]:
        """Return where the bytes of a file are stored here.

        :param size: of the file that the bytes are of
        :returns: (a chunk of the image, bytes of the file that it has)
        """
        number = self._numbers.get(name)
        if number is None or not size:
            return
        scale = self._ends[number] / size if name.startswith('/') else 1.0
        first, last = start * scale, end * scale
        parts = self._parts.get(number, [])
        at = bisect.bisect_right(parts, first, key=_part_end)
        for begin, stop, place in parts[at:]:
            if begin >= last:
                return
            here = place + max(first - begin, 0.0)
            until = place + min(last, stop) - begin
            while here < until:
                chunk = int(here // self._chunk_bytes)
                step = min(until, (chunk + 1) * self._chunk_bytes)
                yield chunk, (step - here) / scale
                here = step


def _part_end(part: tuple[int, int, int]) -> int:
    return part[1]


def _urgency(row: tuple[int, int]) -> tuple[int, float]:
    """Return a key that orders rows: most instances first, then earliest."""
    count, total_us = row
    return -count, total_us / count
