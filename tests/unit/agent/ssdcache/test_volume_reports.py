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
from diffcache_openstack import _native
from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import volume_reports
from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.agent.ssdcache import volume_sizes
from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache import engines
from tests import base
from tests.unit.ssdcache import fakes


class TestReports(base.TestCase):

    def setUp(self):
        super().setUp()
        self.engine = fakes.FakeEngine(1000)
        self.volumes = cached_volumes.CachedVolumes(
            self.engine, cached_volumes.CacheOptions((str(self.directory), )),
            self.directory / 'ssd_cache.json',
            volume_sizes.SizeRules(epoch=60))
        for name in ('a', 'b', 'c d'):
            origin = self.directory / name
            origin.write_bytes(bytes(4096))
            self.volumes.attach(name, volume_settings.VolumeSettings(
                str(origin), 'write-through', sla='hit=0.5'))

    def end_epoch(self):
        self.engine.epochs = {name: engines.Epoch(
            60.0, _native.HitCurve(1000, blocks, [(blocks, 1000)]))
            for name, blocks in (('a', 100), ('b', 300))}
        self.volumes.end_epoch()

    def test_what_volumes_have_and_why(self):
        self.end_epoch()
        self.engine.serve('a', hits=3, misses=1, reads=4)
        cache, found = volume_reports.collect(self.volumes)
        self.assertEqual(('ok', 1000, 'latency', 60), (
            cache.state, cache.capacity, cache.policy, cache.epoch))
        # Another name could not be the ID of a volume.
        self.assertEqual(['a', 'b'], [each.id for each in found])
        first = found[0]
        self.assertEqual((3, 1, 4, 'hit=0.5', [100], [1000]), (
            first.hits, first.misses, first.reads, first.sla,
            first.curve.sizes, first.curve.hits))
        self.assertEqual(self.engine.volumes()['a'].limit, first.limit)
        self.assertTrue(any(line.startswith('100') or 'takes 100' in line
                            for line in first.explain), first.explain)
        for line in first.explain:
            self.assertNotIn('b:', line)
        [decision] = cache.decisions
        self.assertIn('blocks move', decision.explain[0])
        for line in decision.explain:
            self.assertNotIn('a:', line)

    def test_before_an_epoch(self):
        cache, found = volume_reports.collect(self.volumes)
        self.assertEqual([], cache.decisions)
        self.assertEqual([(None, []), (None, [])], [
            (each.curve, each.explain) for each in found])

    def test_a_device_that_failed(self):
        self.engine.failed = True
        self.assertEqual('failed',
                         volume_reports.collect(self.volumes).cache.state)

    def test_a_cache_that_does_not_answer(self):
        self.engine.error = control.CacheUnreachable('gone')
        cache, found = volume_reports.collect(self.volumes)
        self.assertEqual(('unreachable', None), (cache.state, found))

    def test_there_is_news_after_changes_and_epochs(self):
        seen = {self.volumes.revision}
        for change in (lambda: self.volumes.detach('b'), self.end_epoch,
                       lambda: self.volumes.change('a', 0, {'max': 9})):
            change()
            self.assertNotIn(self.volumes.revision, seen)
            seen.add(self.volumes.revision)
