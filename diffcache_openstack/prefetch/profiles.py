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
"""What instances read of an image, summed over the hosts of a deployment.

Rows are {chunk: (count, total_us)}: the number of instances that read a chunk,
and the sum of the microseconds from their start to that read (Nicolae et al.,
"Optimizing Multi-deployment on Clouds by Means of Self-adaptive Prefetching",
section 2.1). All numbers are integers, so that the share of a host can be
taken out of a sum exactly.

A host reports the rows of a *run* as they grow. What it has reported before is
replaced, not added to: a report may be repeated or overtaken. When its record
begins anew, so does a run, and the former one is kept as its past.

Hosts may be wrong, or lie. One host adds a bounded number of chunks to those
that others have read, and counts for a bounded number of instances. If what
its own instances read is not what others made them prefetch, what others have
counted is halved.
"""

import collections.abc
import json
import math
import typing
import zlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import profile_files

CHUNK = profile_files.CHUNK
# That repositories send together, as diffcached asks for them.
GROUP_CHUNKS = 4
# Of servers that read alike: a flavor's name, or what a user chose.
LABEL_PATTERN = r'[A-Za-z0-9 ._:@+-]{0,128}'
# Chunks of a profile: 2 GiB of an image. A boot reads some hundred.
MOST_ROWS = 8192
# Instances of a run on one host.
MOST_INSTANCES = 10 ** 6
# Reads that come later say nothing of a boot, and are counted as that late.
LATEST_US = 3600 * 10 ** 6
# The most that one host counts for. What diffcached prefetches was by default
# read by a tenth of the instances of the most frequent chunk, so that two
# instances on other hosts outweigh a host that reports what was never read.
HOST_SHARE = 16
# A share of a whole number may miss it by rounding, as in diffcached's
# native/prefetch/src/threshold.rs: 0.07 of 100 is 7.000000000000001.
_ROUNDING = 1e-9
# Chunks that one host adds to those that other hosts have read: as many as
# these, or 64 MiB of an image.
_MOST_NEW = 256
# Chunks that are to be read before their number says something.
_FEWEST_DUE = 64

Rows = dict[int, tuple[int, int]]


class Contribution(typing.NamedTuple):
    """What one host has reported of one profile.

    :ivar run: number of the run; later runs have greater ones
    :ivar number: of the last report within the run
    :ivar past: rows of former runs
    :ivar rows: rows of this run
    """

    run: int = 0
    number: int = 0
    past: Rows = {}
    rows: Rows = {}

    def counted(self) -> Rows:
        """Return the rows that count in the profile: a bounded share."""
        return bounded(scaled(added(self.past, self.rows), HOST_SHARE))

    def report(self, run: int, number: int, rows: Rows) -> 'Contribution':
        """Return the contribution after a report.

        :returns: this one if the report was overtaken by a later one
        """
        if (run, number) <= (self.run, self.number):
            return self
        past = self.past if run == self.run else self.counted()
        return Contribution(run, number, past, rows)

    def beside(self, others: Rows) -> 'Contribution':
        """Return the contribution with a bounded number of further chunks.

        :param others: rows that others have reported, if any
        """
        new = {chunk: row for chunk, row in added(self.past, self.rows).items()
               if chunk not in others}
        most = max(_MOST_NEW, len(others))
        if not others or len(new) <= most:
            return self
        dropped = new.keys() - bounded(new, most).keys()
        return self._replace(past=_except(self.past, dropped),
                             rows=_except(self.rows, dropped))


def _except(rows: Rows, dropped: collections.abc.Collection[int]) -> Rows:
    return {chunk: row for chunk, row in rows.items() if chunk not in dropped}


def parse(rows: collections.abc.Iterable[collections.abc.Sequence[int]],
          image_bytes: int) -> Rows:
    """Check rows of [chunk, count, total_us] that a host or a user sent.

    :raises InvalidInput: a row is of no chunk of the image, is there twice,
        or has a number that no reads lead to
    """
    found: Rows = {}
    chunks = -(-image_bytes // CHUNK)
    for chunk, count, total_us in rows:
        if not 0 <= chunk < chunks or chunk in found:
            raise exceptions.InvalidInput(
                f'Row of chunk {chunk}: a profile has each of the {chunks}'
                f' chunks of {CHUNK} bytes of its image once at most.')
        if not (0 < count <= MOST_INSTANCES
                and 0 <= total_us <= count * LATEST_US):
            raise exceptions.InvalidInput(
                f'Row of chunk {chunk}: {count} instances that read it after'
                f' {total_us} microseconds in sum; there may be 1 to'
                f' {MOST_INSTANCES}, each within {LATEST_US}.')
        found[chunk] = (count, total_us)
    if len(found) > MOST_ROWS:
        raise exceptions.InvalidInput(
            f'A profile of {len(found)} chunks; {MOST_ROWS} are possible:'
            f' leave out those that the fewest instances read.')
    return found


def of_means(rows: collections.abc.Iterable[
        tuple[int, int, float]]) -> Rows:
    """Return the rows of diffcached's [chunk, count, mean_us]."""
    found = {}
    for chunk, count, mean_us in rows:
        number = min(count, MOST_INSTANCES)
        found[chunk] = (number, round(min(mean_us, LATEST_US) * number))
    return bounded(found)


def with_means(rows: Rows) -> list[list]:
    """Return [chunk, count, mean_us] rows by chunk, as diffcached has them."""
    return [[chunk, count, total_us / count]
            for chunk, (count, total_us) in sorted(rows.items())]


def listed(rows: Rows) -> list[list[int]]:
    """Return [chunk, count, total_us] rows by chunk, as they are sent."""
    return [[chunk, *values] for chunk, values in sorted(rows.items())]


def of_list(rows: collections.abc.Iterable[tuple[int, int, int]]) -> Rows:
    """Return the rows of a list that :func:`listed` returned."""
    return {chunk: (count, total_us) for chunk, count, total_us in rows}


def bounded(rows: Rows, most: int = MOST_ROWS) -> Rows:
    """Return this many rows at most: the most read, then earliest."""
    if len(rows) <= most:
        return rows
    order = sorted(rows.items(), key=lambda row: (
        -row[1][0], row[1][1] / row[1][0], row[0]))
    return dict(order[:most])


def is_unread(advised: Rows, rows: Rows) -> bool:
    """Return whether less than half was read of what was prefetched.

    Reports come while instances still boot: what others have read later than
    the last of the rows is not due yet.
    """
    latest = max((total_us / count for count, total_us in rows.values()),
                 default=-1.0)
    due = {chunk for chunk, (count, total_us) in advised.items()
           if total_us / count <= latest}
    return len(due) >= _FEWEST_DUE and 2 * len(due & rows.keys()) < len(due)


def halved(rows: Rows) -> Rows:
    """Return rows with half of their counts, rounded down."""
    return {chunk: (count // 2, total_us * (count // 2) // count)
            for chunk, (count, total_us) in rows.items() if count > 1}


def least_readers(threshold: float, count: int) -> int:
    """Return from how many readers on a chunk is a hint, at least 1.

    :param threshold: ``[lazy] threshold``: below 1 a share of the instances
    :param count: of the instances
    """
    if threshold < 1:
        return max(1, math.ceil(threshold * count * (1 - _ROUNDING)))
    return math.ceil(threshold)


def chosen(rows: Rows, threshold: float) -> Rows:
    """Return the rows that diffcached prefetches by: those read often enough.

    :param threshold: ``[lazy] threshold``, of which a share is one of the
        instances that read the most frequent chunk
    """
    least = least_readers(threshold, instances(rows))
    return bounded({chunk: row for chunk, row in rows.items()
                    if row[0] >= least})


def size_of(rows: Rows, image_bytes: int) -> int:
    """Return the bytes that come with the chunks of a profile of an image.

    Over a WAN that is each group of chunks which has one of them.
    """
    group = GROUP_CHUNKS * CHUNK
    return sum(max(0, min(group, image_bytes - number * group))
               for number in {chunk // GROUP_CHUNKS for chunk in rows})


def added(rows: Rows, more: Rows) -> Rows:
    """Return the sum of two profiles."""
    found = dict(rows)
    for chunk, (count, total_us) in more.items():
        before = found.get(chunk, (0, 0))
        found[chunk] = (before[0] + count, before[1] + total_us)
    return found


def without(merged: Rows, part: Rows) -> Rows:
    """Return a sum without one of its summands.

    Of a sum that was halved since, no less than nothing is left.
    """
    found = dict(merged)
    for chunk, (count, total_us) in part.items():
        before = found.pop(chunk, (0, 0))
        if before[0] > count:
            found[chunk] = (before[0] - count, max(0, before[1] - total_us))
    return found


def scaled(rows: Rows, most: int) -> Rows:
    """Return rows whose greatest count is at most ``most``.

    Shares and mean times stay as they are, to rounding; what is left of less
    than half an instance is dropped.
    """
    greatest = instances(rows)
    if greatest <= most:
        return rows
    found = {}
    for chunk, (count, total_us) in rows.items():
        number = (2 * count * most + greatest) // (2 * greatest)
        if number:
            found[chunk] = (number, total_us * number // count)
    return found


def instances(rows: Rows) -> int:
    """Return the number of instances that read the most frequent chunk."""
    return max((count for count, _ in rows.values()), default=0)


def packed(rows: Rows) -> bytes:
    """Return rows as they are stored."""
    return zlib.compress(json.dumps(listed(rows)).encode())


def unpacked(data: bytes) -> Rows:
    """Return the rows that were stored."""
    return of_list(json.loads(zlib.decompress(data)))
