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
"""Cinder's own tests of its backup manager, with this suite's driver.

In a process of their own: Cinder's tests begin with eventlet, and these of
this suite with threads. :mod:`.test_backup` runs them.
"""

from unittest import mock

from cinder.tests.unit.backup import test_backup  # Patches, first of all.

from cinder.backup import driver
from cinder import exception
from cinder.objects import fields
from cinder.tests.unit.backup import fake_service

from diffcache_openstack.cinder import backup
from diffcache_openstack.common import exceptions


class _WithDriver:
    """Sets the driver; agent and conductor do what they are asked."""

    def setUp(self):
        conductor = self.conductor = mock.Mock()
        # What is begun is done when it is asked for again.
        conductor.begin_backup.side_effect = ['task', None] * 100
        conductor.begin_restore.return_value = ('task', '')
        for patch in (
                # The class that Cinder's tests name.
                mock.patch.object(fake_service, 'FakeBackupService',
                                  backup.VersionStoreDriver),
                mock.patch.object(backup.conductors, 'connect',
                                  return_value=conductor),
                mock.patch.object(backup.volume_client, 'VolumeClient'),
                mock.patch.object(backup, '_readable'),
                mock.patch.object(driver.BackupMetadataAPI, 'get',
                                  return_value='{}')):
            patch.start()
            self.addCleanup(patch.stop)
        super().setUp()


class BackupTestCase(_WithDriver, test_backup.BackupTestCase):
    """The manager's tests."""

    def test_delete_backup_with_error(self):
        """Cinder's has its fake service fail by the backup's name."""
        self.conductor.delete_backup.side_effect = \
            exceptions.ServiceUnavailable('down')
        status = fields.BackupStatus
        kept = self._create_backup_db_entry(
            status=status.DELETING,
            volume_id=self._create_volume_db_entry(size=1))
        self.assertRaises(exception.BackupDriverException,
                          self.backup_mgr.delete_backup, self.ctxt, kept)
        kept.refresh()
        self.assertEqual(status.ERROR, kept.status)


class BackupAPITestCase(_WithDriver, test_backup.BackupAPITestCase):
    """The API's tests."""
