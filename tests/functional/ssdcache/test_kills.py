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
"""Ends of the process under writes, in all modes: no complete write is lost.

``SSDCACHE_KILLS`` and ``SSDCACHE_SEED`` give other numbers than the test's.
"""

import os
import random

from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.ssdcache import control
from testing import nbd
from tests.functional.ssdcache import test_serve

SECTOR = 512
BLOCKS = 160
LENGTH = BLOCKS * test_serve.BLOCK
DEPTH = 8


class Volume:
    """What each sector of a volume may have; each write has a number."""

    def __init__(self):
        self.sectors = [{0} for _ in range(LENGTH // SECTOR)]
        self.writes = 0
        self.under_way = {}

    def begin(self, client, rng):
        """Send a write where no other one is under way."""
        count = rng.randrange(1, 40)
        first = rng.randrange(len(self.sectors) - count)
        span = range(first, first + count)
        if any(first < other.stop and other.start < span.stop
               for other, _ in self.under_way.values()):
            return
        value = 0
        if rng.random() < 0.1:
            handle = client.send(nbd.ZERO, first * SECTOR, count * SECTOR)
        else:
            self.writes += 1
            value = self.writes
            handle = client.send(
                nbd.WRITE, first * SECTOR,
                data=value.to_bytes(8, 'little') * (count * SECTOR // 8))
        self.under_way[handle] = (span, value)

    def end(self, handle):
        """Note a write that is complete."""
        span, value = self.under_way.pop(handle)
        for sector in span:
            self.sectors[sector] = {value}

    def break_off(self):
        """Note that writes under way may be done or not."""
        for span, value in self.under_way.values():
            for sector in span:
                self.sectors[sector].add(value)
        self.under_way = {}


class TestKills(test_serve.CacheTest):

    CAPACITY = 64

    def test_no_complete_write_is_lost(self):
        kills = int(os.environ.get('SSDCACHE_KILLS', 5))
        seed = int(os.environ.get('SSDCACHE_SEED', 11))
        rng = random.Random(seed)
        volume, words = Volume(), ('--format',)
        for kill in range(kills):
            # Half of the time the mode that has most to lose.
            mode = rng.choice(choices.MODES + ('write-back',) * 3)
            process, exports = self.start(
                '--dirty-age', '0', *words, volumes=(f'a,mode={mode}',))
            words = ()
            with nbd.Client(exports['a']) as client:
                self.check(volume, client, mode, f'seed {seed}, kill {kill}')
                self.write(volume, client, rng, process)
        self.assertEqual(0, self.status_after_all()['corrupted'])

    def status_after_all(self):
        self.start(volumes=('a',))
        return self.status('a')

    def check(self, volume, client, mode, text):
        """Compare what is read with what was written."""
        data = b''.join(client.read(offset, LENGTH // 10)
                        for offset in range(0, LENGTH, LENGTH // 10))
        for n, possible in enumerate(volume.sectors):
            sector = data[n * SECTOR:(n + 1) * SECTOR]
            value = int.from_bytes(sector[:8], 'little')
            self.assertEqual(sector[:8] * (SECTOR // 8), sector,
                             f'{text}: sector {n} is torn')
            self.assertIn(value, possible, f'{text}: sector {n}')
            volume.sectors[n] = {value}
        if mode != 'write-back':
            # What the mode before left is written back while it is served.
            control.send(self.control, 'flush', volume='a')
            with open(self.origins['a'], 'rb') as origin:
                self.assertTrue(data == origin.read(LENGTH), text)

    def write(self, volume, client, rng, process):
        """Write until some writes are complete, and kill the process."""
        left = rng.randrange(1, 300)
        others = set()
        while left > 0:
            while len(volume.under_way) + len(others) < DEPTH:
                if rng.random() < 0.05:
                    others.add(client.send(nbd.FLUSH))
                elif rng.random() < 0.2:
                    block = rng.randrange(BLOCKS) * test_serve.BLOCK
                    others.add(client.send(nbd.READ, block, test_serve.BLOCK))
                else:
                    volume.begin(client, rng)
            self.receive(volume, client, others)
            left -= 1
        self.end(process)
        try:
            while True:
                self.receive(volume, client, others)
        except ConnectionError:
            volume.break_off()

    def receive(self, volume, client, others):
        answer = client.receive()
        self.assertEqual(0, answer.error)
        if answer.handle in others:
            others.remove(answer.handle)
        else:
            volume.end(answer.handle)
