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
import contextlib
import threading
import time
from unittest import mock

from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.cached_volumes import write_back_notes
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.objects import volume_specs
from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache import engines
from tests.unit.agent.ssdcache import test_cached_volumes

WRITE_BACK = volume_specs.WRITE_BACK
WRITE_THROUGH = volume_specs.WRITE_THROUGH


class WriteBackTest(test_cached_volumes.VolumesTest):

    def setUp(self):
        super().setUp()
        self.notes = write_back_notes.Notes(
            self.directory / write_back_notes.NAME)

    def attach(self, mode=WRITE_BACK, attachment='at1', **fields):
        return self.volumes.attach('a', self.wanted(
            mode=mode, attachment=attachment, **fields))

    def mode(self):
        return self.engine.volumes()['a'].mode

    def override(self, mode):
        generation = self.volumes.status()['volumes']['a']['overrides'][
            'generation']
        self.volumes.change('a', generation, {'mode': mode})

    def follow(self, mode):
        self.volumes.follow_type('a', volume_specs.settings(
            volume_specs.Specs(mode)))


class TestNotes(WriteBackTest):

    def test_a_volume_is_noted_before_it_is_in_write_back(self):
        seen = []
        set_mode = self.engine.set_mode

        def look(name, mode):
            seen.append((self.notes.has(name), mode))
            set_mode(name, mode)

        with mock.patch.object(self.engine, 'set_mode', look):
            self.assertTrue(self.attach()['noted'])
        self.assertEqual([(True, WRITE_BACK)], seen)
        self.assertEqual(WRITE_BACK, self.mode())

    def test_each_way_out_of_write_back_ends_the_note(self):
        for leave in (lambda: self.volumes.set_mode('a', WRITE_THROUGH),
                      lambda: self.follow('write-around'),
                      lambda: self.override('pass-through'),
                      lambda: self.volumes.drain('a', 60, False),
                      lambda: self.volumes.detach('a')):
            self.attach()
            self.engine.dirty('a', 3)
            self.assertTrue(self.notes.has('a'))
            leave()
            self.assertFalse(self.notes.has('a'))
            self.volumes.detach('a')
            self.volumes._store.keep_overrides(
                'a', cached_volumes.volume_settings.Overrides())
            self.volumes._store.forget_of_type('a')

    def test_a_volume_that_cannot_be_written_back_stays_noted(self):
        self.attach()
        self.engine.dirty('a', 3)
        self.engine.dead.add('a')
        for leave in (lambda: self.volumes.set_mode('a', WRITE_THROUGH),
                      lambda: self.follow(WRITE_THROUGH),
                      lambda: self.volumes.drain('a', 60, False),
                      lambda: self.volumes.detach('a'),
                      lambda: self.attach(WRITE_THROUGH)):
            self.assertRaises(engines.VolumeRefused, leave)
            self.assertTrue(self.notes.has('a'))
            self.assertEqual((WRITE_BACK, 3), (
                self.mode(), self.engine.volumes()['a'].dirty))

    def test_a_volume_that_cannot_be_noted_is_not_attached(self):
        with mock.patch.object(write_back_notes.Notes, 'begin',
                               side_effect=OSError(28, 'full')):
            error = self.assertRaises(exceptions.PermanentError, self.attach)
        self.assertIn(str(self.notes.path('a')), str(error))
        self.assertEqual({}, self.engine.volumes())
        self.write_file(write_back_notes.NAME, b'')
        for work in (self.attach, lambda: self.volumes.detach('a')):
            self.assertRaises(exceptions.PermanentError, work)

    def test_notes_are_durable_and_so_are_their_ends(self):
        with mock.patch.object(files, 'sync_directory') as sync:
            sync.side_effect = OSError(5, 'disk')
            self.assertRaises(OSError, self.notes.begin, 'v')
            # It is there, and may not survive a power cut.
            self.assertRaises(OSError, self.notes.begin, 'v')
            sync.side_effect = None
            self.notes.begin('v')
            sync.reset_mock()
            # Otherwise blocks would seem to be lost with the device.
            self.notes.end('v')
            sync.assert_called_once_with(self.notes.path('v').parent)
            sync.reset_mock()
            self.notes.end('v')
            sync.assert_not_called()
        self.assertFalse(self.notes.has('v'))

    def test_a_volume_that_the_cache_has_lost(self):
        self.attach()
        self.engine._volumes.clear()
        for work in (lambda: self.volumes.detach('a'), self.attach):
            self.assertIn(str(self.notes.path('a')), str(
                self.assertRaises(engines.VolumeRefused, work)))
        self.notes.path('a').unlink()
        self.attach()

    def test_notes_of_modes_that_changed_without_an_answer(self):
        self.attach()
        self.engine.set_mode('a', WRITE_THROUGH)
        self.engine.dirty('a', 1)
        self.volumes.end_epoch()
        self.assertTrue(self.notes.has('a'))
        self.engine.dirty('a', 0)
        self.volumes.end_epoch()
        self.assertFalse(self.notes.has('a'))

    def test_notes_of_volumes_that_have_none(self):
        """Of a command to the cache, or since the state was lost."""
        self.attach(WRITE_THROUGH)
        self.engine.set_mode('a', WRITE_BACK)
        self.volumes.end_epoch()
        self.assertTrue(self.notes.has('a'))
        self.notes.path('a').unlink()
        self.engine.dirty('a', 3, choices.HELD)
        self.volumes.end_epoch()
        self.assertTrue(self.notes.has('a'))


class TestFlush(WriteBackTest):

    def test_flushes_of_volumes_in_write_back_are_counted(self):
        self.attach(WRITE_THROUGH)
        self.volumes.flush('a')
        self.assertEqual({'done': 0, 'failed': 0}, self.volumes.flushes)
        self.volumes.set_mode('a', WRITE_BACK)
        self.volumes.flush('a')
        with mock.patch.object(self.engine, 'flush',
                               side_effect=engines.VolumeRefused('dead')):
            self.assertRaises(engines.VolumeRefused, self.volumes.flush, 'a')
        self.assertEqual({'done': 1, 'failed': 1}, self.volumes.flushes)


class TestDrain(WriteBackTest):

    def test_nothing_returns_it_to_write_back_before_it_is_given_back(self):
        self.attach()
        self.engine.dirty('a', 3)
        self.volumes.drain('a', 60, True)
        for change in (lambda: self.follow(WRITE_BACK),
                       lambda: self.override(WRITE_BACK),
                       lambda: self.volumes.set_mode('a', WRITE_BACK),
                       self.volumes.end_epoch,
                       self.volumes.give_back_unused):
            self.volumes = self.new()
            change()
            self.assertEqual(WRITE_THROUGH, self.mode())
        with mock.patch.object(time, 'time',
                               return_value=time.time() + 1e9):
            self.volumes.give_back_unused()
        self.assertEqual(WRITE_THROUGH, self.mode())
        self.volumes.give_back('a')
        self.assertEqual(WRITE_BACK, self.mode())
        self.assertTrue(self.notes.has('a'))

    def test_a_migration_that_was_only_checked(self):
        self.attach()
        self.volumes.drain('a', 60, False)
        self.volumes.give_back_unused()
        self.assertEqual(WRITE_THROUGH, self.mode())
        with mock.patch.object(
                time, 'time',
                return_value=time.time() + cached_volumes.CHECKED_S + 1):
            self.new().give_back_unused()
        self.assertEqual(WRITE_BACK, self.mode())

    def test_one_that_cannot_be_given_back_does_not_keep_others(self):
        for name in 'ab':
            self.volumes.attach(name, self.wanted(name, mode=WRITE_BACK))
            self.volumes.drain(name, 60, False)
        set_mode = self.engine.set_mode

        def refuse(name, mode):
            if name == 'a':
                raise engines.VolumeRefused('no room for its note')
            set_mode(name, mode)

        later = time.time() + cached_volumes.CHECKED_S + 1
        with mock.patch.object(time, 'time', return_value=later), \
                mock.patch.object(self.engine, 'set_mode', refuse), \
                self.assertLogs(cached_volumes.LOG, 'WARNING') as logs:
            self.volumes.give_back_unused()
        self.assertIn('Volume a', logs.output[0])
        self.assertEqual([WRITE_THROUGH, WRITE_BACK], [
            self.engine.volumes()[name].mode for name in 'ab'])
        # It is not forgotten.
        with mock.patch.object(time, 'time', return_value=later):
            self.volumes.give_back_unused()
        self.assertEqual(WRITE_BACK, self.mode())

    def test_a_migration_that_begins_when_its_check_has_expired(self):
        self.attach()
        self.volumes.drain('a', 60, False)
        leaves, begun = self.volumes._store.leaves, []

        def begin_meanwhile():
            found = leaves()
            if not begun:
                begun.append(True)
                self.volumes.drain('a', 60, True)
            return found

        with mock.patch.object(
                time, 'time',
                return_value=time.time() + cached_volumes.CHECKED_S + 1), \
                mock.patch.object(self.volumes._store, 'leaves',
                                  begin_meanwhile):
            self.volumes.give_back_unused()
        self.assertTrue(begun)
        self.assertEqual(WRITE_THROUGH, self.mode())
        self.assertIsNone(leaves()['a'].until)

    def test_it_is_given_back_as_soon_as_a_drain_begins(self):
        self.attach()
        of, may_end = self.volumes._alone.of, threading.Event()
        set_mode, given_back = self.engine.set_mode, []

        @contextlib.contextmanager
        def alone(name):
            with of(name):
                yield
            if not given_back:
                given_back.append(True)
                self.volumes.give_back('a')
                may_end.set()

        def wait(name, mode):
            may_end.wait()
            set_mode(name, mode)

        with mock.patch.object(self.engine, 'set_mode', wait), \
                mock.patch.object(self.volumes._alone, 'of', alone):
            self.volumes.drain('a', 60, True)
        self.assertEqual((WRITE_THROUGH, False), (
            self.mode(), self.notes.has('a')))
        self.volumes.give_back_unused()
        self.assertEqual((WRITE_BACK, True), (
            self.mode(), self.notes.has('a')))

    def test_volumes_of_other_modes_do_not_enter_it_either(self):
        self.attach('write-around')
        self.volumes.drain('a', 60, True)
        self.follow(WRITE_BACK)
        self.assertEqual(WRITE_THROUGH, self.mode())

    def test_the_cache_may_put_a_volume_in_write_back_later(self):
        for leave in (lambda: self.volumes.drain('a', 60, True),
                      lambda: self.volumes.hold('a', 'h1', 30.0, 60.0)):
            self.attach(WRITE_THROUGH)
            with mock.patch.object(self.engine, 'set_mode',
                                   side_effect=control.CacheSlow('60 s')):
                self.assertRaises(control.CacheSlow, self.volumes.set_mode,
                                  'a', WRITE_BACK)
            with mock.patch.object(self.engine, 'set_mode',
                                   wraps=self.engine.set_mode) as changed:
                leave()
            changed.assert_called_once_with('a', WRITE_THROUGH)
            self.assertFalse(self.notes.has('a'))

    def test_a_note_ends_once_the_cache_has_no_other_mode_to_reach(self):
        self.attach(WRITE_THROUGH)
        with mock.patch.object(self.engine, 'set_mode',
                               side_effect=control.CacheSlow('60 s')):
            self.assertRaises(control.CacheSlow, self.volumes.set_mode, 'a',
                              WRITE_BACK)
            self.volumes.end_epoch()
        self.assertTrue(self.notes.has('a'))
        with mock.patch.object(self.engine, 'set_mode',
                               wraps=self.engine.set_mode) as changed:
            self.volumes.end_epoch()
        changed.assert_called_once_with('a', WRITE_THROUGH)
        self.assertFalse(self.notes.has('a'))

    def test_another_attachment_gives_it_back(self):
        self.attach()
        self.volumes.drain('a', 60, True)
        self.attach()
        self.assertEqual(WRITE_BACK, self.mode())

    def test_a_volume_that_is_not_attached(self):
        self.assertRaises(exceptions.NotFound, self.volumes.drain, 'a', 1,
                          True)
        self.volumes.give_back('a')

    def test_volumes_that_are_drained_do_not_hold_a_stop(self):
        self.attach()
        may_end = threading.Event()
        with mock.patch.object(self.engine, 'set_mode',
                               lambda *_: may_end.wait()):
            self.assertRaises(exceptions.Busy, self.volumes.drain, 'a', 0,
                              True)
            self.addCleanup(may_end.set)
            draining = [thread for thread in threading.enumerate()
                        if thread.name.startswith('ssd-cache-drain')]
            self.assertTrue(draining)
            self.assertTrue(all(thread.daemon for thread in draining))
            may_end.set()
            for thread in draining:
                thread.join()

    def test_a_cache_that_does_not_answer_in_time(self):
        self.attach()
        self.engine.dirty('a', 3)
        with mock.patch.object(
                self.engine, 'set_mode',
                side_effect=exceptions.ServiceUnavailable('slow')):
            error = self.assertRaises(exceptions.Busy, self.volumes.drain,
                                      'a', 60, False)
        self.assertIn('Volume a has 3 blocks', str(error))

    def test_live_migration_gives_the_destination_its_mode(self):
        self.attach('pass-through')
        self.assertEqual('pass-through', self.mode())
        self.volumes.set_mode('a', WRITE_BACK)
        self.assertEqual(WRITE_BACK, self.mode())
        self.assertTrue(self.notes.has('a'))


class TestHeld(WriteBackTest):

    def setUp(self):
        super().setUp()
        self.attach(max=400)
        self.engine.dirty('a', 3, choices.HELD)

    def test_its_size_stays(self):
        self.volumes.attach('b', self.wanted('b', weight=9.0))
        self.volumes.end_epoch()
        self.assertEqual({'a': 400, 'b': 600}, self.limits())

    def test_the_same_attachment_has_it_written_back(self):
        self.volumes.attach('a', self.wanted(
            'other', mode=WRITE_BACK, attachment='at1'))
        self.assertEqual({'a': str(self.directory / 'other')},
                         self.engine.recovered)
        self.assertEqual((WRITE_BACK, 0, 'ok'), (
            self.mode(), self.engine.volumes()['a'].dirty,
            self.engine.volumes()['a'].state))

    def test_a_cache_that_takes_longer_than_the_agent_waits(self):
        recover = self.engine.recover

        def recover_late(name, origin):
            recover(name, origin)
            raise exceptions.ServiceUnavailable('no answer in time')

        with mock.patch.object(self.engine, 'recover', recover_late):
            self.assertRaises(exceptions.ServiceUnavailable, self.attach)
        self.attach()
        self.assertEqual((WRITE_BACK, 'ok'), (
            self.mode(), self.engine.volumes()['a'].state))

    def test_another_attachment_does_not(self):
        for attachment in ('at2', None):
            error = self.assertRaises(
                engines.VolumeRefused, self.attach, attachment=attachment)
            self.assertIn('3 blocks', str(error))
        self.path.unlink()
        self.assertRaises(engines.VolumeRefused, self.attach)
        self.assertEqual({}, self.engine.recovered)
        self.assertEqual(3, self.engine.volumes()['a'].dirty)

    def test_without_dirty_blocks_it_begins_anew(self):
        self.engine.dirty('a', 0, choices.HELD)
        self.attach(attachment='at2')
        self.assertEqual({}, self.engine.recovered)
        self.assertEqual('ok', self.engine.volumes()['a'].state)

    def test_detach_and_forget(self):
        error = self.assertRaises(engines.VolumeRefused, self.volumes.detach,
                                  'a')
        self.assertIn('3 blocks', str(error))
        # Nova tries this when it removes the server.
        self.assertRaises(engines.VolumeRefused, self.volumes.drain, 'a', 60,
                          True)
        self.volumes.forget('a')
        self.assertEqual({}, self.volumes._store.leaves())
        self.assertEqual({}, self.engine.volumes())
        self.assertFalse(self.notes.has('a'))

    def test_forget_one_that_was_lost_with_the_device(self):
        self.engine._volumes.clear()
        with self.assertLogs(level='ERROR') as logs:
            self.volumes.forget('a')
        self.assertIn('Volume a', logs.output[0])
        self.assertFalse(self.notes.has('a'))
        self.volumes.forget('a')

    def test_what_is_not_held_is_not_forgotten(self):
        self.engine.dirty('a', 3)
        self.engine.dead.add('a')
        self.assertRaises(engines.VolumeRefused, self.volumes.forget, 'a')
        self.engine.dead.clear()
        self.volumes.forget('a')
        self.assertEqual({}, self.engine.volumes())


class HoldsTest(WriteBackTest):
    """Operations of Cinder that read a volume."""

    def hold(self, hold_id='h1', lease=30.0):
        self.volumes.hold('a', hold_id, lease, 60.0)

    def end(self, hold_id):
        """End a hold, and wait until the volume has its mode again."""
        self.volumes.end_hold('a', hold_id).join()

    def later(self, seconds):
        now = time.time()
        self.volumes._store.holds._clock = lambda: now + seconds


class TestHolds(HoldsTest):

    def test_what_the_volume_lacks_is_written_back(self):
        self.attach()
        self.engine.dirty('a', 3)
        self.hold()
        state = self.engine.volumes()['a']
        self.assertEqual((WRITE_THROUGH, 0), (state.mode, state.dirty))
        self.end('h1')
        self.assertEqual(WRITE_BACK, self.mode())

    def test_an_operation_does_not_wait_until_the_volume_has_its_mode(self):
        self.attach()
        self.hold()
        with self.volumes._alone.of('a'):
            returning = self.volumes.end_hold('a', 'h1')
            self.assertEqual(WRITE_THROUGH, self.mode())
        returning.join()
        self.assertEqual(WRITE_BACK, self.mode())

    def test_holds_nest(self):
        self.attach()
        self.hold()
        self.hold('h2')
        self.end('h1')
        self.assertEqual(WRITE_THROUGH, self.mode())
        self.end('h2')
        self.assertEqual(WRITE_BACK, self.mode())

    def test_one_whose_caller_ended_lapses(self):
        self.attach()
        self.hold()
        self.later(29.0)
        self.volumes.give_back_unused()
        self.assertEqual(WRITE_THROUGH, self.mode())
        self.later(30.0)
        self.volumes.give_back_unused()
        self.assertEqual(WRITE_BACK, self.mode())
        for work in (lambda: self.volumes.end_hold('a', 'h1'),
                     lambda: self.volumes.renew_hold('a', 'h1', 30.0)):
            self.assertIn('lapsed', str(
                self.assertRaises(exceptions.NotFound, work)))

    def test_one_that_lapsed_is_not_renewed_although_nothing_happened(self):
        self.attach()
        self.hold()
        self.later(31.0)
        self.assertRaises(exceptions.NotFound, self.volumes.renew_hold, 'a',
                          'h1', 30.0)

    def test_one_that_is_renewed_lasts(self):
        self.attach()
        self.hold()
        self.later(20.0)
        self.volumes.renew_hold('a', 'h1', 30.0)
        self.later(40.0)
        self.volumes.give_back_unused()
        self.assertEqual(WRITE_THROUGH, self.mode())
        self.end('h1')
        self.assertEqual(WRITE_BACK, self.mode())

    def test_they_stay_over_a_restart_of_the_agent(self):
        self.attach()
        self.hold()
        self.volumes = self.new()
        self.volumes.give_back_unused()
        self.override(WRITE_BACK)
        self.assertEqual(WRITE_THROUGH, self.mode())
        self.end('h1')
        self.assertEqual(WRITE_BACK, self.mode())

    def test_a_volume_that_is_attached_meanwhile_begins_in_write_through(self):
        self.hold()
        self.attach()
        self.assertEqual(WRITE_THROUGH, self.mode())
        self.end('h1')
        self.assertEqual(WRITE_BACK, self.mode())

    def test_a_server_that_may_leave(self):
        self.attach()
        self.hold()
        self.volumes.drain('a', 60, True)
        self.end('h1')
        self.assertEqual(WRITE_THROUGH, self.mode())
        self.hold('h2')
        self.volumes.give_back('a')
        self.assertEqual(WRITE_THROUGH, self.mode())
        self.end('h2')
        self.assertEqual(WRITE_BACK, self.mode())

    def test_a_volume_that_cannot_be_written_back(self):
        self.attach()
        self.engine.dirty('a', 3)
        self.engine.dead.add('a')
        self.assertRaises(engines.VolumeRefused, self.hold)
        self.assertEqual(WRITE_BACK, self.mode())

    def test_blocks_of_a_host_that_has_crashed(self):
        self.attach()
        self.engine.dirty('a', 3, choices.HELD)
        self.assertIn('3 blocks', str(
            self.assertRaises(engines.VolumeRefused, self.hold)))
        self.engine._volumes.clear()
        self.assertRaises(engines.VolumeRefused, self.hold)

    def test_a_return_that_fails_is_repeated(self):
        self.attach()
        self.hold()
        with mock.patch.object(self.engine, 'set_mode',
                               side_effect=engines.VolumeRefused('full')):
            self.end('h1')
        self.assertEqual(WRITE_THROUGH, self.mode())
        self.volumes.give_back_unused()
        self.assertEqual(WRITE_BACK, self.mode())

    def test_an_end_whose_answer_was_lost_is_repeated(self):
        self.attach()
        self.hold()
        self.end('h1')
        self.volumes = self.new()
        self.volumes.give_back_unused()
        self.end('h1')
        self.assertRaises(exceptions.NotFound, self.end, 'h2')
        self.later(601.0)
        self.assertRaises(exceptions.NotFound, self.end, 'h1')

    def test_a_volume_has_so_many_holds(self):
        for number in range(100):
            self.hold(f'h{number}')
        self.assertRaises(exceptions.Busy, self.hold, 'one more')
        self.end('h7')
        self.hold('one more')

    def test_a_file_that_is_lost_has_operations_fail(self):
        self.attach()
        self.hold()
        self.volumes._store.holds._path.write_bytes(b'{')
        self.assertRaises(exceptions.NotFound, self.volumes.end_hold, 'a',
                          'h1')

    def test_writes_wait_for_other_volumes_of_a_group(self):
        self.attach()
        self.volumes.queue('a', 2.0)
        self.assertEqual({'a': 2.0}, self.engine.queued)
        self.volumes.end_queue('a')
        self.assertIn('were resumed', str(self.assertRaises(
            exceptions.NotFound, self.volumes.end_queue, 'a')))
        self.assertRaises(exceptions.NotFound, self.volumes.queue, 'b', 2.0)


class TestVolumesThatCinderDoesNotHold(WriteBackTest):

    def test_they_are_not_in_write_back(self):
        self.attach(WRITE_THROUGH, holdable=False)
        for change in (self.override, self.follow):
            self.assertIn('diffcache_openstack.cinder.driver.load', str(
                self.assertRaises(exceptions.Conflict, change, WRITE_BACK)))
            self.assertEqual(WRITE_THROUGH, self.mode())
        self.override('write-around')
