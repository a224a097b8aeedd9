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
"""Long saves that are killed at random moments, and go on where they were."""

import mmap
import os
import random
import signal
import struct
import time

from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions import version_store
from tests import base

_MIB = 1 << 20
# So much is read before a save writes down how far it is.
_INTERVAL = 64 * _MIB
_SIZE = 160 * _MIB
_TOLD = struct.Struct('qq')


class TestKilled(base.TestCase):

    alpha = 0.0

    def setUp(self):
        super().setUp()
        self.noise = random.Random(3)
        self.disk = self.write_file('disk', b'')
        self.store = version_store.VersionStore(store_access.StoreAccess(
            file.FileStore(self.directory / 'store')))
        self.shared = mmap.mmap(-1, _TOLD.size)
        self.addCleanup(self.shared.close)

    def save(self, token):
        """Save, and let others see how far that is."""
        # One that was killed after its commit is not read again at all.
        skipped = _SIZE

        def gone_on(message, *arguments):
            nonlocal skipped
            if 'Resumed reading' in message:
                skipped = arguments[1]

        def progress(done, _total):
            nonlocal skipped
            skipped = 0
            _TOLD.pack_into(self.shared, 0, 0, done)

        saving.LOG.info = gone_on
        self.store.save([version_store.Disk(self.disk, 'a', format='raw')],
                        alpha=self.alpha, token=token,
                        job=version_store.Job(progress))
        _TOLD.pack_into(self.shared, 0, skipped, 0)

    def killed(self, token, seconds):
        """Whether a save that is killed after a while did not end before."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.save(token)
                status = 0
            finally:
                os._exit(status)
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        self.assertIn(status, (0, signal.SIGKILL))
        return status != 0

    def test_no_more_is_read_again_than_was_not_written_down(self):
        kills, usual = 0, 1.0
        while kills < 12:
            self.disk.write_bytes(self.noise.randbytes(_SIZE))
            token, furthest = str(self.noise.random()), 0
            started = time.monotonic()
            while self.killed(token, self.noise.uniform(0, usual)):
                kills += 1
                furthest = max(furthest, _TOLD.unpack(self.shared)[1])
                _TOLD.pack_into(self.shared, 0, 0, 0)
                # Sooner or later one has to get to the end.
                usual *= 1.1
            usual = min(usual, time.monotonic() - started)
            skipped, _ = _TOLD.unpack(self.shared)
            self.assertGreaterEqual(skipped, furthest - _INTERVAL)
            output = self.directory / 'out'
            self.store.restore(self.store.versions()[-1].id, output, 'raw')
            self.assertEqual(self.disk.read_bytes(), output.read_bytes())
            # Pieces that are alike in other versions would be left out.
            self.store.delete([self.store.versions()[-1].id])
            self.store.prune()
        self.assertTrue(self.store.verify().intact)


class TestKilledWithAlpha(TestKilled):
    """What is new waits in a spool until all of the disk was looked at."""

    alpha = 1.0
