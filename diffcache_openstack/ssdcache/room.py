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
"""Room that SSD caches have for the working sets of volumes."""

import collections.abc

# A partition that would have this part of the hits of the largest one has the
# working set: beyond it the curve is nearly flat.
_ENOUGH = 0.95


def working_set(sizes: collections.abc.Sequence[int],
                hits: collections.abc.Sequence[int]) -> int:
    """Return the blocks from where a volume's curve is nearly flat.

    :param sizes: of partitions, in blocks
    :param hits: that partitions of these sizes would have had
    :returns: 0 if none would have had any
    """
    most = max(hits, default=0)
    return min((size for size, count in zip(sizes, hits)
                if most and count >= _ENOUGH * most), default=0)


def share(capacity: int, others: int, needed: int) -> float:
    """Return the part of the needed blocks that a cache can hold, 0 to 1.

    What other volumes have beyond their working sets is free. If working
    sets exceed the cache, all are cut alike.

    :param others: blocks of the working sets of other volumes
    :param needed: blocks of those that may come
    """
    wanted = others + needed
    return min(1.0, capacity / wanted) if wanted else 1.0
