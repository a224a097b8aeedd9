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
"""The chunk groups of a version in the making, and what they cost."""

from typing import Any
from typing import Sequence

import numpy as np
import numpy.typing as npt

from diffcache_openstack.versions import alpha
from diffcache_openstack.versions import catalogue

# A read from elsewhere counts as so many bytes of reading on. Restores read
# each frame once, and frames of one version lie in the order of the disk: what
# costs is that frames hold blocks that the version does not need, which is
# counted apart. Of a hundred versions the newest took no more CPU than the
# oldest, so little is left for the jump itself.
SEEK_BYTES = 64
# Writing a block to the disk that is restored costs so many times what reading
# it from the store does.
WRITE = 1.0
# The mark of blocks that are in no pack yet.
SPOOLED = 0xffffffff

# First block, blocks, origin, pack, slot.
Run = tuple[int, int, int, int, int]
# Number of the run, pack, frame, bytes of the frame, blocks used of it.
Frame = tuple[int, int, int, int, int]


class Delta:
    """A differential delta, divided into chunk groups.

    :param runs: what it consists of, in the order of the disk
    :param group_blocks: blocks of a group
    """

    def __init__(self, runs: Sequence[Run], group_blocks: int) -> None:
        self._size = group_blocks
        table = np.array(runs, dtype=np.int64).reshape(-1, 5)
        lengths = table[:, 1]
        ends = np.cumsum(lengths)
        starts = ends - lengths
        total = int(ends[-1]) if len(ends) else 0
        self._owners = np.repeat(table[:, 2], lengths)
        self._positions = (np.arange(total, dtype=np.int64)
                           + np.repeat(table[:, 0] - starts, lengths))
        # Runs, cut where groups end.
        cuts = np.union1d(starts, np.arange(0, total, group_blocks))
        which = np.searchsorted(ends, cuts, side='right')
        self._cut_groups = cuts // group_blocks
        self._cut_lengths = np.diff(np.append(cuts, total))
        self._cut_packs = table[which, 3] if total else cuts
        self._cut_slots = (table[which, 4] + cuts - starts[which]
                           if total else cuts)

    def _ranges(self, chosen: Sequence[int]) -> list[tuple[int, int]]:
        """The blocks of some groups, as ranges (first, count)."""
        if not chosen:
            return []
        positions = np.concatenate([
            self._positions[group * self._size:(group + 1) * self._size]
            for group in chosen])
        starts = np.flatnonzero(np.diff(positions, prepend=-2) != 1)
        counts = np.diff(np.append(starts, len(positions)))
        return list(zip(positions[starts].tolist(), counts.tolist()))

    def exact(self, proportion: float) -> list[tuple[int, int]]:
        """Ranges of the groups that the paper's rule stores again."""
        return self._ranges(alpha.select(self._owners, self._size,
                                         proportion))

    def stored_runs(self) -> list[tuple[int, int, int]]:
        """Pack, slot and blocks of each run, cut where groups end."""
        return list(zip(self._cut_packs.tolist(), self._cut_slots.tolist(),
                        self._cut_lengths.tolist()))

    def costs(self, frames: Sequence[Frame], head: catalogue.Catalogue,
              shared: int) -> alpha.Costs:
        """What restoring each group costs, and what storing it again adds.

        A frame that several groups need is read once: each pays for the
        share that it uses.

        :param shared: blocks that are restored besides the delta's
        """
        count = -(-len(self._owners) // self._size)
        packs = [pack for pack in head.packs.values() if pack.blocks]
        mean = (sum(pack.data_bytes for pack in packs)
                / max(1, sum(pack.blocks for pack in packs))) or 2048.0
        blocks = np.bincount(self._cut_groups, self._cut_lengths,
                             minlength=count)
        fresh = self._cut_packs == SPOOLED
        new = np.bincount(self._cut_groups[fresh],
                          self._cut_lengths[fresh], minlength=count)
        now = new * mean
        if frames:
            now += self._read_now(np.array(frames, dtype=np.int64), count)
        contiguous = blocks * mean + SEEK_BYTES
        write = blocks * mean * WRITE
        return alpha.Costs(
            np.maximum(now, contiguous) + write, contiguous + write,
            (blocks - new) * mean, shared * mean * (1 + WRITE))

    def _read_now(self, table: npt.NDArray[np.int64], count: int
                  ) -> npt.NDArray[Any]:
        groups = self._cut_groups[table[:, 0]]
        frames = table[:, 1] << 32 | table[:, 2]
        _, inverse = np.unique(frames, return_inverse=True)
        used = np.bincount(inverse, table[:, 4])
        share = table[:, 4] / used[inverse]
        jumps = np.ones(len(frames), dtype=bool)
        jumps[1:] = ((frames[1:] != frames[:-1])
                     & (frames[1:] != frames[:-1] + 1))
        return (np.bincount(groups, table[:, 3] * share, minlength=count)
                + np.bincount(groups, jumps * float(SEEK_BYTES),
                              minlength=count))

    @property
    def blocks(self) -> int:
        """Blocks of the delta."""
        return len(self._owners)

    def automatic(self, costs: alpha.Costs, factor: float
                  ) -> list[tuple[int, int]]:
        """Ranges of the groups that have to be stored again.

        A restore then costs at most ``factor`` times a differential one's.
        """
        return self._ranges(alpha.automatic(costs, factor))
