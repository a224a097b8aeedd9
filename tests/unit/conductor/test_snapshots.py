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
import re
from unittest import mock

from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor import snapshots
from diffcache_openstack.conductor import volume_caches
from tests import base


def begun(kind='snapshot', **payload):
    """What Cinder sends when it begins a snapshot or a backup."""
    return {'event_type': f'{kind}.create.start', 'message_id': 'm',
            'publisher_id': f'{kind}.centre@files', 'payload': {
                'volume_id': 'v1', f'{kind}_id': 'n1', 'status': 'creating',
                **payload}}


class TestSnapshots(base.TestCase):

    def setUp(self):
        super().setUp()
        self.volumes = mock.create_autospec(volume_caches.VolumeCaches,
                                            instance=True)
        self.snapshots = snapshots.Snapshots(self.volumes)

    def test_the_volume_is_flushed(self):
        for kind in ('snapshot', 'backup'):
            with self.assertLogs(snapshots.LOG.logger, 'INFO') as logs:
                self.snapshots.begun(begun(kind))
            self.volumes.flush_volume.assert_called_once_with(mock.ANY, 'v1')
            self.assertIn(f'Volume v1 was flushed for {kind} n1',
                          logs.output[0])
            self.volumes.flush_volume.reset_mock()

    def test_a_backup_of_a_snapshot_reads_no_volume(self):
        self.snapshots.begun(begun('backup', snapshot_id='s1'))
        self.volumes.flush_volume.assert_not_called()
        self.snapshots.begun(begun('backup', snapshot_id=None))
        self.volumes.flush_volume.assert_called_once()

    def test_a_volume_in_no_cache(self):
        self.volumes.flush_volume.side_effect = exceptions.NotFound('none')
        with self.assertNoLogs(snapshots.LOG.logger, 'INFO'):
            self.snapshots.begun(begun())
        self.volumes.flush_volume.assert_called_once()

    def test_a_host_that_does_not_answer(self):
        self.volumes.flush_volume.side_effect = (
            exceptions.ServiceUnavailable('down'))
        with self.assertLogs(snapshots.LOG.logger, 'ERROR') as logs:
            # It is processed, and does not come again.
            self.snapshots.begun(begun())
        for text in ('snapshot n1', 'openstack volume cache flush v1',
                     'down'):
            self.assertIn(text, logs.output[0])

    def test_which_notifications_are_processed(self):
        [pattern] = self.snapshots.handlers()
        for name in ('snapshot.create.start', 'backup.create.start'):
            self.assertTrue(re.match(pattern, name))
        for name in ('snapshot.create.end', 'group_snapshot.create.start',
                     'snapshot.delete.start', 'volume.create.start'):
            self.assertFalse(re.match(pattern, name))
