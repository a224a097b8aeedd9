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
import itertools
import threading
import types
from unittest import mock

from tests.unit.cinder import needs  # Before Cinder, which may be missing.

from cinder import exception
from cinder.volume.drivers import nfs
from cinder.volume.drivers import quobyte

from diffcache_openstack.cinder import connections
from diffcache_openstack.cinder import driver
from diffcache_openstack.cinder import holds
from diffcache_openstack.cinder import reading
from diffcache_openstack.common import exceptions
from diffcache_openstack.objects import volume_specs
from diffcache_openstack.remote_calls import conductor_holds_api

DOWN = exceptions.ServiceUnavailable('no answer.')


def attachment(host='h1', **changes):
    """A volume's attachment, as Cinder has it."""
    return types.SimpleNamespace(**{
        'attached_host': host, 'connector': {'host': host},
        'connection_info': {volume_specs.MARK: {'held': True}}, **changes})


def volume(name='v1', *attachments):
    """A volume in use, of which Cinder has these attachments."""
    return types.SimpleNamespace(
        id=name, volume_attachment=attachments or (attachment(),))


def snapshot(of, name='s1'):
    return types.SimpleNamespace(id=name, volume=of)


class Host:
    """An agent behind a conductor, as the API of holds reaches it."""

    def __init__(self):
        self.held = {}
        self.queued = set()
        self.calls = []
        self.places = []
        self.errors = {}

    def _called(self, name, volume_id):
        self.calls.append((name, volume_id))
        errors = self.errors.get(name, [])
        error = errors.pop(0) if isinstance(errors, list) and errors \
            else None if isinstance(errors, list) else errors
        if error is not None:
            raise error

    def begin_hold(self, _context, host, volume_id, hold_id, lease):
        self.places.append((host, volume_id))
        self._called('begin', volume_id)
        self.held.setdefault(volume_id, set()).add((host, hold_id))

    def renew_hold(self, _context, host, volume_id, hold_id, lease):
        self._called('renew', volume_id)
        if (host, hold_id) not in self.held.get(volume_id, ()):
            raise exceptions.NotFound('It has lapsed.')

    def end_hold(self, _context, host, volume_id, hold_id):
        self.places.append((host, volume_id))
        self._called('end', volume_id)
        if (host, hold_id) not in self.held.get(volume_id, ()):
            raise exceptions.NotFound('It has lapsed.')
        self.held[volume_id].remove((host, hold_id))

    def begin_queue(self, _context, _host, volume_id, seconds):
        self._called('queue', volume_id)
        self.queued.add(volume_id)

    def end_queue(self, _context, _host, volume_id):
        self._called('go', volume_id)
        if volume_id not in self.queued:
            raise exceptions.NotFound('They have gone on.')
        self.queued.remove(volume_id)


class HoldsTest(needs.CinderTest):

    def setUp(self):
        super().setUp()
        self.host = Host()
        for name in ('begin_hold', 'renew_hold', 'end_hold', 'begin_queue',
                     'end_queue'):
            self.assertTrue(hasattr(conductor_holds_api.HoldsAPI, name))
        self.holds = holds.Holds(self.host, itertools.count().__next__)
        self.patch(reading, 'HOLDS', self.holds)
        self.patch(holds, '_AGAIN_S', 0.0)

    def during(self, *volumes):
        with self.holds.of(volumes, 'snapshot'):
            return {name: len(ids) for name, ids in self.host.held.items()}

    def refused(self, work):
        return str(self.assertRaises(exception.VolumeBackendAPIException,
                                     work))


class TestHolds(HoldsTest):

    def test_a_volume_is_held_for_as_long_as_it_is_read(self):
        self.assertEqual({'v1': 1}, self.during(volume()))
        self.assertEqual({'v1': set()}, self.host.held)

    def test_one_within_another_is_nothing(self):
        with self.holds.of([volume()], 'backup'):
            self.assertEqual({'v1': 1}, self.during(volume()))
        self.assertEqual([('begin', 'v1'), ('end', 'v1')], self.host.calls)

    def test_what_cannot_be_in_write_back_is_not_asked_about(self):
        for each in (volume('v1', attachment(connection_info={'a': 1})),
                     types.SimpleNamespace(id='v1', volume_attachment=None)):
            self.during(each)
        self.assertEqual([], self.host.calls)

    def test_each_host_of_a_live_migration_is_asked(self):
        self.during(volume('v1', attachment('h1'), attachment('h2')))
        self.assertEqual([('h1', 'v1'), ('h2', 'v1')] * 2, self.host.places)

    def test_a_connection_that_cinder_does_not_keep(self):
        self.during(volume('v1', attachment(connection_info=None,
                                            connector=None)))
        self.assertEqual(2, len(self.host.calls))

    def test_a_host_without_a_cache(self):
        self.host.errors['begin'] = exceptions.NotFound('no cache')
        self.assertEqual({}, self.during(volume()))
        self.assertEqual([('begin', 'v1')], self.host.calls)

    def test_blocks_that_take_long_are_waited_for(self):
        self.host.errors['begin'] = [exceptions.Busy('3 blocks')] * 5
        self.assertEqual({'v1': 1}, self.during(volume()))

    def test_blocks_that_take_too_long(self):
        self.host.errors['begin'] = exceptions.Busy('3 blocks.')
        self.holds._clock = mock.Mock(side_effect=[0.0, 3599.0, 3600.0])
        self.assertIn('3 blocks', self.refused(
            lambda: self.during(volume())))

    def test_blocks_that_cannot_be_written_back(self):
        self.host.errors['begin'] = exceptions.PermanentError('disk full.')
        self.assertIn('disk full', self.refused(
            lambda: self.during(volume())))

    def test_a_host_that_does_not_answer(self):
        self.host.errors['begin'] = DOWN
        text = self.refused(lambda: self.during(volume()))
        for part in ('volume v1', 'host h1', 'volume cache show v1'):
            self.assertIn(part, text)

    def test_a_host_that_is_restarted_before_it_begins(self):
        self.host.errors['begin'] = [DOWN] * 5
        self.assertEqual({'v1': 1}, self.during(volume()))

    def test_operators_may_have_it_go_on(self):
        self.set('on_unreachable', 'proceed', 'diffcache')
        self.host.errors['begin'] = DOWN
        with self.assertLogs(holds.LOG, 'ERROR') as logs:
            self.assertEqual({}, self.during(volume()))
        self.assertIn('1 times', logs.output[0])
        self.assertEqual(1, self.holds.unheld['snapshot'])

    def test_a_host_that_is_silent_is_waited_for_once(self):
        self.set('on_unreachable', 'proceed', 'diffcache')
        self.host.errors['begin'] = DOWN
        self.during(*(volume(f'v{number}') for number in range(20)))
        self.assertEqual([f'v{number}' for number in range(20)],
                         [name for _, name in self.host.calls[-20:]])
        asked = len(self.host.calls)
        self.holds._clock = itertools.count(1000).__next__
        self.during(volume())
        self.assertGreater(len(self.host.calls), asked + 1)

    def test_one_that_lapsed_fails_the_operation(self):
        def lapse():
            with self.holds.of([volume()], 'snapshot'):
                self.host.held.clear()

        self.assertIn('Delete what was made', self.refused(lapse))

    def test_an_agent_that_is_restarted_meanwhile(self):
        self.host.errors['end'] = [DOWN] * 5
        self.assertEqual({'v1': 1}, self.during(volume()))
        self.assertEqual({'v1': set()}, self.host.held)

    def test_an_agent_that_stays_away(self):
        self.host.errors['end'] = DOWN
        self.patch(holds.time, 'monotonic',
                   mock.Mock(side_effect=range(0, 10000, 10)))
        self.assertIn('may lack', self.refused(
            lambda: self.during(volume())))

    def test_leases_are_renewed(self):
        self.patch(holds, '_RENEWED', 0.001)
        with self.holds.of([volume()], 'snapshot'):
            for _ in range(1000):
                if self.host.calls.count(('renew', 'v1')) >= 3:
                    break
                holds.time.sleep(0.01)
        self.assertLessEqual(3, self.host.calls.count(('renew', 'v1')))

    def test_an_error_of_the_operation_ends_the_hold(self):
        with contextlib.suppress(KeyError), \
                self.holds.of([volume()], 'snapshot'):
            raise KeyError
        self.assertEqual({'v1': set()}, self.host.held)


class Backend:
    """A backend's driver, which notes what is held while it works."""

    def __init__(self, host, enabled=False):
        self.host = host
        self.enabled = enabled
        self.seen = []

    def _look(self):
        self.seen.append(({name for name, ids in self.host.held.items()
                           if ids}, set(self.host.queued)))

    def get_volume_stats(self, refresh=False):
        return {'pools': [
            {'consistent_group_snapshot_enabled': self.enabled}]}

    def create_snapshot(self, snapshot):
        self._look()
        if snapshot.id == 'bad':
            raise KeyError('bad')
        return {'provider_id': snapshot.id}

    def create_cloned_volume(self, volume, src_vref):
        self._look()

    def copy_volume_to_image(self, context, volume, image_service,
                             image_meta):
        self._look()

    def get_backup_device(self, context, backup):
        self.create_snapshot(snapshot(volume()))
        # As RBD's with Ceph's backup driver.
        return (volume(), False) if self.enabled else ('device', True)

    def create_group_snapshot(self, context, group_snapshot, snapshots):
        raise NotImplementedError

    def create_cgsnapshot(self, context, cgsnapshot, snapshots):
        self._look()
        return {}, []

    def create_group_from_src(self, context, group, volumes,
                              group_snapshot=None, snapshots=None,
                              source_group=None, source_vols=None):
        self._look()

    def initialize_connection(self, volume, connector, **kwargs):
        return {'driver_volume_type': 'rbd', 'data': {'name': 'v1'}}


class TestOperations(HoldsTest):

    def setUp(self):
        super().setUp()
        self.backend = driver.wrapped(Backend)(self.host)
        self.patch(reading.group_types, 'get_default_cgsnapshot_type',
                   lambda: {'id': 'cg'})

    def group(self, *names, kind='other'):
        return self.backend.create_group_snapshot(
            None, types.SimpleNamespace(group_type_id=kind),
            [snapshot(volume(f'v{n}'), name) for n, name in enumerate(names)])

    def test_all_that_read_a_volume_hold_it(self):
        self.patch(reading.objects.Volume, 'get_by_id',
                   lambda _context, _id: volume())
        backup = types.SimpleNamespace(snapshot_id=None, volume_id='v1')
        for work in (
                lambda: self.backend.create_snapshot(snapshot(volume())),
                lambda: self.backend.create_cloned_volume(volume('v2'),
                                                          src_vref=volume()),
                lambda: self.backend.copy_volume_to_image(None, volume(),
                                                          None, {}),
                lambda: self.backend.get_backup_device(None, backup),
                lambda: self.backend.create_group_from_src(
                    None, None, [], source_vols=[volume()])):
            self.backend.seen.clear()
            self.host.calls.clear()
            work()
            self.assertEqual([({'v1'}, set())], self.backend.seen)
            self.assertEqual([('begin', 'v1'), ('end', 'v1')],
                             self.host.calls)

    def test_a_volume_that_cinder_backup_reads_in_use_is_held_until_then(self):
        self.backend = driver.wrapped(Backend)(self.host, True)
        self.patch(reading.objects.Volume, 'get_by_id',
                   lambda _context, _id: volume())
        self.patch(holds, '_RENEWED', 0.001)
        row = mock.Mock(snapshot_id=None, volume_id='v1', status='creating')
        self.patch(reading.objects.Backup, 'get_by_id',
                   lambda _context, _id: row)
        for ends, error in (({'status': 'available'}, None),
                            ({'status': 'available'}, 'may lack')):
            row.status, row.fail_reason = 'creating', None
            self.backend.get_backup_device(None, row)
            self.assertEqual(1, len(self.host.held['v1']))
            if error:
                self.host.held.clear()
            row.configure_mock(**ends)
            [thread] = [each for each in threading.enumerate()
                        if each.name == 'diffcache-hold-until']
            thread.join()
            self.assertFalse(self.host.held.get('v1'))
            self.assertEqual(error is not None, row.status == 'error')
            self.assertIn(error or '', row.fail_reason or '')

    def test_what_was_made_without_a_hold_is_known_to_cinder(self):
        def lapse():
            self.host.held.clear()
            return {'provider_id': 's1'}

        made = mock.Mock(volume=volume())
        self.refused(lambda: reading._create_snapshot(None, lapse, made))
        made.update.assert_called_once_with({'provider_id': 's1'})
        made.save.assert_called_once_with()
        made = mock.Mock()
        self.refused(lambda: reading._create_cloned_volume(
            None, lapse, made, volume()))
        made.update.assert_called_once_with({'provider_id': 's1'})

    def test_a_backup_of_a_snapshot_reads_no_volume_in_use(self):
        backup = types.SimpleNamespace(snapshot_id='s1', volume_id='v1')
        with mock.patch.object(reading.objects.Volume, 'get_by_id') as get:
            self.backend.get_backup_device(None, backup)
        get.assert_not_called()

    def test_a_backup_that_is_refused_is_not_in_creation_for_ever(self):
        self.host.errors = {'begin': DOWN}
        found = mock.Mock(**vars(volume()), status='backing-up',
                          previous_status='in-use')
        self.patch(reading.objects.Volume, 'get_by_id',
                   lambda _context, _id: found)
        backup = mock.Mock(snapshot_id=None, volume_id='v1',
                           status='creating')
        text = self.refused(
            lambda: self.backend.get_backup_device(None, backup))
        self.assertEqual('error', backup.status)
        self.assertIn('written back', text)
        backup.save.assert_called_once_with()
        self.assertEqual(('in-use', 'error_backing-up'), (
            found.status, found.previous_status))
        found.save.assert_called_once_with()

    def test_groups_that_the_manager_would_snapshot_one_by_one(self):
        found = self.group('s1', 's2')
        self.assertEqual([({'v0', 'v1'}, {'v0', 'v1'})] * 2,
                         self.backend.seen)
        self.assertEqual(({'status': 'available'}, [
            {'status': 'available', 'provider_id': name, 'id': name}
            for name in ('s1', 's2')]), found)
        self.assertEqual(set(), self.host.queued)

    def test_one_of_a_group_that_fails(self):
        with self.assertLogs(reading.LOG, 'ERROR'):
            group, each = self.group('bad', 's2')
        self.assertEqual({'status': 'error'}, group)
        self.assertEqual(['error', 'available'],
                         [one['status'] for one in each])

    def test_backends_with_groups_of_one_moment_queue_nothing(self):
        self.backend.enabled = True
        self.group('s1', 's2')
        self.assertNotIn(('queue', 'v0'), self.host.calls)

    def test_consistency_groups_of_before(self):
        self.assertRaises(NotImplementedError, self.group, 's1', kind='cg')
        self.backend.create_cgsnapshot(None, None, [snapshot(volume())])
        self.assertEqual([({'v1'}, {'v1'})], self.backend.seen)

    def test_writes_that_did_not_wait_to_the_end(self):
        create = Backend.create_snapshot

        def slow(backend, snapshot):
            self.host.queued.discard('v1')
            return create(backend, snapshot)

        self.patch(Backend, 'create_snapshot', slow)
        self.backend = driver.wrapped.__wrapped__(Backend)(self.host)
        text = self.refused(lambda: self.group('s1', 's2'))
        self.assertIn('volume v1 on host h1', text)
        self.assertIn('queue_timeout', text)

    def test_connections_are_marked(self):
        self.patch(connections, 'specs_of', lambda _volume: {'a': 'b'})
        found = self.backend.initialize_connection(volume(), {})
        self.assertEqual({'name': 'v1', volume_specs.MARK: {
            'held': True, 'specs': {'a': 'b'}, 'snapshots': 'cinder'}},
            found['data'])

    def test_who_makes_snapshots_of_volumes_in_use(self):
        for kind, options, expected in (
                (nfs.NfsDriver, {'nfs_snapshot_support': True}, True),
                (nfs.NfsDriver, {'nfs_snapshot_support': False}, False),
                (quobyte.QuobyteDriver, {}, True), (Backend, {}, False)):
            made = object.__new__(driver.wrapped(kind))
            made.configuration = types.SimpleNamespace(safe_get=options.get)
            self.assertEqual(expected, connections.are_snapshots_novas(made))
