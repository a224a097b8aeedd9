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
from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache.engines import base as engines
from diffcache_openstack.ssdcache.engines import commands
from diffcache_openstack.ssdcache.engines import lvmcache
from tests.unit.ssdcache.engines import conformance
from tests.unit.ssdcache.engines import simulated

EXTENT = simulated.EXTENT


class TestWithSimulatedPrograms(conformance.EngineConformance):

    def engine(self):
        self.programs = simulated.SimulatedLvm()
        return lvmcache.LvmCacheEngine('ssd', self.programs)

    def device(self, name='a'):
        return self.programs.mapped[self.cache.volumes()[name].export]

    def test_capacity_leaves_room_for_metadata_and_for_others(self):
        self.assertEqual(984 * EXTENT // 4096, self.cache.capacity())
        self.programs.logical['home'] = 200 * EXTENT, ''
        self.assertEqual(787 * EXTENT // 4096, self.cache.capacity())

    def test_a_volume_is_a_device_in_front_of_its_origin(self):
        state = self.attach('a', 10)
        self.assertEqual(f'/dev/mapper/{state.export}', state.device)
        self.assertEqual(
            f'0 2048 cache /dev/ssd/{state.export}-metadata'
            f' /dev/ssd/{state.export}-blocks 8:0 128 1 writethrough smq 0',
            ' '.join(self.device().active))
        self.assertEqual((10 * EXTENT, 'diffcache'), self.programs.logical[
            f'{state.export}-blocks'])

    def test_counts(self):
        self.attach('a', 10)
        self.device().used = 3
        state = self.cache.volumes()['a']
        self.assertEqual((48, 0, 12, 5, 10, 7, 16), (
            state.blocks, state.dirty, state.traffic.reads,
            state.traffic.writes, state.traffic.hits, state.traffic.misses,
            state.traffic.evictions))

    def test_a_limit_that_changes_empties_the_cache_in_use(self):
        export = self.attach('a', 10).export
        self.device().used = 3
        self.set_limit('a', 10)
        self.assertEqual(48, self.cache.volumes()['a'].blocks)
        self.set_limit('a', 20)
        state = self.cache.volumes()['a']
        self.assertEqual((export, 0, 'write-through'),
                         (state.export, state.blocks, state.mode))
        self.assertEqual(2, len(self.programs.logical))

    def test_a_limit_that_cannot_be_changed_leaves_the_volume_served(self):
        self.attach('a', 10)
        self.programs.fails = ('lvcreate',)
        self.assertRaises(commands.CommandFailed, self.set_limit, 'a', 20)
        state = self.cache.volumes()['a']
        self.assertEqual(('pass-through', 0), (state.state, state.limit))
        self.refused(self.cache.set_mode, 'a', 'write-through')
        self.cache.invalidate('a')
        self.programs.fails = ('nothing',)
        self.set_limit('a', 20)
        self.assertEqual(('ok', 20 * self.grain), (
            self.cache.volumes()['a'].state, self.cache.volumes()['a'].limit))

    def test_a_limit_in_pass_through_keeps_the_mode(self):
        self.attach('a', 10, mode='pass-through')
        self.set_limit('a', 20)
        self.assertEqual('pass-through', self.cache.volumes()['a'].mode)

    def test_invalidate_forgets_all(self):
        self.attach('a', 10)
        self.device().used = 3
        self.cache.invalidate('a')
        self.assertEqual((0, 'write-through'), (
            self.cache.volumes()['a'].blocks, self.cache.volumes()['a'].mode))

    def test_a_volume_that_grew(self):
        self.attach('a', 10)
        self.device().used = 3
        with open(self.origin('a'), 'ab') as origin:
            origin.write(bytes(4096))
        self.cache.resize('a')
        self.assertEqual('2056', self.device().active[1])
        self.assertEqual(48, self.cache.volumes()['a'].blocks)

    def test_a_device_in_use_is_not_detached(self):
        self.programs.busy.add(self.attach('a', 10).export)
        self.assertIn('busy', self.refused(self.cache.detach, 'a'))

    def test_an_attach_that_fails_leaves_nothing(self):
        self.programs.fails = ('dmsetup', 'create')
        self.refused(self.attach, 'a', 10)
        self.assertEqual({}, self.programs.logical)

    def test_what_a_restart_of_the_host_leaves_is_removed(self):
        self.attach('a', 10)
        self.programs.mapped.clear()
        self.programs.logical['home'] = EXTENT, ''
        self.assertEqual({}, self.cache.volumes())
        state = self.attach('b', 10)
        self.assertEqual({f'{state.export}-blocks', f'{state.export}-metadata',
                          'home'}, set(self.programs.logical))

    def test_devices_of_others_are_left_alone(self):
        self.programs.mapped['vg-home'] = simulated._Mapped(
            ['0', '8', 'crypt', '...'])
        self.assertEqual({}, self.cache.volumes())

    def test_a_device_of_another_kind_with_our_name(self):
        self.programs.mapped['diffcache-x'] = simulated._Mapped(
            ['0', '8', 'linear', '8:0', '0'])
        error = self.assertRaises(commands.UnknownOutput, self.cache.volumes)
        self.assertIn('dmsetup table', str(error))

    def test_names_that_are_no_names(self):
        for name in ('a/b', '-a', 'a' * 65, 'a b', '..', 'ä'):
            self.refused(self.cache.attach, engines.Attachment(
                name, self.origin('b'), 'write-through', self.grain))

    def test_origins_that_are_no_devices(self):
        self.refused(self.attach, 'a', 1, origin='json:{"driver":"rbd"}')
        self.refused(self.attach, 'a', 1, origin='--help')

    def test_extents_that_are_too_small(self):
        self.programs.vgs = lambda words, stdin: (
            '{"report":[{"vg":[{"vg_free":"8192","vg_extent_size":"1024"}]}]}')
        error = self.assertRaises(exceptions.InvalidInput, self.cache.grain)
        self.assertIn('vgcreate', str(error))


class TestGroup(conformance.base.TestCase):

    def test_a_name_that_is_none(self):
        for group in ('', '-a', 'a b', '..', '/dev/a'):
            self.assertRaises(exceptions.InvalidInput,
                              lvmcache.LvmCacheEngine, group)

    def test_an_option_that_is_missing(self):
        error = self.assertRaises(exceptions.NotConfigured,
                                  lvmcache.open_engine, engines.Settings())
        self.assertIn('volume_group', str(error))
