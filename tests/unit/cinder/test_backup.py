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
import io
import os
import types
from unittest import mock

from tests.unit.cinder import needs  # Before Cinder, which may be missing.

from cinder import exception
from cinder.objects import fields
from cinder.volume import volume_utils

from diffcache_openstack.cinder import backup
from diffcache_openstack.common import exceptions

BACKUP = '322bde76-949e-4c77-a812-310ab1466fc5'


class Backup(types.SimpleNamespace):
    """A row of Cinder's."""

    def __init__(self):
        super().__init__(id=BACKUP, volume_id='v', project_id='p',
                         display_name=None,
                         status=fields.BackupStatus.CREATING)
        self.changed = None

    def as_read_deleted(self):
        return contextlib.nullcontext()

    def refresh(self):
        if self.changed:
            self.status = self.changed


class TestDriver(needs.CinderTest):

    def setUp(self):
        super().setUp()
        self.conductor, self.agent = mock.Mock(), mock.Mock()
        for target, name, value in (
                (backup.conductors, 'connect', lambda _api: self.conductor),
                (backup.volume_client, 'VolumeClient',
                 lambda *_args, **_options: self.agent),
                (backup, '_AGAIN_S', 0), (backup, '_PROGRESS_S', 0),
                (volume_utils, 'notify_about_backup_usage', mock.Mock())):
            self.patch(target, name, value)
        self.driver = backup.VersionStoreDriver(
            types.SimpleNamespace(request_id=None))
        self.driver.get_metadata = lambda _volume_id: '{"version": 2}'
        self.put = self.driver.put_metadata = mock.Mock()
        self.agent.host.return_value = 'h1'
        self.conductor.begin_backup.side_effect = ['t1', None]
        self.conductor.begin_restore.return_value = ('t1', '{"version": 2}')
        self.row = Backup()
        self.volume = self.directory / 'volume'
        self.volume.write_bytes(b'data')

    def back_up(self):
        with self.volume.open('rb') as stream:
            self.driver.backup(self.row, stream)

    def restore(self):
        self.row.status = fields.BackupStatus.RESTORING
        with self.volume.open('wb') as stream:
            self.driver.restore(self.row, 'w', stream, False)

    def test_a_backup_has_its_id_and_metadata(self):
        self.back_up()
        _context, new, host = self.conductor.begin_backup.call_args.args
        self.assertEqual((BACKUP, 'v', 'p', '{"version": 2}', 'h1'),
                         (new.id, new.volume_id, new.project_id,
                          new.volume_metadata, host))
        self.assertEqual('t1', self.agent.perform.call_args.args[0])

    def test_it_is_begun_again_until_the_conductor_has_it(self):
        """Busy: others write. The agent ends, and its task with it."""
        self.conductor.begin_backup.side_effect = [
            exceptions.Busy('another task'), 't1', 't2', 't2', None]
        self.agent.perform.side_effect = [
            exceptions.ServiceUnavailable('gone'),
            exceptions.Cancelled('restarted'), {}]
        self.back_up()
        self.assertEqual(['t1', 't2', 't2'], [
            call.args[0] for call in self.agent.perform.call_args_list])

    def test_an_agent_that_stays_away_fails_it(self):
        self.set('restart_timeout', 0, 'diffcache')
        self.agent.host.side_effect = exceptions.ServiceUnavailable('gone')
        error = self.assertRaises(exception.BackupDriverException,
                                  self.back_up)
        self.assertIn('volume v: gone', str(error))
        self.assertRaises(exception.BackupDriverException,
                          self.driver.check_for_setup_error)

    def test_a_forced_deletion_ends_it(self):
        def perform(_task_id, _volume, progress):
            self.row.changed = fields.BackupStatus.DELETING
            progress(1, 2)

        self.agent.perform.side_effect = perform
        self.back_up()
        self.conductor.delete_backup.assert_called_once_with(
            mock.ANY, BACKUP, 'p')
        self.assertTrue(self.driver.support_force_delete)

    def test_one_that_was_deleted_before_it_was_complete(self):
        def perform(_task_id, _volume, progress):
            self.row.changed = fields.BackupStatus.DELETING

        self.agent.perform.side_effect = perform
        self.back_up()
        self.conductor.delete_backup.assert_called_once_with(
            mock.ANY, BACKUP, 'p')

    def test_a_deletion_ends_waiting_for_others(self):
        self.conductor.begin_backup.side_effect = exceptions.Busy('others')
        self.row.changed = fields.BackupStatus.DELETING
        self.back_up()
        self.agent.perform.assert_not_called()

    def test_a_volume_is_restored_by_a_descriptor_that_can_be_read(self):
        def perform(_task_id, volume, progress):
            os.pwrite(volume, b'other', 0)
            self.read = os.pread(volume, 5, 0)

        self.agent.perform.side_effect = perform
        self.restore()
        self.assertEqual(b'other', self.read)
        self.put.assert_called_once_with('w', '{"version": 2}')

    def test_a_restore_is_cancelled_by_the_status(self):
        def perform(_task_id, _volume, progress):
            self.row.changed = fields.BackupStatus.ERROR
            progress(1, 2)

        self.agent.perform.side_effect = perform
        self.assertRaises(exception.BackupRestoreCancel, self.restore)
        self.put.assert_not_called()

    def test_a_volume_without_a_descriptor_is_refused(self):
        volume = mock.Mock()
        volume.fileno.side_effect = io.UnsupportedOperation('fileno')
        error = self.assertRaises(exception.BackupDriverException,
                                  self.driver.backup, self.row, volume)
        self.assertIn('RBD', str(error))
        self.conductor.begin_backup.assert_not_called()

    def test_errors_are_cinders(self):
        refused = exceptions.Forbidden('may not')
        for name, call in (
                ('begin_restore', self.restore),
                ('delete_backup',
                 lambda: self.driver.delete_backup(self.row)),
                ('verify_backup',
                 lambda: self.driver.import_record(self.row, {}))):
            getattr(self.conductor, name).side_effect = refused
            error = self.assertRaises(exception.BackupDriverException, call)
            self.assertIn('may not', str(error))


class TestProcesses(needs.CinderTest):

    def test_cinders_own_tests_pass(self):
        self.run_module('testtools.run', 'tests.unit.cinder.backup_manager')

    def test_nothing_that_waits_stops_the_hub(self):
        self.run_module('tests.unit.cinder.patched')
