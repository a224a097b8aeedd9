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
"""The budget of bytes written to an SSD, and a simulation of days with it."""

import collections
import random

from hypothesis import given
from hypothesis import strategies

from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.ssdcache import server
from diffcache_openstack.ssdcache import wear
from tests import base

EPOCH = 120
EPOCHS = int(wear.DAY // EPOCH)
BLOCK = 4096


class TestBudget(base.TestCase):

    def test_within_the_budget_nothing_changes(self):
        budget = wear.Budget(86_400_000)
        found = budget.decide(100, {'a': wear.VolumeWear(1000, 5.0),
                                    'b': wear.VolumeWear(0, 0.0, 2)})
        self.assertEqual({}, found.admissions)
        [line] = found.explain
        self.assertIn('86.4 MB', line)

    def test_the_volume_that_gains_least_from_its_writes_pays_first(self):
        budget = wear.Budget(86_400_000, left=3_600_000 + 100_000)
        # 1000 bytes/s accrue.
        found = budget.decide(100, {
            'gains': wear.VolumeWear(100_000, 1e9),
            'scans': wear.VolumeWear(100_000, 10.0)})
        self.assertEqual({'scans': server.NEVER}, found.admissions)
        self.assertIn('scans: no new blocks are cached', found.explain[1])
        self.assertIn('0.1 ms', found.explain[1])

    def test_admission_is_raised_before_blocks_are_kept_out(self):
        budget = wear.Budget(86_400_000, left=3_600_000 + 50_000)
        found = budget.decide(100, {'a': wear.VolumeWear(90_000, 1e6),
                                    'b': wear.VolumeWear(50_000, 1e9)})
        self.assertEqual({'a': 2}, found.admissions)
        self.assertIn('reference 2', found.explain[1])

    def test_a_volume_s_own_admission_is_the_least(self):
        for own, expected in ((1, 2), (2, 4), (3, 8), (15, server.NEVER)):
            budget = wear.Budget(86_400_000, left=3_600_000 + 10_000)
            found = budget.decide(100,
                                  {'a': wear.VolumeWear(110_001, 1e6, own)})
            self.assertEqual({'a': expected}, found.admissions, own)

    def test_a_debt_is_paid_before_anything_is_cached(self):
        budget = wear.Budget(86_400_000, left=0)
        found = budget.decide(100, {'a': wear.VolumeWear(1_100_000, 1e9),
                                    'idle': wear.VolumeWear(0, 0.0)})
        self.assertEqual(dict.fromkeys(('a', 'idle'), server.NEVER),
                         found.admissions)
        self.assertIn('nothing is left', found.explain[2])
        idle = {'a': wear.VolumeWear(0, 0.0), 'idle': wear.VolumeWear(0, 0.0)}
        self.assertEqual(found.admissions, budget.decide(
            900, idle).admissions)
        self.assertEqual({'a': server.NEVER}, budget.decide(
            200, idle).admissions)
        # It is tried again some hours later, with less at first.
        for _ in range(24):
            found = budget.decide(3600, idle)
        self.assertEqual({}, found.admissions)

    def test_what_idle_hours_leave_is_used_later_and_no_more_than_a_day(self):
        budget = wear.Budget(86_400_000, left=0)
        budget.accrue(10 * wear.DAY)
        self.assertEqual(86_400_000, budget.left)
        self.assertGreater(budget.allowed(), 4000)
        budget.accrue(-5)
        self.assertEqual(86_400_000, budget.left)

    @given(strategies.lists(strategies.dictionaries(
        strategies.sampled_from('abcd'), strategies.tuples(
            strategies.integers(0, 10**7), strategies.floats(0, 1e12),
            strategies.integers(1, choices.MAX_ADMISSION))), max_size=60),
           strategies.integers(1, 10**9), strategies.integers(1, 7200))
    def test_no_load_exceeds_it_by_more_than_an_epoch(self, loads, per_day,
                                                      seconds):
        """Whatever volumes write whose blocks are cached at all."""
        budget = wear.Budget(per_day)
        admissions, total = {}, 0
        for load in loads:
            uses = {name: wear.VolumeWear(
                0 if admissions.get(name) == server.NEVER else written,
                saved, own) for name, (written, saved, own) in load.items()}
            total += sum(use.written for use in uses.values())
            found = budget.decide(seconds, uses)
            for name, admission in found.admissions.items():
                self.assertGreater(admission, uses[name].admission)
            admissions = found.admissions
            if budget.left <= 0:
                self.assertEqual(dict.fromkeys(load, server.NEVER),
                                 admissions)
        # Volumes that were not there in the epoch before are new.
        most = sum(4 * 10**7 for load in loads if load)
        self.assertLessEqual(total, per_day * (
            1 + seconds * len(loads) / wear.DAY) + most)


class Partition:
    """A volume's partition: LRU, references remembered as in the cache."""

    def __init__(self, blocks):
        self.blocks = blocks
        self.cached = collections.OrderedDict()
        self.ghost = collections.OrderedDict()
        self.admission = 1
        self.hits = self.written = 0

    def request(self, block, is_write):
        if block in self.cached:
            self.cached.move_to_end(block)
            if not is_write:
                self.hits += 1
            elif self.admission == server.NEVER:
                del self.cached[block]
            else:
                self.written += BLOCK
            return
        count = min(self.ghost.pop(block, 0) + 1, choices.MAX_ADMISSION)
        if count < self.admission:
            self.ghost[block] = count
            if len(self.ghost) > self.blocks:
                self.ghost.popitem(last=False)
            return
        self.cached[block] = None
        self.written += BLOCK
        if len(self.cached) > self.blocks:
            self.cached.popitem(last=False)


class Site:
    """Volumes of a host: a database, a web server, a scan and a log."""

    def __init__(self, per_day=None):
        self.random = random.Random(1)
        self.volumes = {name: Partition(300)
                        for name in ('db', 'web', 'scan', 'log')}
        self.budget = per_day and wear.Budget(per_day)
        self.days = []

    def requests(self, epoch):
        busy = 1 if 240 <= epoch % EPOCHS < 600 else 0.3
        for _ in range(int(60 * busy)):
            yield 'db', int(self.random.gauss(500, 90)), \
                self.random.random() < 0.2
            yield 'web', int(self.random.paretovariate(0.6)), False
            yield 'scan', self.random.randrange(100_000), False
            yield 'log', self.random.randrange(200), True

    def run(self, days):
        for epoch in range(days * EPOCHS):
            before = {name: (each.written, each.hits)
                      for name, each in self.volumes.items()}
            for name, block, is_write in self.requests(epoch):
                self.volumes[name].request(block, is_write)
            uses = {name: wear.VolumeWear(
                each.written - before[name][0],
                2000.0 * (each.hits - before[name][1]))
                    for name, each in self.volumes.items()}
            if self.budget:
                found = self.budget.decide(EPOCH, uses)
                for name, each in self.volumes.items():
                    each.admission = found.admissions.get(name, 1)
            if (epoch + 1) % EPOCHS == 0:
                self.days.append((self.written, self.hits))
        return self

    @property
    def written(self):
        return sum(each.written for each in self.volumes.values())

    @property
    def hits(self):
        return sum(each.hits for each in self.volumes.values())


class TestSimulatedDays(base.TestCase):
    """What a budget costs in hits, against none."""

    DAYS = 4

    def test_parts_of_the_writes(self):
        """Figures: doc/source/admin/ssd-cache-sizes.rst."""
        free = Site().run(self.DAYS)
        for part, hits in ((0.5, 0.995), (0.25, 0.99), (0.1, 0.89)):
            per_day = int(part * free.written / self.DAYS)
            kept = Site(per_day).run(self.DAYS)
            # The bucket was full at the begin.
            self.assertLessEqual(kept.written, per_day * (self.DAYS + 1))
            last = kept.days[-1][0] - kept.days[-2][0]
            self.assertTrue(0.9 <= last / per_day <= 1.02, last / per_day)
            self.assertGreaterEqual(kept.hits / free.hits, hits)
        # The scan and the log pay, and not the volumes that hit.
        self.assertEqual(1, kept.volumes['web'].admission)
        self.assertEqual(server.NEVER, kept.volumes['log'].admission)
