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
"""A guest's page cache, above volumes whose requests a host sees."""

import collections
import collections.abc


class PageCache:
    """An LRU cache whose size changes.

    :ivar size: in blocks; more are evicted with the next one that enters
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._blocks: collections.OrderedDict[int, None] = \
            collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def misses(self, block: int) -> bool:
        """Request a block; return whether the host sees the request."""
        if block in self._blocks:
            self._blocks.move_to_end(block)
            return False
        self._blocks[block] = None
        while len(self._blocks) > self.size:
            self._blocks.popitem(last=False)
        return True

    def below(self, blocks: collections.abc.Iterable[int]) -> list[int]:
        """Return what the host sees of the requests of a guest."""
        return [block for block in blocks if self.misses(block)]
