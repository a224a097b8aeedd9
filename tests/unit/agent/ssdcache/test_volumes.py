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
from diffcache_openstack.agent.ssdcache import volumes
from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache.engines import base as engines
from tests import base
from tests.unit.ssdcache.engines import fakes


class VolumesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.engine = fakes.FakeEngine(1000)
        self.path = self.directory / 'ssd_cache.json'
        self.volumes = self.new()

    def new(self):
        return volumes.CachedVolumes(
            self.engine, volumes.Options((str(self.directory), ), 7, 30),
            self.path)

    def wanted(self, name='a', **fields):
        origin = self.directory / name
        origin.write_bytes(bytes(4096))
        return volumes.Wanted(**{'origin': str(origin),
                                 'mode': 'write-through', **fields})

    def limits(self):
        return {name: state.limit
                for name, state in self.engine.volumes().items()}


class TestSizes(VolumesTest):

    def test_one_volume_has_all(self):
        found = self.volumes.attach('a', self.wanted())
        self.assertEqual({'export': self.engine.volumes()['a'].export,
                          'socket': '/fake/nbd', 'reconnect_delay': 30},
                         found)
        self.assertEqual({'a': 1000}, self.limits())

    def test_weights_and_bounds(self):
        self.volumes.attach('a', self.wanted('a'))
        self.volumes.attach('b', self.wanted('b', weight=3.0))
        self.assertEqual({'a': 250, 'b': 750}, self.limits())
        self.volumes.attach('c', self.wanted('c', min=600))
        self.assertEqual({'a': 100, 'b': 300, 'c': 600}, self.limits())
        self.volumes.attach('d', self.wanted('d', max=100, weight=9.0))
        self.assertEqual((100, 600, 1000), (
            self.limits()['d'], self.limits()['c'],
            sum(self.limits().values())))
        self.volumes.detach('c')
        self.assertEqual({'a': 225, 'b': 675, 'd': 100}, self.limits())

    def test_what_volumes_want_stays_over_a_restart_of_the_agent(self):
        self.volumes.attach('a', self.wanted('a', weight=4.0))
        again = self.new()
        again.attach('b', self.wanted('b'))
        self.assertEqual({'a': 800, 'b': 200}, self.limits())

    def test_a_file_that_is_lost_leaves_sizes_as_they_are(self):
        self.volumes.attach('a', self.wanted('a', max=400))
        for content in (None, b'x', b'[1]', b'{"a": {"b": 1}}'):
            self.path.unlink(missing_ok=True)
            if content is not None:
                self.path.write_bytes(content)
            again = self.new()
            again.attach('b', self.wanted('b'))
            self.assertEqual({'a': 400, 'b': 600}, self.limits(), content)
            again.detach('b')


class TestStatus(VolumesTest):

    def test_what_volumes_have_and_do(self):
        self.volumes.attach('a', self.wanted('a'))
        self.engine.serve('a', hits=3, misses=1, reads=4)
        found = self.volumes.status()['volumes']['a']
        self.assertEqual(('write-through', 'ok', 0, 0), tuple(
            found[name] for name in ('mode', 'state', 'blocks', 'dirty')))
        self.assertEqual({
            'reads': 4, 'writes': 0, 'hits': 3, 'misses': 1, 'evictions': 0,
            'bypassed': 0, 'latency_us': {}}, found['traffic'])


class TestFaults(VolumesTest):

    def test_no_room(self):
        self.volumes.attach('a', self.wanted('a', min=900))
        error = self.assertRaises(
            exceptions.NoSpace, self.volumes.attach, 'b',
            self.wanted('b', min=101))
        self.assertIn('1001 blocks', str(error))
        self.assertEqual({'a': 1000}, self.limits())

    def test_a_device_that_failed(self):
        self.engine.failed = True
        self.assertRaises(exceptions.NoSpace, self.volumes.attach, 'a',
                          self.wanted())
        self.assertEqual({}, self.limits())

    def test_a_volume_that_is_refused_costs_others_nothing(self):
        self.volumes.attach('a', self.wanted('a'))
        self.assertRaises(
            engines.VolumeRefused, self.volumes.attach, 'b',
            volumes.Wanted(str(self.directory / 'none'), 'write-through'))
        self.assertEqual({'a': 1000}, self.limits())

    def test_a_volume_that_is_attached_begins_anew(self):
        first = self.volumes.attach('a', self.wanted())
        second = self.volumes.attach('a', self.wanted())
        self.assertNotEqual(first['export'], second['export'])
        self.assertEqual({'a': 1000}, self.limits())

    def test_a_cache_that_does_not_run(self):
        self.engine.error = control.CacheUnreachable('gone')
        for work in (lambda: self.volumes.attach('a', self.wanted()),
                     lambda: self.volumes.detach('a'), self.volumes.status,
                     lambda: self.volumes.resize('a')):
            self.assertRaises(exceptions.RetryableError, work)

    def test_origins_elsewhere(self):
        for origin in ('/etc/passwd', f'{self.directory}/../x', '', 'a',
                       f'{self.directory}', f'{self.directory}//a',
                       f'{self.directory}x/a'):
            self.assertRaises(
                exceptions.InvalidInput, self.volumes.attach, 'a',
                volumes.Wanted(origin, 'write-through'))
        self.assertEqual({}, self.limits())


class TestParse(base.TestCase):

    LEAST = {'origin': '/dev/a', 'mode': 'write-through'}

    def test_fields(self):
        self.assertEqual(volumes.Wanted('/dev/a', 'write-through'),
                         volumes.parse(self.LEAST))
        full = {'origin': '/dev/a', 'mode': 'write-around', 'min': 1,
                'max': 2, 'weight': 2.5, 'sequential': 3}
        self.assertEqual(volumes.Wanted(**full), volumes.parse(full))

    def test_what_is_refused(self):
        for fields in ({'origin': ''}, {'origin': None}, {'origin': 1},
                       {'mode': 'fast'}, {'mode': None}, {'min': -1},
                       {'min': True}, {'min': '1'}, {'max': 1 << 63},
                       {'weight': float('nan')}, {'weight': -1.0},
                       {'sequential': 1.5}, {'more': 1}):
            self.assertRaises(exceptions.InvalidInput, volumes.parse,
                              {**self.LEAST, **fields})
