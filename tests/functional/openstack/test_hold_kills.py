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
"""Services that are killed while Cinder reads a volume in write-back.

What Cinder makes is whole, or it failed; the volume returns to write-back; and
a backup that is deleted leaves no version.
"""

import contextlib
import os
import pathlib
import signal
import time

from tests.functional.openstack import test_holds
from tests.functional.openstack import test_volumes
from tests.functional.openstack import test_write_back

from onemachine.services import database  # Whose folder those add.

_ENDED = ('available', 'error')


class TestKills(test_holds.HoldsTest):

    def setUp(self):
        super().setUp()
        self.kept = self.volume(self.volume_type(test_write_back.WRITE_BACK))
        self.writing(self.kept)
        self.files = pathlib.Path(self.trial.where.data, 'cinder', 'files')
        self.services = ('cinder-volume', 'diffcache-conductor',
                         f'{self.host}-agent',
                         f'{self.host}-ssd-cache')

    @contextlib.contextmanager
    def holding(self):
        """Copies of volumes do not begin meanwhile."""
        wait = self.files / 'wait'
        wait.touch()
        try:
            yield
        finally:
            wait.unlink()

    def is_in_write_back(self):
        return self.cached()[self.kept]['mode'] == 'write-back'

    def kill(self, name):
        """Kill a service with all of its processes, and start it again."""
        found = [self.trial.processes.pid(name)]
        for pid in found:
            for each in pathlib.Path(f'/proc/{pid}/task').iterdir():
                found += map(int, (each / 'children').read_text().split())
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.trial.up()

    def while_it_is_held(self, name, make):
        """Kill a service while an operation holds the volume.

        :param make: begins the operation
        :returns: what that returns, and the last record before it
        """
        least = self.durable()
        with self.holding():
            made = make()
            self.wait_until(lambda: not self.is_in_write_back(),
                            'the volume is held')
            self.kill(name)
        return made, least

    def ended(self, name, get, made):
        """Wait until Cinder has made something; return whether it did."""
        begun = time.monotonic()
        found = self.wait_until(
            lambda: (now := get(made)).status in _ENDED and now,
            f'it ended after {name} was killed', test_volumes.SECONDS)
        self.wait_until(self.is_in_write_back, 'it is in write-back again')
        self.assertEqual('in-use', self.storage.get_volume(self.kept).status)
        print(f'{self.id()}: {name} killed: {found.status} and in write-back'
              f' {time.monotonic() - begun:.1f} s later')
        return found.status == 'available'

    def test_snapshots(self):
        for name in self.services:
            made, least = self.while_it_is_held(
                name, lambda: self.storage.create_snapshot(
                    volume_id=self.kept, force=True).id)
            if self.ended(name, self.storage.get_snapshot, made):
                self.assert_whole(self.files / f'snapshot-{made}', least)
            self._delete_snapshot(self.storage.get_snapshot(made))

    def test_clones(self):
        for name in self.services:
            made, least = self.while_it_is_held(
                name, lambda: self.storage.create_volume(
                    size=1, source_volume_id=self.kept).id)
            if self.ended(name, self.storage.get_volume, made):
                self.assert_whole(self.files / f'volume-{made}', least)
            self._delete_volume(made)

    def test_backups(self):
        target = self.volume()
        self.addCleanup(self.delete_copies)
        # cinder-backup does nothing while the volume is held; what it is
        # called for then it does once started, for a backup that failed.
        cases = [*((True, name) for name in self.services),
                 *((False, name) for name in (
                     'cinder-backup', 'repository-agent',
                     'diffcache-conductor'))]
        for is_held, name in cases:
            least = self.durable()
            with self.holding():
                made = self.storage.create_backup(volume_id=self.kept,
                                                  force=True)
                self.wait_until(lambda: not self.is_in_write_back(),
                                'the volume is held')
                if is_held:
                    self.kill(name)
            if is_held and name == 'cinder-volume':
                # It waits for the other one, until it is started again.
                self.kill('cinder-backup')
            if not is_held:
                self.wait_until(lambda: self.versions(made),
                                'its version is begun')
                self.kill(name)
            if self.ended(name, self.storage.get_backup, made.id):
                self.storage.restore_backup(made, volume_id=target)
                self.storage.wait_for_status(
                    self.storage.get_volume(target), 'available',
                    failures=['error_restoring'], wait=test_volumes.SECONDS)
                self.assert_whole(self.files / f'volume-{target}', least)
            self.storage.delete_backup(made)
            self.storage.wait_for_delete(made, wait=test_volumes.SECONDS)
            self.wait_until(lambda: not self.versions(made),
                            'its version is gone', test_volumes.SECONDS)

    def delete_copies(self):
        """Delete what Cinder forgot to read a backup from."""
        for each in self.storage.volumes():
            if each.name == f'backup-vol-{self.kept}':
                self.storage.reset_volume_status(each, 'error')
                self._delete_volume(each.id)

    def versions(self, backup):
        """The states of the versions that there are of a backup."""
        return database.Database(self.trial.given).execute(
            'SELECT state FROM diffcache.versions'
            f" WHERE id = '{backup.id}'")
