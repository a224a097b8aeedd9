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
"""The curve of a volume below a guest's page cache that changes its size.

The host sees the references that the page cache does not serve. Assumed is an
LRU page cache above an LRU partition, and that the guest requests the same as
before. A block that the page cache has evicted is read again by the guest at
some *depth*: how many other blocks it has evicted since, and not read again.
A page cache that is d blocks larger still has what is at depths below d.

The host sees *distances*: how many other blocks it was asked for since it was
asked for this one. That is the depth, and what has entered the page cache
while the block was in it: on average as many blocks as the page cache has,
since each that enters it stays for as long (Little's law), and at least the
*span*, as none enters twice meanwhile. So a larger page cache takes from the
curve the distances from the span to its new size, and leaves the others where
they are.

The span can be read from the curve: reads through the page cache have no
shorter distances. What has is direct input/output, or a write that is flushed,
and does not change with the page cache.
"""

import dataclasses

from diffcache_openstack import _native

# Of a volume's references, as many may have shorter distances than the span.
_CHANCE = 0.01
# Below this part of the page cache are blocks that are flushed all the time,
# such as a journal, and what the sample of a curve has too many of.
_FLOOR = 16
# A span below this part of the page cache is none that the page cache makes.
_LEAST_SPAN = 4
# Mean over least time in a page cache, at most: a page cache has what is of
# other disks, too.
_MOST_SPANS = 1.5
# Steps of a curve that a forecast is of.
_STEPS = 4096


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What is expected of a volume below a larger page cache.

    :ivar curve: of as long an epoch as the curve that it is computed from
    :ivar span: distance in blocks that reads through the page cache have at
        least
    :ivar within: references with a distance from the span to this one stay
        in the guest
    """

    curve: _native.HitCurve
    span: int
    within: int


def span(curve: _native.HitCurve, size: int) -> int:
    """Return the shortest distance of reads through a page cache, in blocks.

    :param size: of the page cache, in blocks
    :returns: 0 if too many references have shorter distances than a page
        cache of this size leaves: they do not go through it
    """
    most = curve.hits(max(1, size // _FLOOR)) + _CHANCE * curve.references
    low, high = 0, size
    while low < high:
        middle = (low + high + 1) // 2
        if curve.hits(middle) <= most:
            low = middle
        else:
            high = middle - 1
    return low if low * _LEAST_SPAN >= size else 0


def grown(curve: _native.HitCurve, before: int, now: int) -> Forecast | None:
    """Return what is expected below a page cache that has grown.

    :param curve: below a page cache of ``before`` blocks
    :param now: blocks, more than before
    :returns: None if the references do not go through the page cache
    """
    found = span(curve, before)
    if not found:
        return None
    within = min(before, int(_MOST_SPANS * found)) + now - before
    base = curve.hits(found)
    gone = curve.hits(within) - base
    steps: list[tuple[int, int]] = []
    for size, hits in curve.thinned(_STEPS):
        if size > found:
            hits = max(base, hits - gone)
        if hits > (steps[-1][1] if steps else 0):
            steps.append((size, hits))
    left = curve.references - gone
    return Forecast(
        _native.HitCurve(left, min(curve.distinct, left), steps), found,
        within)


def kept_hits(curve: _native.HitCurve, size: int, before: int) -> int:
    """Return the hits that stay, at least, below a page cache that shrank.

    Whatever is requested: a distance becomes longer only by blocks that the
    page cache had served, and it had no more than its size. What it has served
    comes in addition; the host cannot know how much.

    :param size: of the partition, in blocks
    :param before: blocks that the page cache had
    """
    return curve.hits(max(0, size - before))
