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
"""Volumes that are files on a share, whose snapshots Nova makes.

They need an OpenStack that was brought up with ``--volumes``; its share is a
bind mount, see ``tools/openstack.d/volumes_for_tests.py``.
"""

import hashlib

from tests.functional.openstack import test_volumes

REASON = 'its snapshots are made by Nova'


class TestShares(test_volumes.VolumeTest):

    def setUp(self):
        super().setUp()
        where = self.trial.where
        self.share = where.data / 'nfs'
        # Where Nova mounts it, unless something is mounted there.
        name = hashlib.md5(f'centre:{self.share}'.encode(),
                           usedforsecurity=False).hexdigest()
        mounted = where.host / 'state/mnt' / name
        self.trial.run(
            *self.trial.processes.enter(self.host), 'sh', '-c',
            'mkdir -p "$1"; mountpoint -q "$1" || mount --bind "$0" "$1"',
            self.share, mounted)

    def test_a_snapshot_of_a_volume_in_use(self):
        kind = self.volume_type(test_volumes.TYPE)
        self.storage.update_type_extra_specs(
            self.storage.find_type(kind), volume_backend_name='nfs')
        volume = self.volume(kind)
        server = self.worker()
        before = self.tally(self.host)['uncached_volumes'].get(REASON, 0)
        self.attach(server, volume)
        self.assertNotIn(volume, self.cached())
        # Each time that Nova needs the driver of the volume.
        self.assertGreater(
            self.tally(self.host)['uncached_volumes'][REASON], before)
        self.guest_said(server, 'round=10')
        made = self.storage.create_snapshot(volume_id=volume, force=True)
        self.storage.wait_for_status(made, 'available',
                                     wait=test_volumes.SECONDS)
        # The guest's writes go to the file that Nova has put in front.
        [front] = self.share.glob(f'volume-{volume}.{made.id}')
        self.assertIn(str(front.name), self.document(server))
        self.assertEqual('0', self.guest_said(server, 'done')['wrong'])
        self.storage.delete_snapshot(made)
        self.storage.wait_for_delete(made, wait=test_volumes.SECONDS)
        self.detach(server, volume)
