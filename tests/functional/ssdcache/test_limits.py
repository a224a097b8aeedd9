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
"""What volumes may do per second, as their clients see it."""

import json
import subprocess
import time

from diffcache_openstack.ssdcache import control
from testing import nbd
from tests.functional.ssdcache import test_attach
from tests import waiting

# Reads per second, and how many a client makes. A tenth begins at once, and
# one more.
RATE, READS = 100, 60
LEAST_S = (READS - RATE // 10 - 1) / RATE


class TestLimits(test_attach.AttachTest):

    def read(self, uri, count=READS):
        """Return the seconds that as many reads at once took."""
        with nbd.Client(uri) as client:
            begin = time.monotonic()
            for number in range(count):
                client.send(nbd.READ, number % 16 * 4096, 4096)
            for _ in range(count):
                client.receive()
            return time.monotonic() - begin

    def test_reads_begin_at_the_rate_cached_or_not(self):
        uri = self.attach('a', rates={'read_iops_sec': RATE})
        self.assertEqual({'read_iops_sec': RATE}, self.status('a')['rates'])
        self.assertTrue(self.io(uri, 'write -P 7 0 64k'))
        for _ in range(2):
            self.assertGreaterEqual(self.read(uri), LEAST_S)
        self.assertGreater(self.status('a')['hits'], 0)
        # The record of the volume has it.
        self.assertEqual({'a': uri}, self.kill())
        self.assertGreaterEqual(self.read(uri), LEAST_S)

    def test_another_volume_does_not_wait_and_changes_concern_what_waits(self):
        # So few bytes that nothing begins again within the test.
        one = self.attach('a', rates={'read_bytes_sec': 1})
        other = self.attach('b')
        with nbd.Client(one) as client:
            client.read(0, 4096)
            client.send(nbd.READ, 4096, 4096)
            self.read(other)
            self.assertTrue(self.io(one, 'write -P 7 0 64k', 'flush'))
            done = subprocess.run(
                self.command('set', '--control', self.control, 'a',
                             '--rates', 'none', '-f', 'json'),
                capture_output=True, text=True, timeout=waiting.SECONDS)
            self.assertEqual((0, ''), (done.returncode, done.stderr))
            found = json.loads(done.stdout)['volumes']['a']
            self.assertEqual({}, found['rates'])
            client.receive()

    def test_a_limit_that_is_unknown_is_refused(self):
        error = self.assertRaises(control.CommandRefused, self.attach, 'a',
                                  rates={'iops': 5})
        self.assertIn('there is no limit iops', str(error))
