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
"""Sizes that follow a guest's page cache, with the real cache.

No guest runs: a page cache in memory stands for the one of its kernel, and
says its size as Nova's driver would.
"""

from testing import page_cache
from tests.functional.ssdcache import test_epochs

BLOCK = test_epochs.BLOCK
SMALL, LARGE = 300, 900
# Blocks that the guest, and another volume without a page cache, request.
BLOCKS, OTHERS = 1000, 950
REQUESTS = 5000
# What is seen when sizes need not be exact.
NEAR = 100


class TestSimulatedGuest(test_epochs.EpochTest):

    def setUp(self):
        super().setUp()
        self.guest = page_cache.PageCache(SMALL)

    def guest_epoch(self, sizes):
        """Work for an epoch, a part of it with each size of the page cache.

        :returns: sizes of partitions after it
        """
        for size in sizes:
            self.guest.size = size
            self.request(REQUESTS // len(sizes))
            self.volumes.note_page_cache('guest', len(self.guest), ('a',))
        self.volumes.end_epoch()
        return {name: each['limit']
                for name, each in self.volumes.status()['volumes'].items()}

    def request(self, count):
        """Request blocks; of the guest's, the host sees some."""
        seen = []
        for _request in range(count):
            block = self.random.randrange(BLOCKS)
            if self.guest.misses(block):
                seen.append(('a', block))
            if self.random.random() < 0.6:
                seen.append(('c', self.random.randrange(OTHERS)))
        for at in range(0, len(seen), test_epochs.DEPTH):
            batch = seen[at:at + test_epochs.DEPTH]
            for name, block in batch:
                self.clients[name].send(test_epochs.nbd.READ, block * BLOCK,
                                        BLOCK)
            for name, _block in batch:
                self.assertEqual(0, self.clients[name].receive().error)

    def test_sizes_change_before_the_curve_does(self):
        for _epoch in range(3):
            before = self.guest_epoch([SMALL] * 10)
        # The guest's volume is read more often than the other.
        self.assertGreater(before['a'], test_epochs.CAPACITY - NEAR)
        [last, *_others] = self.volumes.status()['decisions']
        self.assertNotIn('page cache', ' '.join(last['explain']))
        # In the last tenth of an epoch an application leaves its memory.
        found = self.guest_epoch([SMALL] * 9 + [LARGE])
        self.assertLess(found['a'], before['a'] - NEAR, found)
        [last, *_others] = self.volumes.status()['decisions']
        [line] = [line for line in last['explain'] if 'page cache' in line]
        self.assertRegex(line, r'^a: the guest.s page cache grew from 1 to'
                               r' [23] MiB: \d+ references are expected')
        # The next epoch confirms it: sizes go on in the same direction.
        self.assertLess(self.guest_epoch([LARGE] * 10)['a'],
                        before['a'] - NEAR)
