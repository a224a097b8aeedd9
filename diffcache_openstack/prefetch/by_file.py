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
"""What boots read of an image, by the files that the image stores there."""

import bisect
import collections.abc
import dataclasses
import typing

from diffcache_openstack.prefetch import profiles
from diffcache_openstack.prefetch import scenarios


class Files(typing.NamedTuple):
    """The files of an image, as :mod:`diffcache_openstack.blocks.file_map`.

    :ivar names: of each file, or of another use of bytes
    :ivar extents: start, end, number of the file, position in it; all bytes
        of the image in order
    """

    names: list[str]
    extents: collections.abc.Sequence[tuple[int, int, int, int]]

    @property
    def size(self) -> int:
        """The bytes of the image."""
        return self.extents[-1][1] if self.extents else 0

    def within(self, start: int, end: int
               ) -> collections.abc.Iterator[tuple[int, int, int, int]]:
        """Return the parts of extents between two bytes, in order."""
        at = bisect.bisect_right(self.extents, start, key=_end)
        for first, last, file, position in self.extents[at:]:
            if first >= end:
                return
            cut = max(start - first, 0)
            yield first + cut, min(last, end), file, position + cut


def _end(extent: tuple[int, int, int, int]) -> int:
    return extent[1]


@dataclasses.dataclass
class Share:
    """What boots read of one file.

    :ivar file: its number
    :ivar read: bytes that were read, each counted once; None if only chunks
        are known
    :ivar chunks: bytes of it in the chunks that were read
    :ivar instances: how many read it; of a profile, any chunk with it
    :ivar first_us: microseconds from an instance's start to the first read,
        of thinking; of a profile, the mean of its earliest chunk
    """

    file: int
    read: int | None
    chunks: int
    instances: int
    first_us: float


def of_scenario(scenario: scenarios.Scenario, files: Files) -> list[Share]:
    """Return what the instances of a scenario read, by file.

    :raises ScenarioError: the image has another size than the scenario's
    """
    check_size(scenario.image_bytes, files)
    first: dict[int, float] = {}
    readers: dict[int, int] = {}
    spans = set()
    for rows in scenario.reads:
        times = _first_reads(rows, files)
        for file, now in times.items():
            first[file] = min(now, first.get(file, now))
            readers[file] = readers.get(file, 0) + 1
        spans.update((offset, offset + length) for _, offset, length in rows)
    read = _bytes_by_file(_merged(spans), files)
    chunk = scenario.chunk
    numbers = {number for start, end in spans
               for number in range(start // chunk, (end - 1) // chunk + 1)}
    fetched = _bytes_by_file(_chunk_spans(numbers, chunk, files), files)
    return [Share(file, read[file], fetched[file], readers[file],
                  first[file]) for file in sorted(read)]


def _first_reads(rows: list[scenarios.ReadRow], files: Files
                 ) -> dict[int, float]:
    """Return when an instance first reads each file, without stalls."""
    first: dict[int, float] = {}
    now = 0.0
    for think_us, offset, length in rows:
        now += think_us
        for _, _, file, _ in files.within(offset, offset + length):
            first.setdefault(file, now)
    return first


def of_profile(rows: profiles.Rows, chunk: int, files: Files) -> list[Share]:
    """Return what a profile's chunks hold, by file.

    A chunk counts for each file in it, since a profile does not tell which
    of them was read.

    :param chunk: bytes of a chunk
    :raises ScenarioError: a chunk is behind the end of the image
    """
    if rows and max(rows) * chunk >= files.size:
        raise scenarios.ScenarioError(
            f'profile: chunk {max(rows)} is behind the end of the image of'
            f' {files.size} bytes; name the image of the profile')
    shares: dict[int, Share] = {}
    for number, (count, total_us) in rows.items():
        mean_us = total_us / count
        [span] = _chunk_spans([number], chunk, files)
        for start, end, file, _ in files.within(*span):
            share = shares.setdefault(file, Share(file, None, 0, 0, mean_us))
            share.chunks += end - start
            share.instances = max(share.instances, count)
            share.first_us = min(share.first_us, mean_us)
    return [share for _, share in sorted(shares.items())]


def check_size(image_bytes: int, files: Files) -> None:
    """Raise ScenarioError unless files are those of an image of this size."""
    if image_bytes != files.size:
        raise scenarios.ScenarioError(
            f'image_bytes: the boots are of an image of {image_bytes} bytes,'
            f' the given one has {files.size}; name the image that booted')


def _merged(spans: collections.abc.Iterable[tuple[int, int]]
            ) -> list[tuple[int, int]]:
    """Return spans of bytes in order, without overlaps."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _chunk_spans(numbers: collections.abc.Iterable[int], chunk: int,
                 files: Files) -> list[tuple[int, int]]:
    return [(number * chunk, min((number + 1) * chunk, files.size))
            for number in numbers]


def _bytes_by_file(spans: collections.abc.Iterable[tuple[int, int]],
                   files: Files) -> dict[int, int]:
    """Return the bytes of each file in spans that do not overlap."""
    found: dict[int, int] = {}
    for span in spans:
        for start, end, file, _ in files.within(*span):
            found[file] = found.get(file, 0) + end - start
    return found
