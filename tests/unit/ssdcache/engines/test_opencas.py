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
import os
import pathlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache.engines import base as engines
from diffcache_openstack.ssdcache.engines import opencas
from tests import base
from tests.unit.ssdcache.engines import conformance
from tests.unit.ssdcache.engines import simulated


class TestWithSimulatedPrograms(conformance.EngineConformance):

    def engine(self):
        self.links = self.directory / 'by-id'
        self.links.mkdir()
        self.ssd = self.origin('ssd')
        self.programs = simulated.SimulatedCas(self.ssd)
        return self.new()

    def new(self):
        return opencas.OpenCasEngine(
            1, self.ssd, str(self.directory / 'state'), self.programs,
            str(self.links))

    def origin(self, name):
        path = super().origin(name)
        link = pathlib.Path(self.links) / f'virtio-{name}'
        if not link.is_symlink():
            link.symlink_to(path)
        return path

    def shares(self):
        return {rule: percent for rule, percent in self.programs.rules.items()
                if rule != 'unclassified'}

    def test_the_cache_is_started_once(self):
        self.attach('a', 10)
        self.new().capacity()
        started = [words for words in self.programs.ran
                   if words[1] == '--start-cache']
        self.assertEqual([[
            'casadm', '--start-cache', '--cache-device', self.ssd,
            '--cache-id', '1', '--cache-mode', 'wt', '--cache-line-size',
            '4']], started)
        self.assertEqual(1_000_000, self.cache.capacity())

    def test_partitions_are_classes_of_requests(self):
        self.attach('a', 10)
        self.attach('b', 30)
        self.assertEqual({'core_id:eq:1&done': 10, 'core_id:eq:2&done': 30},
                         self.shares())
        self.cache.set_mode('a', 'pass-through')
        self.assertEqual({'core_id:eq:1&done': 0, 'core_id:eq:2&done': 30},
                         self.shares())
        self.assertEqual(10 * self.grain, self.cache.volumes()['a'].limit)
        self.cache.detach('a')
        self.assertEqual({'core_id:eq:2&done': 30}, self.shares())
        self.attach('c', 5)
        self.assertEqual({'core_id:eq:1&done': 5, 'core_id:eq:2&done': 30},
                         self.shares())

    def test_counts(self):
        traffic = self.attach('a', 10).traffic
        self.assertEqual((100, 13, 77, 27, 11), (
            traffic.reads, traffic.writes, traffic.hits, traffic.misses,
            traffic.bypassed))

    def test_sequences(self):
        self.attach('a', 10)
        self.assertEqual(['--policy', 'never'], self.programs.cutoffs[1])
        self.attach('a', 10, sequential=1 << 20)
        self.assertEqual(['--policy', 'always', '--threshold', '1024'],
                         self.programs.cutoffs[1])

    def test_a_restart_of_the_agent_changes_nothing(self):
        state = self.attach('a', 10)
        self.assertEqual({'a': state}, dict(self.new().volumes()))

    def test_a_restart_of_the_host_detaches_and_empties(self):
        self.attach('a', 10)
        self.programs.reboot()
        self.assertEqual({}, dict(self.new().volumes()))
        started = [words for words in self.programs.ran
                   if words[1] == '--start-cache']
        self.assertEqual([False, True], ['--force' in words
                                         for words in started])
        self.attach('b', 10)
        self.assertEqual({'core_id:eq:1&done': 10}, self.shares())

    def test_a_device_of_somebody_else_is_not_overwritten(self):
        self.programs.is_blank = False
        self.programs.caches.clear()
        os.unlink(self.directory / 'state' / 'opencas.json')
        error = self.assertRaises(engines.VolumeRefused, self.new().capacity)
        self.assertIn('metadata', str(error))

    def test_a_cache_of_another_kind(self):
        self.programs.policy = 'wb'
        error = self.assertRaises(engines.VolumeRefused, self.cache.capacity)
        self.assertIn('casadm --list-caches', str(error))

    def test_cores_of_somebody_else_are_left_alone(self):
        self.programs.cores[1] = self.origin('other')
        self.attach('a', 10)
        self.assertEqual({'core_id:eq:2&done': 10}, self.shares())
        self.assertEqual({'a'}, set(self.cache.volumes()))

    def test_more_volumes_than_classes(self):
        for number in range(32):
            self.attach(f'a{number}', 1)
        self.assertIn('32', self.refused(self.attach, 'b', 1))

    def test_an_attach_that_fails_leaves_nothing(self):
        for command in ('--add-core', '--set-param'):
            self.programs.fails = ('casadm', command)
            self.refused(self.attach, 'a', 10)
            self.assertEqual(({}, {}), (self.shares(), self.programs.cores))

    def test_classes_that_are_refused_leave_all_as_it_was(self):
        self.attach('a', 10)
        self.programs.fails = ('casadm', '--io-class')
        self.refused(self.set_limit, 'a', 20)
        self.assertEqual({'core_id:eq:1&done': 10}, self.shares())

    def test_a_device_without_a_link(self):
        origin = self.origin('a')
        (self.links / 'virtio-a').unlink()
        self.assertIn('by-id', self.refused(
            self.cache.attach, engines.Attachment(
                'a', origin, 'write-through', 10 * self.grain)))

    def test_a_file_that_is_damaged(self):
        for content in (b'{"volumes": {"a": {"x": 1}}}', b'{"volumes": []}'):
            (self.directory / 'state' / 'opencas.json').write_bytes(content)
            error = self.assertRaises(exceptions.FormatError,
                                      self.cache.volumes)
            self.assertIn('opencas.json', str(error))


class TestOptions(base.TestCase):

    def test_an_option_that_is_missing(self):
        error = self.assertRaises(exceptions.NotConfigured,
                                  opencas.open_engine, engines.Settings())
        self.assertIn('device', str(error))
