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
"""Which chunk groups of a version are stored as differential.

Restoring a version that was stored as what changed since its parent
(*incremental*) reads from many versions; stored as what differs from the base
image (*differential*) it reads from one. Section 3.3 of the CloudVS paper
(Tang, Lee, Wong: A tunable version control system for virtual machines in an
open-source cloud) chooses between the two for each *chunk group* by one
parameter, alpha. :func:`automatic` chooses alpha's groups by what a restore
costs.
"""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from diffcache_openstack.common import exceptions


def non_sequential_reads(owners: npt.NDArray[np.int64],
                         group_size: int) -> npt.NDArray[np.int64]:
    """Non-sequential reads of each chunk group.

    A read is non-sequential if the chunk lies in another version than the
    one read just before, in the same group.

    :param owners: for each chunk of the differential delta, in the order of
        the disk, the version that holds it
    :param group_size: chunks of a group; the last may have fewer
    """
    groups = -(-len(owners) // group_size)
    counts = np.zeros(groups, dtype=np.int64)
    if len(owners) < 2:
        return counts
    jumps = np.flatnonzero(owners[1:] != owners[:-1]) + 1
    # A group's first chunk has no predecessor in its group.
    jumps = jumps[jumps % group_size != 0]
    np.add.at(counts, jumps // group_size, 1)
    return counts


def select(owners: npt.NDArray[np.int64], group_size: int,
           alpha: float) -> list[int]:
    """The groups to store as differential: the top proportion alpha.

    Groups are sorted by their non-sequential reads, most first; groups with
    equally many keep the order of the disk. The number of groups is rounded
    to the nearest, halves up.

    :param alpha: 0 (all incremental) to 1 (all differential)
    :returns: numbers of groups, ascending
    :raises InvalidInput: alpha or the group size is out of range
    """
    if not 0 <= alpha <= 1:
        raise exceptions.InvalidInput(
            f'alpha is {alpha}: choose 0 (incremental) to 1 (differential)')
    if group_size < 1:
        raise exceptions.InvalidInput(
            f'A chunk group of {group_size} chunks: choose at least 1')
    counts = non_sequential_reads(owners, group_size)
    wanted = int(np.floor(alpha * len(counts) + 0.5))
    order = np.argsort(-counts, kind='stable')
    return sorted(int(group) for group in order[:wanted])


@dataclasses.dataclass(frozen=True)
class Costs:
    """What restoring costs, for each chunk group, in bytes read.

    A seek counts as the bytes that could be read in its time.
    """

    # As the group is stored now.
    now: npt.NDArray[Any]
    # If it were stored contiguously.
    contiguous: npt.NDArray[Any]
    # Bytes that storing it contiguously adds.
    added: npt.NDArray[Any]
    # What restoring costs besides, however the groups are stored.
    common: float = 0.0


def automatic(costs: Costs, factor: float) -> list[int]:
    """The groups to store as differential so that a restore is fast enough.

    Keeps the cost of restoring the version below ``factor`` times that of a
    wholly differential one, at the least storage that choosing by gain per
    byte finds (the greedy rule for the covering knapsack), less every group
    that the goal turns out not to need.

    :returns: numbers of groups, ascending
    :raises InvalidInput: the factor is less than 1
    """
    if factor < 1:
        raise exceptions.InvalidInput(
            f'A restore factor of {factor}: choose 1 or more')
    gains = costs.now - costs.contiguous
    excess = float(costs.now.sum() + costs.common
                   - factor * (costs.contiguous.sum() + costs.common))
    worth = gains / np.maximum(costs.added, 1.0)
    chosen: list[int] = []
    for group in np.argsort(-worth, kind='stable'):
        if excess <= 0 or gains[group] <= 0:
            break
        chosen.append(int(group))
        excess -= float(gains[group])
    for group in sorted(chosen, key=lambda group: float(-costs.added[group])):
        if excess + gains[group] <= 0:
            chosen.remove(group)
            excess += float(gains[group])
    return sorted(chosen)
