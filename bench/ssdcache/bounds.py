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
"""How few misses are possible of requests whose future is known."""

import heapq

import numpy


def keys(requests):
    """Return a number for the volume and block of each request.

    :param requests: an array of :data:`traces.RECORD`, a block each
    """
    # The highest bit of the volume marks writes.
    volumes = requests['volume'].astype(numpy.uint64) << 33 >> 1
    return volumes | requests['offset'] // 4096


def clairvoyant(found, capacity):
    """Return the fewest misses of any cache, which knows all of the future.

    The block that is referenced last of all leaves (Belady), which may be the
    one that was just referenced. No cache has fewer, however it is divided.

    :param found: as :func:`keys` returns them
    :param capacity: blocks
    """
    count = len(found)
    order = numpy.argsort(found, kind='stable')
    again = numpy.full(count, count)
    same = found[order[:-1]] == found[order[1:]]
    again[order[:-1][same]] = order[1:][same]
    # Of each reference: whether its block is cached until then.
    kept = bytearray(count + 1)
    farthest: list[int] = []
    held = misses = 0
    for now, then in enumerate(again.tolist()):
        if kept[now]:
            held -= 1
        else:
            misses += 1
        if then == count:
            continue
        kept[then] = True
        heapq.heappush(farthest, -then)
        held += 1
        if held > capacity:
            kept[-heapq.heappop(farthest)] = False
            held -= 1
    return misses


def pinned(found, capacity):
    """Return the misses if the most requested blocks are cached, and stay.

    Each misses once. No policy that knows how often each block is requested,
    but not when, has fewer misses, if requests are independent.

    :param found: as :func:`keys` returns them
    :param capacity: blocks
    """
    _, counts = numpy.unique(found, return_counts=True)
    most = numpy.sort(counts)[-capacity:]
    return int(len(found) - (most - 1).sum())


def divided(misses):
    """Return the fewest misses of all sizes that add up to the capacity.

    :param misses: of each volume, those with 0, 1, 2 ... steps of the cache
    """
    best = [0] * len(misses[0])
    for row in misses:
        best = [min(best[size - own] + row[own] for own in range(size + 1))
                for size in range(len(row))]
    return best[-1]
