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

import dataclasses
from unittest import mock

from diffcache_openstack import _native
from diffcache_openstack.agent.endpoints import volumes_endpoint
from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import volume_moves
from diffcache_openstack.agent.ssdcache import volume_reports
from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.agent.ssdcache import volume_sizes
from diffcache_openstack.cached_volumes import hot_blocks
from diffcache_openstack.common import exceptions
from diffcache_openstack.objects import volume_specs
from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache import engines
from tests import base
from tests.unit.ssdcache import fakes


class VolumesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.engine = fakes.FakeEngine(1000)
        self.path = self.directory / 'ssd_cache.json'
        self.volumes = self.new()

    def new(self, policy='latency'):
        return cached_volumes.CachedVolumes(
            self.engine,
            cached_volumes.CacheOptions((str(self.directory), ), 7, 30),
            self.path, volume_sizes.SizeRules(policy))

    def wanted(self, name='a', **fields):
        origin = self.directory / name
        origin.write_bytes(bytes(4096))
        return volume_settings.VolumeSettings(**{'origin': str(origin),
                                                 'mode': 'write-through',
                                                 **fields})

    def limits(self):
        return {name: state.limit
                for name, state in self.engine.volumes().items()}


class TestSizes(VolumesTest):

    def test_one_volume_has_all(self):
        found = self.volumes.attach('a', self.wanted())
        self.assertEqual({'export': self.engine.volumes()['a'].export,
                          'socket': '/fake/nbd', 'reconnect_delay': 30,
                          'noted': False, 'vhost': None, 'rates': {}}, found)
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
            'bypassed': 0, 'ssd_bytes_written': 0, 'latency_us': {}},
            found['traffic'])


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
            volume_settings.VolumeSettings(str(self.directory / 'none'),
                                           'write-through'))
        self.assertEqual({'a': 1000}, self.limits())

    def test_a_volume_that_is_attached_begins_anew(self):
        first = self.volumes.attach('a', self.wanted())
        second = self.volumes.attach('a', self.wanted())
        self.assertNotEqual(first['export'], second['export'])
        self.assertEqual({'a': 1000}, self.limits())

    def test_a_volume_whose_id_cinder_has_exchanged(self):
        self.volumes.attach('b', self.wanted('b'))
        self.volumes.attach('temporary', self.wanted('a'))
        self.volumes.attach('a', self.wanted('a'))
        self.assertEqual({'a', 'b'}, set(self.limits()))
        # The same name of a device, and perhaps another volume.
        states = self.engine.volumes()
        for values in ({'mode': 'write-back'}, {'dirty': 1}):
            with mock.patch.object(self.engine, 'volumes', return_value={
                    **states, 'a': dataclasses.replace(states['a'],
                                                       **values)}), \
                    mock.patch.object(self.engine, 'detach') as detach:
                self.volumes._detach_others(['a'], 'c',
                                            self.wanted('a').origin)
            detach.assert_not_called()

    def test_losses_of_a_storage_are_reported_and_ended(self):
        self.volumes.attach('a', self.wanted())
        for end, action in ((self.volumes.accept_loss, 'accept-loss'),
                            (self.volumes.end_guest, 'guest-ended')):
            self.engine.lose('a', (1 << 20, 4096), (0, 512))
            self.assertEqual(['1048576+4096', '0+512'],
                             volume_reports.volume(self.volumes, 'a').losses)
            revision = self.volumes.revision
            end('a')
            self.assertEqual((action, 'a'), self.engine.actions[-1])
            self.assertEqual([],
                             volume_reports.volume(self.volumes, 'a').losses)
            self.assertGreater(self.volumes.revision, revision)
            self.assertRaises(exceptions.NotFound, end, 'c')

    def test_a_cache_that_does_not_run(self):
        self.engine.error = control.CacheUnreachable('gone')
        for work in (lambda: self.volumes.attach('a', self.wanted()),
                     lambda: self.volumes.detach('a'), self.volumes.status,
                     lambda: self.volumes.resize('a'),
                     lambda: self.volumes.disconnect('a')):
            self.assertRaises(exceptions.RetryableError, work)

    def test_origins_elsewhere(self):
        for origin in ('/etc/passwd', f'{self.directory}/../x', '', 'a',
                       f'{self.directory}', f'{self.directory}//a',
                       f'{self.directory}x/a'):
            self.assertRaises(
                exceptions.InvalidInput, self.volumes.attach, 'a',
                volume_settings.VolumeSettings(origin, 'write-through'))
        self.assertEqual({}, self.limits())


class TestSettings(VolumesTest):

    def set(self, name='a', generation=0, **fields):
        self.volumes.change(name, generation, fields)
        return self.volumes.status()['volumes'][name]

    def setUp(self):
        super().setUp()
        self.volumes.attach('a', self.wanted('a'))
        self.volumes.attach('b', self.wanted('b', max=700))

    def test_a_limit(self):
        found = self.set(limit=800)
        self.assertEqual((800, 800, 1), (
            found['limit'], found['overrides']['limit'],
            found['overrides']['generation']))
        self.assertEqual({'a': 800, 'b': 200}, self.limits())
        self.set(generation=1, limit=None)
        self.assertIsNone(self.volumes.status()['volumes']['a'][
            'overrides']['limit'])

    def test_bounds_weights_and_modes(self):
        found = self.set(min=600, weight=2.5, priority=7, sla='hit=0.5',
                         mode='write-around')
        self.assertGreaterEqual(found['limit'], 600)
        self.assertEqual(('write-around', 2.5, 7, 'hit=0.5'), (
            found['mode'], *(found['wanted'][name] for name in (
                'weight', 'priority', 'sla'))))
        found = self.set(generation=1, mode=None, min=None)
        self.assertEqual(('write-through', 0), (
            found['mode'], found['wanted']['min']))

    def test_which_requests_are_cached(self):
        self.volumes.attach('b', self.wanted('b', sequential=9, admission=3))
        self.assertEqual({'a': (7, None), 'b': (9, 3)}, self.engine.filters)
        found = self.set('b', admission=2)
        self.assertEqual(2, found['wanted']['admission'])
        self.set('a', admission=15)
        self.assertEqual({'a': (7, 15), 'b': (9, 2)}, self.engine.filters)
        self.set('b', generation=1, admission=None)
        self.assertEqual((9, 3), self.engine.filters['b'])

    def test_a_cache_that_is_older_gets_no_setting_that_it_has_not(self):
        with mock.patch.object(self.engine, 'set_filters') as called:
            self.set(max=100)
        called.assert_not_called()

    def test_settings_stay_over_a_detach_and_a_restart(self):
        self.set(max=100)
        self.volumes.detach('a')
        self.volumes = self.new()
        self.volumes.attach('a', self.wanted('a'))
        self.assertEqual(100, self.limits()['a'])

    def test_what_is_refused(self):
        before = self.volumes.status()
        for fields, error in (
                ({'limit': -1}, exceptions.InvalidInput),
                ({'limit': True}, exceptions.InvalidInput),
                ({'min': 5, 'max': 4}, exceptions.InvalidInput),
                ({'weight': 0}, exceptions.InvalidInput),
                ({'sla': 'fast'}, exceptions.InvalidInput),
                ({'mode': 'fast'}, exceptions.InvalidInput),
                ({'admission': 0}, exceptions.InvalidInput),
                ({'admission': 16}, exceptions.InvalidInput),
                ({'generation': 3}, exceptions.InvalidInput),
                ({'min': 1001}, exceptions.NoSpace)):
            self.assertRaises(error, self.volumes.change, 'a', 0, fields)
            self.assertEqual(before, self.volumes.status(), fields)
        self.assertRaises(exceptions.Busy, self.volumes.change, 'a', 1, {})
        self.assertRaises(exceptions.NotFound, self.volumes.change, 'c', 0, {})

    def test_actions(self):
        self.volumes.flush('a')
        self.volumes.invalidate('b')
        self.assertEqual([('flush', 'a'), ('invalidate', 'b')],
                         self.engine.actions)
        for work in (self.volumes.flush, self.volumes.invalidate):
            self.assertRaises(exceptions.NotFound, work, 'c')


class TestTypeThatWasChanged(VolumesTest):
    """Cinder keeps with an attachment what the type said when it began."""

    def setUp(self):
        super().setUp()
        self.attach('a', max=400)
        self.attach('b')

    def attach(self, name, attachment='first', **fields):
        self.volumes.attach(name, self.wanted(name, attachment=attachment,
                                              **fields))

    def follow(self, name='a', mode='write-through', **fields):
        self.volumes.follow_type(name, volume_specs.settings(
            volume_specs.Specs(mode, **fields)))

    def shown(self, name='a'):
        return self.volumes.status()['volumes'][name]

    def test_volumes_in_use_follow_it(self):
        revision = self.volumes.revision
        self.follow(mode='write-around', max=100, weight=2.5, admission=2,
                    sequential=9, sla='hit=0.9')
        found = self.shown()
        self.assertEqual((100, 'write-around', 2.5, 'hit=0.9'), (
            found['limit'], found['mode'], found['wanted']['weight'],
            found['wanted']['sla']))
        self.assertEqual((9, 2), self.engine.filters['a'])
        self.assertEqual({'a': 100, 'b': 900}, self.limits())
        self.assertNotEqual(revision, self.volumes.revision)

    def test_limits_per_second(self):
        one, two = {'total_iops_sec': 500}, {'read_bytes_sec': 1000}
        self.attach('a', rates=one)
        self.assertEqual(one, self.shown()['rates'])
        settings = volume_specs.settings(volume_specs.Specs('write-through'))
        self.volumes.follow_type('a', {**settings, 'rates': two})
        self.assertEqual(two, self.shown()['rates'])
        # The type has limits that depend on its size: those of Cinder.
        self.follow()
        self.assertEqual(one, self.shown()['rates'])
        self.volumes.follow_type('a', {**settings, 'rates': {}})
        self.attach('a', rates=one)
        self.assertEqual({}, self.shown()['rates'])
        self.attach('a', 'second', rates=one)
        self.assertEqual(one, self.shown()['rates'])

    def test_a_hard_reboot_agrees(self):
        self.follow(max=100)
        for volumes_again in (self.volumes, self.new()):
            self.volumes = volumes_again
            self.volumes.detach('a')
            self.attach('a', max=400)
            self.assertEqual(100, self.limits()['a'])

    def test_another_attachment_says_what_the_type_says(self):
        self.follow(max=100)
        # By "volume qos set", of which nothing reaches a host.
        self.attach('a', 'second', max=300)
        self.assertEqual(300, self.limits()['a'])
        self.attach('a', None, max=350)
        self.follow(max=100)
        self.assertEqual(100, self.limits()['a'])
        self.attach('a', None, max=400)
        self.assertEqual(400, self.limits()['a'])

    def test_settings_of_the_volume_stay(self):
        self.volumes.change('a', 0, {'max': 50, 'mode': 'write-through'})
        self.follow(mode='write-around', max=100, weight=3.0)
        found = self.shown()
        self.assertEqual((50, 'write-through', 3.0), (
            found['limit'], found['mode'], found['wanted']['weight']))
        self.volumes.change('a', 1, {'max': None, 'mode': None})
        found = self.shown()
        # Its size follows after an epoch.
        self.assertEqual((100, 'write-around'), (found['wanted']['max'],
                                                 found['mode']))

    def test_a_type_that_is_no_longer_cached(self):
        self.volumes.follow_type('a', volume_specs.settings(None))
        self.assertEqual(('pass-through', 0), (self.shown()['mode'],
                                               self.shown()['limit']))
        self.volumes.change('a', 0, {'mode': 'write-around', 'max': 10})
        self.assertEqual(('write-around', 10), (self.shown()['mode'],
                                                self.shown()['limit']))
        self.volumes.change('a', 1, {'mode': None, 'max': None})
        self.follow(max=400)
        self.assertEqual(('write-through', 400), (self.shown()['mode'],
                                                  self.shown()['limit']))

    def test_nothing_is_cached_before_a_live_migration_has_ended(self):
        self.attach('a', 'third', mode='pass-through', max=400)
        self.follow(mode='write-around', max=100)
        self.assertEqual('pass-through', self.shown()['mode'])
        # Nova knows what the type said at the attachment.
        self.volumes.set_mode('a', 'write-through')
        self.assertEqual(('write-around', 100), (self.shown()['mode'],
                                                 self.shown()['limit']))

    def test_what_is_refused_changes_nothing(self):
        before = self.volumes.status()
        self.assertRaises(exceptions.NoSpace, self.follow, min=1001)
        self.assertRaises(exceptions.NotFound, self.follow, 'c')
        self.assertEqual(before, self.volumes.status())
        origin = self.wanted('c').origin
        self.engine.attach(engines.Attachment('c', origin, 'write-back', 0))
        self.assertRaises(exceptions.Conflict, self.follow, 'c')
        self.engine.error = control.CacheUnreachable('gone')
        self.assertRaises(control.CacheUnreachable, self.follow, max=9)
        self.engine.error = None
        self.assertEqual(before['volumes']['a'], self.shown())


class TestLiveMigration(VolumesTest):
    """A volume that another host writes until set_mode."""

    def setUp(self):
        super().setUp()
        self.volumes.attach('a', self.wanted('a'))
        self.volumes.change('a', 0, {'mode': 'write-around'})
        self.volumes.attach('a', self.wanted('a', mode='pass-through'))

    def mode(self):
        return self.engine.volumes()['a'].mode

    def test_no_setting_has_it_cached_before_the_source_let_go(self):
        self.assertEqual('pass-through', self.mode())
        self.volumes.change('a', 1, {'mode': 'write-through'})
        self.volumes.end_epoch()
        self.assertEqual('pass-through', self.mode())
        self.volumes.set_mode('a', 'write-around')
        self.assertEqual('write-through', self.mode())

    def test_it_stays_cached_when_settings_are_changed_afterwards(self):
        self.volumes.set_mode('a', 'write-through')
        self.assertEqual('write-around', self.mode())
        self.volumes.change('a', 1, {'weight': 2, 'mode': None})
        self.assertEqual('write-through', self.mode())
        self.volumes.change('a', 2, {'weight': 3})
        self.assertEqual('write-through', self.mode())

    def test_a_volume_that_was_attached_by_hand(self):
        origin = self.wanted('b').origin
        self.engine.attach(engines.Attachment('b', origin, 'pass-through', 0))
        self.volumes.set_mode('b', 'write-around')
        self.assertEqual('write-around', self.engine.volumes()['b'].mode)


class TestMoves(VolumesTest):
    """A volume that was used on another host."""

    def setUp(self):
        super().setUp()
        self.moves = mock.create_autospec(volume_moves.Moves, instance=True)
        self.moves.take.return_value = None
        self.volumes = cached_volumes.CachedVolumes(
            self.engine, cached_volumes.CacheOptions((str(self.directory), )),
            self.path,
            volume_sizes.SizeRules(), moves=self.moves)
        self.volumes.attach('a', self.wanted('a'))
        self.volumes.attach('b', self.wanted('b', mode='pass-through'))
        self.engine.epochs['a'] = self.epoch(120.0, 100, [(300, 90)])
        self.engine.epochs['b'] = self.epoch(120.0, 0, [])
        self.volumes.end_epoch()

    def epoch(self, seconds, references, steps):
        return engines.Epoch(seconds, _native.HitCurve(references, 0, steps))

    def arrive(self, epoch, hot=()):
        self.moves.take.return_value = volume_moves.RemoteUse(epoch, list(hot))
        self.volumes.set_mode('b', 'write-through')

    def test_its_size_and_its_blocks_are_there_at_once(self):
        self.assertEqual({'a': 500, 'b': 500}, self.limits())
        self.arrive(self.epoch(120.0, 300, [(700, 200)]),
                    [hot_blocks.Run(1, 2)])
        self.assertEqual({'a': 300, 'b': 700}, self.limits())
        self.moves.warm.assert_called_once_with('b', [hot_blocks.Run(1, 2)])
        [last, *_others] = self.volumes.status()['decisions']
        self.assertIn('b: it came from another host, with its curve',
                      last['explain'])

    def test_epochs_of_other_lengths(self):
        # 200 hits in an hour are 7 in 120 seconds, fewer than 90 of "a".
        self.arrive(self.epoch(3600.0, 300, [(800, 200)]))
        self.assertLessEqual(300, self.limits()['a'])
        self.arrive(self.epoch(3600.0, 3000, [(800, 2900)]))
        self.assertEqual({'a': 200, 'b': 800}, self.limits())

    def test_sizes_that_do_not_suit_are_left(self):
        with mock.patch.object(volume_sizes.Sizes, 'arrive',
                               side_effect=exceptions.NoSpace('no')):
            self.arrive(self.epoch(120.0, 300, [(700, 200)]),
                        [hot_blocks.Run(1, 2)])
        self.assertEqual({'a': 500, 'b': 500}, self.limits())
        self.moves.warm.assert_called_once()
        self.assertIn('no', self.volumes.status()['decisions'][0][
            'explain'][0])

    def test_one_without_an_epoch_is_warmed(self):
        self.arrive(None, [hot_blocks.Run(1, 2)])
        self.moves.warm.assert_called_once()

    def test_nothing_while_another_host_writes(self):
        self.moves.take.reset_mock()
        self.volumes.set_mode('b', 'pass-through')
        self.moves.take.assert_not_called()

    def test_it_is_forgotten_when_it_is_detached(self):
        self.moves.take.reset_mock()
        self.volumes.detach('b')
        self.moves.take.assert_called_once_with('b')

    def test_only_what_is_attached_is_expected(self):
        self.volumes.expect('b', 'h1')
        self.moves.expect.assert_called_once_with('b', 'h1')
        self.assertRaises(exceptions.NotFound, self.volumes.expect, 'c', 'h1')

    def test_how_it_is_used_here(self):
        self.engine.cached['a'] = [hot_blocks.Run(5, 3)]
        found = volumes_endpoint.VolumesManager(self.volumes).volume_use(None,
                                                                         'a')
        self.assertEqual(([300], [90], [hot_blocks.Run(5, 3)]), (
            found.curve.sizes, found.curve.hits,
            hot_blocks.unpack(found.blocks)))
        self.assertRaises(exceptions.NotFound, volume_reports.use,
                          self.volumes,
                          'c')
