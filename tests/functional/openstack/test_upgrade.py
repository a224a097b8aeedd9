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
"""An upgrade of OpenStack to the next series under running guests.

It needs an OpenStack that was brought up with ``--volumes``, and leaves the
next series: ``tools/test series SERIES`` runs it last.
"""

import os
import pathlib
import subprocess

from tests.functional.openstack import machine
from tests.functional.openstack import test_nova_lazy
from tests.functional.openstack import test_volumes
from tests.functional.openstack import test_write_back

UPGRADE = 'DIFFCACHE_TRIAL_UPGRADE'
# So thin a link that the image still arrives when nova-compute is replaced.
WAN_MBITS = 4
# What an upgrade of OpenStack leaves alone on a host.
KEPT = ('agent', 'lazy', 'ssd-cache', 'libvirtd')
_TOOL = pathlib.Path(__file__).parents[3] / 'tools' / 'openstack'
_SECONDS = 1800


class WritingTest(test_volumes.VolumeTest):
    """Has a server whose guest writes to a volume in write-back."""

    def setUp(self):
        super().setUp()
        self.volume_id = self.volume(
            self.volume_type(test_write_back.WRITE_BACK))
        self.writing = self.working(
            test_volumes.WORK.replace('MORE', test_volumes.NOT_GROWN))
        self.attach(self.writing, self.volume_id)
        self.guest_said(self.writing, 'round=10')

    def assert_writes_until_grown(self):
        """All that the guest read was right; its volume has what it left."""
        self.storage.extend_volume(self.volume_id, 2)
        done = self.guest_said(self.writing, 'done')
        self.assertEqual('0', done['wrong'])
        self.detach(self.writing, self.volume_id)
        self.assertNotIn(self.volume_id, self.cached())
        self.assertEqual(done['left'], self.sum(self.volume_id))


class TestNextSeries(test_nova_lazy.ReadingTest, WritingTest):
    """A guest on a lazy disk beside one that writes to a cached volume."""

    def setUp(self):
        if not os.environ.get(UPGRADE):
            self.skipTest(f'{UPGRADE} is not set: it upgrades what is up')
        super().setUp()

    def processes(self, *kinds):
        """Return the PIDs of all hosts' processes of some kinds, by name."""
        names = (f'{host}-{kind}' for host in self.trial.hosts
                 for kind in kinds)
        return {name: self.trial.processes.pid(name) for name in names}

    def up(self, *words):
        """Bring OpenStack up in another way, and look at that from now on."""
        state = self.trial.where.state
        done = subprocess.run(
            [_TOOL, 'up', '--state', state, *words], text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=_SECONDS)
        self.assertEqual(0, done.returncode, done.stdout)
        type(self).trial = machine.trial.Trial(state)

    def test_guests_stay(self):
        kept, replaced = self.processes(*KEPT), self.processes('nova')
        self.assert_linked(self.image_id)
        self.addCleanup(self.up, '--wan', str(self.wan))
        self.up('--series', self.trial.where.series.upgrade_to,
                '--wan', str(WAN_MBITS))
        self.assertEqual(kept, self.processes(*KEPT))
        for name, pid in self.processes('nova').items():
            self.assertNotIn(pid, (None, replaced[name]))
        self.assert_reads()
        self.assertEqual(1, self.boots(self.server))
        self.assert_writes_until_grown()
        with self.assert_boots_again(self.server):
            self.compute.reboot_server(self.server, 'HARD')
            self.wait_for_status(self.server, 'ACTIVE')
        self.wait_until_whole(self.image_id, self.path)
