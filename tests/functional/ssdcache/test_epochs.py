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
"""Sizes of partitions that follow what is read, with the real cache."""

import json
import math
import random
import subprocess

from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import latencies
from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.agent.ssdcache import volume_sizes
from diffcache_openstack.agent.ssdcache import wear_budget
from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache import epochs
from diffcache_openstack.ssdcache import ssdcached
from testing import nbd
from tests.functional.ssdcache import test_serve
from tests import waiting

BLOCK = test_serve.BLOCK
CAPACITY = test_serve.CAPACITY
# Reads of a volume in an epoch, and at the same time.
READS, DEPTH = 3000, 30
# Blocks that each volume reads at random, all as often.
LOAD = {'a': 100, 'b': 300, 'c': 3500}


class EpochTest(test_serve.CacheTest):

    def setUp(self):
        super().setUp()
        self.origins['c'] = self.directory / 'c.raw'
        with open(self.origins['c'], 'wb') as origin:
            origin.truncate(test_serve.SIZE)
        self.random = random.Random(1)
        self.trace = []
        self.start('--format', volumes=())
        # On a busy machine latencies differ by chance; how they count is
        # tested apart.
        self.patch(latencies, '_CLEAR', math.inf)
        self.volumes = cached_volumes.CachedVolumes(
            ssdcached.SsdcachedEngine(self.control,
                                      str(self.directory / 'nbd')),
            cached_volumes.CacheOptions((str(self.directory), )),
            self.directory / 'ssd_cache.json',
            volume_sizes.SizeRules(changes=epochs.Rules(hysteresis=0.001)),
            self.wear())
        self.clients = {name: self.attach(name) for name in LOAD}

    def wear(self):
        """Return the budget of bytes written to the SSD, if there is one."""
        return None

    def attach(self, name):
        found = self.volumes.attach(name, volume_settings.VolumeSettings(
            str(self.origins[name]), 'write-through'))
        return self.enterContext(nbd.Client(
            f'nbd+unix:///{found["export"]}?socket={found["socket"]}'))

    def read(self, load):
        """Read for an epoch."""
        for _batch in range(READS // DEPTH):
            for name, blocks in load.items():
                client = self.clients[name]
                for _read in range(DEPTH):
                    block = self.random.randrange(blocks)
                    self.trace.append(f'{len(self.trace)},{name},r,'
                                      f'{block * BLOCK},{BLOCK}\n')
                    client.send(nbd.READ, block * BLOCK, BLOCK)
                for _read in range(DEPTH):
                    self.assertEqual(0, client.receive().error)

    def epoch(self, load):
        """Read for an epoch, and have sizes decided; return them."""
        self.read(load)
        self.volumes.end_epoch()
        return {name: each['limit']
                for name, each in self.volumes.status()['volumes'].items()}


class TestEpochs(EpochTest):

    def best(self):
        """Return the sizes that the trace of all reads suggests."""
        path = self.directory / 'trace.csv'
        path.write_text(''.join(self.trace))
        line = self.command()[:-1] + [
            'trace', 'partition', str(path), '--capacity', str(CAPACITY),
            '--policy', 'latency', '-f', 'json']
        return json.loads(subprocess.check_output(
            line, timeout=waiting.SECONDS))['sizes']

    def assert_near(self, expected, found):
        for name, size in expected.items():
            self.assertAlmostEqual(size, found[name], msg=str(found),
                                   delta=0.03 * CAPACITY)

    def ends_early(self, load):
        self.read(load)
        return self.volumes.end_epoch_early()

    def test_a_shift_ends_an_epoch_early(self):
        for _epoch in range(3):
            self.epoch(LOAD)
        for _look in range(4):
            self.assertFalse(self.ends_early(LOAD))
        shifted = {'a': 3500, 'b': 300, 'c': 100}
        self.assertEqual([False, True],
                         [self.ends_early(shifted) for _look in range(2)])
        [last, *_others] = self.volumes.status()['decisions']
        self.assertIn('a: the epoch ended early', ' '.join(last['explain']))
        # That epoch had much of the load before, the next one has none.
        self.assertTrue(any(self.ends_early(shifted) for _look in range(3)))
        found = self.volumes.status()['volumes']
        self.assertGreater(found['a']['limit'], found['c']['limit'])

    def test_sizes_are_those_of_the_trace_and_follow_a_shift(self):
        for _epoch in range(3):
            found = self.epoch(LOAD)
        best = self.best()
        self.assert_near({'a': 100, 'b': 300, 'c': 624}, best)
        self.assert_near(best, found)
        [last, *_others] = self.volumes.status()['decisions']
        self.assertTrue(last['explain'])
        self.trace.clear()
        shifted = {'a': 3500, 'b': 300, 'c': 100}
        for _epoch in range(3):
            found = self.epoch(shifted)
        best = self.best()
        self.assert_near({'a': 624, 'b': 300, 'c': 100}, best)
        self.assert_near(best, found)
        hits = control.curve(self.control, 'c')['hits']
        self.assertLessEqual(2800, dict(map(tuple, hits)).get(
            100, hits[-1][1]))

    def test_commands_show_curves(self):
        words = ('--control', self.control)
        done = subprocess.run(self.command('curve', *words, 'a'), text=True,
                              capture_output=True)
        self.assertEqual(1, done.returncode)
        self.assertIn('ssdcache epoch', done.stderr)
        for _read in range(2):
            self.clients['a'].read(0, 3 * BLOCK)
        subprocess.run(self.command('epoch', *words), check=True,
                       capture_output=True)
        found = json.loads(subprocess.check_output(
            self.command('curve', *words, 'a', '-f', 'json')))
        self.assertEqual(
            (6, 3, [[3, 3]], 1, 1),
            (found['references'], found['distinct'], found['hits'],
             found['hit']['count'], found['miss']['count']))
        text = subprocess.check_output(self.command('curve', *words, 'a'),
                                       text=True)
        self.assertIn('3 blocks            3 hits', text)

    def test_an_epoch_without_requests(self):
        self.epoch({'a': 100})
        self.volumes.end_epoch()
        found = control.curve(self.control, 'a')
        self.assertEqual((0, 0, []), (found['references'], found['distinct'],
                                      found['hits']))
        [last, *_others] = self.volumes.status()['decisions']
        self.assertFalse(last['changed'])


class TestWearBudget(EpochTest):
    """Epochs of 100 seconds, with a budget of 5 MB for each of them."""

    EPOCH_S, EPOCH_BYTES = 100, 5_000_000

    def wear(self):
        self.now = 0.0
        per_day = self.EPOCH_BYTES * 86400 // self.EPOCH_S
        path = self.directory / 'wear.json'
        path.write_text(json.dumps({
            'left': per_day // 24, 'time': 0.0, 'counted': {}}))
        return wear_budget.Wear(per_day, path, lambda: self.now)

    def written(self):
        found = control.send(self.control, 'status')['volumes']
        return {name: each['ssd_bytes_written']
                for name, each in found.items()}

    def test_the_volume_that_hits_least_writes_less(self):
        written = [dict.fromkeys(LOAD, 0)]
        for _epoch in range(8):
            self.now += self.EPOCH_S
            self.epoch(LOAD)
            written.append(self.written())
        totals = [sum(each.values()) for each in written]
        # Without a budget, each epoch writes two of it.
        self.assertGreater(totals[1], 2 * self.EPOCH_BYTES)
        self.assertLess(totals[-1] - totals[1], 7 * self.EPOCH_BYTES)
        status = self.volumes.status()
        self.assertGreater(status['wear']['left'], 0)
        explain = [line for decision in status['decisions']
                   for line in decision['explain'] if 'wear budget' in line]
        self.assertTrue(explain)
        self.assertEqual({'c'}, {line.partition(':')[0] for line in explain})
        # Volumes that hit are cached as before.
        before = status['volumes']['a']['traffic']['hits']
        self.epoch({'a': 100})
        after = self.volumes.status()['volumes']['a']['traffic']['hits']
        self.assertEqual(READS, after - before)
