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
"""What volumes in write-back lack reaches them before they leave."""

from unittest import mock

# Before Nova itself, which may be missing.
from tests.unit.nova import needs  # noqa: F401

from nova import exception
import testtools

from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import connections
from diffcache_openstack.nova import volume_departures
from diffcache_openstack.nova import volumes
from diffcache_openstack.objects import volume_specs as qos
from tests.unit.nova import volume_cases

VOLUME = volume_cases.VOLUME
INSTANCE = volume_cases.INSTANCE
EXPORT = volume_cases.EXPORT


class TestLiveMigration(volume_cases.VolumesTest):

    def test_nothing_is_cached_while_another_host_writes(self):
        connection = self.connection()
        with self.cache.migrating('h1'):
            self.around(connection).connect_volume(connection, INSTANCE)
        [(_, wanted)] = [call.args for call
                         in self.client.attach_volume.call_args_list]
        self.assertEqual('pass-through', wanted['mode'])
        self.client.expect_volume.assert_called_once_with(VOLUME, 'h1')
        self.cache.begin([connection, {'data': {}}])
        self.client.set_volume_mode.assert_called_once_with(
            VOLUME, 'write-through')

    def test_it_ends_with_the_preparation(self):
        try:
            with self.cache.migrating('h1'):
                raise ValueError
        except ValueError:
            pass
        connection = self.connection()
        self.around(connection).connect_volume(connection, INSTANCE)
        self.assertEqual('write-through',
                         connection['data'][connections.KEY]['mode'])
        self.client.expect_volume.assert_not_called()
        self.cache.begin([connection])
        self.client.set_volume_mode.assert_not_called()

    def test_an_agent_that_cannot_learn_how_it_is_used(self):
        self.client.expect_volume.side_effect = exceptions.NotFound('old')
        connection = self.connection()
        with self.cache.migrating('h1'):
            self.around(connection).connect_volume(connection, INSTANCE)
        self.assertEqual('pass-through',
                         connection['data'][connections.KEY]['mode'])
        self.assertEqual({}, self.uncached())

    def test_a_cache_that_does_not_answer_afterwards(self):
        connection = self.connection()
        with self.cache.migrating('h1'):
            self.around(connection).connect_volume(connection, INSTANCE)
        self.client.set_volume_mode.side_effect = \
            exceptions.ServiceUnavailable('down')
        self.cache.begin([connection])
        self.assertEqual({'ServiceUnavailable': 1}, self.uncached())


class TestWriteBack(volume_cases.VolumesTest):
    """Volumes that may lack blocks which the cache has."""

    def setUp(self):
        super().setUp()
        self.notes.begin(VOLUME)
        self.client.ssd_cache.return_value = {
            'volumes': {VOLUME: {'dirty': 5}}}

    def end_note(self, *_args, **_fields):
        self.notes.end(VOLUME)

    def assert_refused(self, kind, work, *words):
        error = self.assertRaises(kind, work)
        for word in (VOLUME, *words):
            self.assertIn(word, str(error))

    def test_a_detach_that_fails_keeps_the_volume_here(self):
        connection = self.connection()
        for error in (exceptions.ServiceUnavailable('down'),
                      exceptions.Conflict('dead storage')):
            self.client.detach_volume.side_effect = error
            self.assert_refused(
                exception.VolumeDetachFailed,
                lambda: self.around(connection).disconnect_volume(
                    connection, INSTANCE, force=True),
                '5 blocks', str(error), 'Repeat this')
        self.client.ssd_cache.side_effect = exceptions.ServiceUnavailable('x')
        self.assert_refused(
            exception.VolumeDetachFailed,
            lambda: self.around(connection).disconnect_volume(
                connection, INSTANCE), 'an unknown number of blocks')
        self.assertEqual([], self.driver.asked)

    def test_it_is_drained_before_as_long_as_blocks_become_fewer(self):
        left = [5, 3, 2]
        self.client.ssd_cache.side_effect = lambda: {
            'volumes': {VOLUME: {'dirty': left.pop(0)}}}
        self.client.drain_volume.side_effect = [
            exceptions.Busy('5'), exceptions.Busy('3'), exceptions.Busy('2'),
            None]
        connection = self.connection()
        self.around(connection).disconnect_volume(connection, INSTANCE)
        self.assertEqual([], left)
        self.client.detach_volume.assert_called_once_with(VOLUME)
        self.assertEqual([('disconnect', False)], self.driver.asked)

    def test_blocks_that_do_not_become_fewer(self):
        self.client.drain_volume.side_effect = exceptions.Busy('stuck')
        connection = self.connection()
        self.assert_refused(
            exception.VolumeDetachFailed,
            lambda: self.around(connection).disconnect_volume(
                connection, INSTANCE), 'stuck')
        self.assertEqual(2, self.client.drain_volume.call_count)

    def test_it_is_never_used_without_the_cache(self):
        for error in (exceptions.ServiceUnavailable('down'),
                      exceptions.NoSpace('failed'),
                      exceptions.Conflict('held')):
            self.client.attach_volume.side_effect = error
            connection = self.connection()
            self.assert_refused(
                exception.VolumeAttachFailed,
                lambda: self.around(connection).connect_volume(
                    connection, INSTANCE), '5 blocks', str(error))
            self.assertNotIn(connections.KEY, connection['data'])
        self.driver.connect_volume = lambda connection, instance: None
        connection = self.connection()
        self.assert_refused(
            exception.VolumeAttachFailed,
            lambda: self.around(connection).connect_volume(
                connection, INSTANCE), 'no block device')
        self.assertEqual({}, self.uncached())

    def test_a_note_that_cannot_be_looked_for_counts(self):
        self.end_note()
        with mock.patch.object(self.notes, 'has',
                               side_effect=PermissionError('no')):
            self.client.attach_volume.side_effect = \
                exceptions.ServiceUnavailable('down')
            connection = self.connection()
            self.assert_refused(
                exception.VolumeAttachFailed,
                lambda: self.around(connection).connect_volume(
                    connection, INSTANCE))

    def test_notes_that_are_not_seen_here(self):
        self.end_note()
        self.client.attach_volume.return_value = {**EXPORT, 'noted': True}
        connection = self.connection()
        with self.assertLogs(volumes.LOG, 'WARNING') as logs:
            self.around(connection).connect_volume(connection, INSTANCE)
        self.assertIn('[diffcache] write_back_notes', logs.output[0])
        self.client.detach_volume.assert_called_once_with(VOLUME)
        self.assertNotIn(connections.KEY, connection['data'])

    def test_a_type_in_write_back(self):
        self.client.attach_volume.return_value = {**EXPORT, 'noted': True}
        connection = self.written_back()
        self.around(connection).connect_volume(connection, INSTANCE)
        self.assertEqual('write-back',
                         connection['data'][connections.KEY]['mode'])
        with self.cache.migrating('source'):
            self.around(connection).connect_volume(connection, INSTANCE)
        self.assertEqual('pass-through',
                         connection['data'][connections.KEY]['mode'])
        self.cache.begin([connection])
        self.client.set_volume_mode.assert_called_once_with(VOLUME,
                                                            'write-back')

    def test_a_volume_that_cinder_does_not_hold(self):
        for mark in (None, True, {}, {'held': 'yes'}, {'held': False}):
            connection = self.written_back()
            connection['data'][qos.MARK] = mark
            with self.assertLogs(volumes.LOG, 'WARNING') as logs:
                self.around(connection).connect_volume(connection, INSTANCE)
            self.assertIn('diffcache_openstack.cinder.driver.load',
                          logs.output[0])
            _, given = self.client.attach_volume.call_args.args
            self.assertEqual(('write-through', False),
                             (given['mode'], given['holdable']))
        self.assertEqual({'not held by Cinder': 5}, self.uncached())

    def test_a_note_that_is_not_seen_after_a_live_migration(self):
        self.client.attach_volume.return_value = {**EXPORT, 'noted': False}
        connection = self.written_back()
        self.end_note()
        with self.cache.migrating('source'):
            self.around(connection).connect_volume(connection, INSTANCE)
        found = {'mode': 'write-around'}
        self.client.ssd_cache.return_value = {'volumes': {VOLUME: found}}
        # An operator has set another mode.
        self.cache.begin([connection])
        self.client.set_volume_mode.assert_called_once_with(VOLUME,
                                                            'write-back')
        found['mode'] = 'write-back'
        with self.assertLogs(volumes.LOG, 'ERROR') as logs:
            self.cache.begin([connection])
        self.client.set_volume_mode.assert_called_with(VOLUME,
                                                       'write-through')
        self.assertIn('set [diffcache] write_back_notes', logs.output[0])

    def test_a_type_that_is_cached_no_more(self):
        for connection in (
                {'serial': VOLUME, 'data': {}},
                self.connection({'weight': 'heavy'}),
                self.connection(data={'access_mode': 'ro'})):
            self.notes.begin(VOLUME)
            self.driver.asked.clear()
            self.client.detach_volume.side_effect = exceptions.Conflict('no')
            driver = self.around(connection)
            for work in (driver.connect_volume, driver.disconnect_volume):
                self.assertRaises(exception.VolumeDetachFailed, work,
                                  connection, INSTANCE)
            self.assertEqual([], self.driver.asked)
            self.client.detach_volume.side_effect = self.end_note
            driver.connect_volume(connection, INSTANCE)
            driver.disconnect_volume(connection, INSTANCE)
            self.assertEqual(['connect', ('disconnect', False)],
                             self.driver.asked)
            self.assertIs(self.driver, self.around(connection))

    def test_a_held_volume_stays_held_until_it_is_connected_again(self):
        self.client.ssd_cache.return_value['volumes'][VOLUME]['state'] = 'held'
        self.client.drain_volume.side_effect = exceptions.Conflict('held')
        self.client.attach_volume.return_value = {**EXPORT, 'noted': True}
        connection = self.connection()
        driver = self.around(connection)
        with self.cache.reconnecting():
            driver.disconnect_volume(connection, INSTANCE, force=True)
            driver.connect_volume(connection, INSTANCE)
        self.assertEqual([('disconnect', True), 'connect'], self.driver.asked)
        self.client.drain_volume.assert_not_called()
        self.client.detach_volume.assert_not_called()
        self.client.attach_volume.assert_called_once()
        # Otherwise it may go to another host.
        self.assert_refused(
            exception.VolumeDetachFailed,
            lambda: driver.disconnect_volume(connection, INSTANCE), 'held')

    def test_others_leave_the_cache_before_they_are_connected_again(self):
        connection = self.connection()
        for answer in ({'volumes': {VOLUME: {'dirty': 5, 'state': 'ok'}}},
                       {'volumes': {}}, exceptions.ServiceUnavailable('x')):
            self.client.ssd_cache.side_effect = [answer]
            with self.cache.reconnecting():
                self.around(connection).disconnect_volume(connection, INSTANCE)
            self.client.detach_volume.assert_called_once_with(VOLUME)
            self.client.detach_volume.reset_mock()

    def test_a_volume_that_is_replaced_is_drained_before(self):
        self.client.drain_volume.side_effect = exceptions.Busy('stuck')
        with testtools.ExpectedException(exception.VolumeDetachFailed):
            with self.cache.replacing(self.connection()):
                self.fail('it was replaced')
        self.client.drain_volume.side_effect = None
        with testtools.ExpectedException(ZeroDivisionError):
            with self.cache.replacing(self.connection()):
                raise ZeroDivisionError
        self.client.give_volume_back.assert_called_once_with(VOLUME)

    def test_the_volume_in_its_place_stays_out_of_write_back(self):
        wanted = qos.parse({'diffcache:ssd_cache': 'write-back'})
        connection = self.written_back()
        self.assertEqual('write-back', self.cache.mode(wanted, connection))
        with self.cache.replacing(connection):
            self.client.drain_volume.reset_mock()
            self.assertEqual('write-through',
                             self.cache.mode(wanted, connection))
            self.around(connection).connect_volume(connection, INSTANCE)
        self.client.drain_volume.assert_called_once_with(
            VOLUME, volume_departures._DRAIN_S, leaves=True)
        self.assertEqual('write-back', self.cache.mode(wanted, connection))


class TestMigration(volume_cases.VolumesTest):

    def test_all_volumes_are_drained_in_one_time(self):
        clock = iter((0.0, 10.0, 50.0))
        with mock.patch.object(volume_departures.time, 'monotonic',
                               side_effect=lambda: next(clock)):
            self.cache.prepare(['a', 'b'], leaves=True)
        self.assertEqual([mock.call('a', 20.0, True),
                          mock.call('b', 0.0, True)],
                         self.client.drain_volume.call_args_list)

    def test_volumes_that_the_cache_does_not_have(self):
        self.client.drain_volume.side_effect = exceptions.NotFound('none')
        self.cache.prepare(['a', 'b'], leaves=False)
        self.client.give_volume_back.side_effect = [
            exceptions.NotFound('old'), exceptions.ServiceUnavailable('x')]
        with self.assertLogs(volume_departures.LOG, 'WARNING') as logs:
            self.cache.give_back(['a', 'b'])
        self.assertIn('Volume b stays in write-through', logs.output[0])

    def test_a_volume_that_was_lost_with_the_device(self):
        self.client.drain_volume.side_effect = exceptions.NotFound('none')
        self.notes.begin('b')
        self.assertRaises(exceptions.NotFound, self.cache.prepare,
                          ['a', 'b'], True)

    def test_without_an_agent_those_leave_that_lack_nothing(self):
        self.client.drain_volume.side_effect = \
            exceptions.ServiceUnavailable('down')
        with self.assertLogs(volume_departures.LOG, 'WARNING') as logs:
            self.cache.prepare(['a', 'b'], leaves=True)
        self.assertEqual(2, len(logs.output))
        self.notes.begin('b')
        self.assertRaises(exceptions.ServiceUnavailable, self.cache.prepare,
                          ['a', 'b'], True)

    def test_one_that_takes_too_long(self):
        self.notes.begin('a')
        self.client.drain_volume.side_effect = exceptions.Busy('3 blocks')
        self.assertRaises(exceptions.Busy, self.cache.prepare, ['a'], True)
