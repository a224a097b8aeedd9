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
from unittest import mock

from diffcache_openstack import _native
from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import volume_reports
from diffcache_openstack.agent.ssdcache import volume_sizes
from diffcache_openstack.agent.ssdcache import wear_budget
from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache import engines
from tests.unit.agent.ssdcache import test_cached_volumes


class TestWearBudget(test_cached_volumes.VolumesTest):
    """Epochs of 100 seconds; 1000 bytes each second are in the budget."""

    def new(self, policy='latency', per_day=86_400_000):
        self.now = getattr(self, 'now', 0.0)
        budget = wear_budget.Wear(per_day, self.directory / 'wear.json',
                                  lambda: self.now)
        return cached_volumes.CachedVolumes(
            self.engine,
            cached_volumes.CacheOptions((str(self.directory), ), 7, 30, 2),
            self.path, volume_sizes.SizeRules(policy), budget)

    def setUp(self):
        super().setUp()
        self.volumes.attach('db', self.wanted('db'))
        self.volumes.attach('scan', self.wanted('scan', admission=1))
        self.written = {'db': 0, 'scan': 0}
        self.end_epoch()

    def end_epoch(self, hits=0, **written):
        self.now += 100
        for name, count in written.items():
            self.written[name] += count
            self.engine.serve(name, ssd_bytes_written=self.written[name])
        self.engine.epochs = {name: engines.Epoch(
            100.0, _native.HitCurve(1000, 100, [(100, 900)]),
            hit=engines.Requests(hits if name == 'db' else 1, 100.0),
            miss=engines.Requests(100, 5000.0)) for name in self.written}
        self.volumes.end_epoch()

    def admissions(self):
        return {name: admission for name, (_sequential, admission)
                in self.engine.filters.items()}

    def test_the_volume_that_gains_least_pays(self):
        self.assertEqual({'db': None, 'scan': 1}, self.admissions())
        self.end_epoch(10**6, db=50_000, scan=82_700_000)
        self.assertEqual({'db': None, 'scan': 16}, self.admissions())
        status = self.volumes.status()
        self.assertEqual({'per_day': 86_400_000, 'left': 3_650_000},
                         status['wear'])
        found = {each.id: each.explain
                 for each in volume_reports.collect(self.volumes).volumes}
        self.assertIn('no new blocks are cached', ''.join(found['scan']))
        self.assertNotIn('wear budget', ''.join(found['db']))
        self.assertIn('86.4 MB a day', ''.join(
            volume_reports.collect(self.volumes).cache.decisions[0].explain))

    def test_own_settings_stay(self):
        self.end_epoch(10**6, db=50_000, scan=82_700_000)
        self.volumes.change('scan', 0, {'admission': 3})
        self.assertEqual(16, self.admissions()['scan'])
        self.assertEqual(3, self.volumes.status()['volumes']['scan'][
            'wanted']['admission'])
        # A hard reboot does not open it.
        self.volumes.detach('scan')
        self.volumes.attach('scan', self.wanted('scan', admission=1))
        self.assertEqual(16, self.admissions()['scan'])
        self.now += 86400
        for _ in range(2):
            self.end_epoch()
        self.assertEqual({'db': None, 'scan': 3}, self.admissions())

    def test_what_is_left_stays_over_a_restart_of_the_agent(self):
        self.end_epoch(db=86_500_000)
        self.assertEqual({'db': 16, 'scan': 16}, self.admissions())
        left = self.volumes.status()['wear']['left']
        self.assertLess(left, 0)
        self.volumes = self.new()
        self.assertEqual(left, self.volumes.status()['wear']['left'])
        self.end_epoch()
        self.assertEqual(left + 100_000,
                         self.volumes.status()['wear']['left'])

    def test_what_a_volume_wrote_before_it_was_detached_counts(self):
        self.written['db'] = 1_000_000
        self.engine.serve('db', ssd_bytes_written=1_000_000)
        self.volumes.detach('db')
        self.volumes.attach('db', self.wanted('db'))
        self.written['db'] = 0
        self.end_epoch(db=500_000)
        self.assertEqual(86_400_000 - 1_500_000,
                         self.volumes.status()['wear']['left'])

    def test_what_was_written_before_there_was_a_budget_does_not_count(self):
        (self.directory / 'wear.json').unlink()
        self.engine.serve('db', ssd_bytes_written=10**12)
        self.written['db'] = 10**12
        self.volumes = self.new()
        self.end_epoch()
        self.assertEqual(86_400_000, self.volumes.status()['wear']['left'])

    def test_a_file_that_cannot_be_read(self):
        for content in (b'{"left": "x"}', b'[1]', b'{"left": 1, "time": 2,'
                        b' "counted": {"a": "b"}}'):
            (self.directory / 'wear.json').write_bytes(content)
            with self.assertLogs(wear_budget.LOG, 'WARNING'):
                self.new()

    def test_a_budget_that_is_no_more(self):
        self.end_epoch(db=87_000_000)
        self.assertEqual({'db': 16, 'scan': 16}, self.admissions())
        self.engine.attach(engines.Attachment(
            'by-hand', self.wanted('c').origin, 'write-through', 0, 99, 16))
        self.volumes = super().new()
        self.end_epoch()
        self.assertEqual({'db': None, 'scan': 1, 'by-hand': 16},
                         self.admissions())

    def test_volumes_that_were_attached_by_hand(self):
        self.engine.attach(engines.Attachment(
            'by-hand', self.wanted('c').origin, 'write-through', 0, 99))
        self.end_epoch(db=87_000_000)
        self.assertEqual((99, 16), self.engine.filters['by-hand'])

    def test_a_cache_that_does_not_answer_is_told_later(self):
        with mock.patch.object(
                self.engine, 'set_filters',
                side_effect=control.CacheUnreachable('gone')):
            self.assertRaises(control.CacheUnreachable, self.end_epoch,
                              scan=88_000_000)
        self.end_epoch()
        self.assertEqual(16, self.admissions()['scan'])
