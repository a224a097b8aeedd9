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
import fcntl
import os
import subprocess
import sys
import threading
import time
import types

from diffcache_openstack.glance import fills
from tests import base
from tests import waiting

IMAGE = 'c1b1a3f2-0000-4000-8000-000000000001'
DATA = bytes(range(256)) * 5000
RATE = 100.0


class FillsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.fills = fills.Fills(self.directory, RATE, self.clock)

    def clock(self):
        return self.now

    def follow(self, offset=0):
        return b''.join(self.fills.follow(IMAGE, len(DATA), offset))

    def test_one_writes_and_it_is_gone_afterwards(self):
        self.assertFalse(self.fills.running(IMAGE))
        with self.fills.begin(IMAGE) as file:
            file.write(b'x')
            self.assertTrue(self.fills.running(IMAGE))
            with self.fills.begin(IMAGE) as second:
                self.assertIsNone(second)
            self.assertTrue(self.fills.running(IMAGE))
        self.assertFalse(self.fills.running(IMAGE))
        self.assertEqual([], list(self.directory.iterdir()))

    def test_followers_read_along(self):
        found, begun = [], threading.Barrier(5, timeout=60)

        def follow():
            pieces = self.fills.follow(IMAGE, len(DATA))
            first = next(pieces)
            begun.wait()
            found.append(first + b''.join(pieces))

        threads = [threading.Thread(target=follow) for _ in range(4)]
        with self.fills.begin(IMAGE) as file:
            for thread in threads:
                thread.start()
            file.write(DATA[:1000])
            file.flush()
            begun.wait()
            for start in range(1000, len(DATA), 100_000):
                file.write(DATA[start:start + 100_000])
                file.flush()
        for thread in threads:
            thread.join()
        # Whoever had opened it reads it to its end, though its name is gone.
        self.assertEqual([DATA] * 4, found)

    def test_from_an_offset(self):
        with self.fills.begin(IMAGE) as file:
            file.write(DATA)
            file.flush()
            self.assertEqual(DATA[777:], self.follow(777))

    def test_a_leader_that_stops(self):
        found = []
        with self.fills.begin(IMAGE) as file:
            file.write(DATA[:1000])
            file.flush()
            pieces = self.fills.follow(IMAGE, len(DATA))
            found.append(next(pieces))
        error = self.assertRaises(fills.BrokenOff, next, pieces)
        self.assertEqual((1000, DATA[:1000]), (error.offset, found[0]))

    def test_a_leader_that_was_killed(self):
        path = str(self.fills.path(IMAGE))
        program = ('import fcntl, sys, time\n'
                   'file = open(sys.argv[1], "wb")\n'
                   'fcntl.flock(file, fcntl.LOCK_EX)\n'
                   'file.write(b"x" * 10)\n'
                   'file.flush()\n'
                   'print("go", flush=True)\n'
                   'time.sleep(600)\n')
        with subprocess.Popen([sys.executable, '-c', program, path],
                              stdout=subprocess.PIPE) as leader:
            leader.stdout.readline()
            self.assertTrue(self.fills.running(IMAGE))
            leader.kill()
        self.assertFalse(self.fills.running(IMAGE))
        self.assertRaises(fills.BrokenOff, self.follow)
        # The next one begins anew.
        with self.fills.begin(IMAGE) as file:
            file.write(DATA)
            file.flush()
            self.assertEqual(DATA, self.follow())

    def test_a_leader_that_is_slow(self):
        """Its client may wait for ever; no other request does."""
        with self.fills.begin(IMAGE) as file:
            file.write(DATA[:1000])
            file.flush()
            self.assertTrue(self.fills.lead_or_follow(IMAGE))
            pieces = self.fills.follow(IMAGE, len(DATA))
            self.assertEqual(DATA[:1000], next(pieces))
            file.write(DATA[1000:2000])
            file.flush()
            # Enough for a tenth of that time.
            self.now += fills.PACE_SECONDS * 10 / 3 + 1
            self.assertEqual(DATA[1000:2000], next(pieces))
            error = self.assertRaises(fills.BrokenOff, next, pieces)
            self.assertEqual(2000, error.offset)
            self.assertIn('slow', str(error))
            # It is not followed again.
            self.assertFalse(self.fills.lead_or_follow(IMAGE))
        with self.fills.begin(IMAGE):
            self.path_changes_its_inode()

    def path_changes_its_inode(self):
        """Another leader is followed, whatever an earlier one was."""
        self.fills._slow[IMAGE] = (-1, self.now + 1)
        self.assertTrue(self.fills.lead_or_follow(IMAGE))
        self.assertEqual({}, self.fills._slow)

    def test_another_leader_whose_file_got_the_number_of_a_slow_one(self):
        with self.fills.begin(IMAGE) as file:
            number = os.fstat(file.fileno()).st_ino
            self.fills._slow[IMAGE] = (number, self.now + 1)
            self.assertFalse(self.fills.lead_or_follow(IMAGE))
            self.now += 1
            self.assertTrue(self.fills.lead_or_follow(IMAGE))

    def test_a_leader_that_is_fast_enough(self):
        with self.fills.begin(IMAGE) as file:
            progress = self.fills.progress(file)
            for _ in range(3):
                file.write(DATA[:3000])
                file.flush()
                self.now += fills.PACE_SECONDS
                self.assertFalse(progress.is_slow())
            self.now += fills.PACE_SECONDS - 1
            self.assertFalse(progress.is_slow())
            self.now += 1
            self.assertTrue(progress.is_slow())
            progress.end()
            self.now += fills.PACE_SECONDS
            self.assertFalse(progress.is_slow())

    def test_nothing_to_follow(self):
        self.assertRaises(fills.BrokenOff, self.follow)

    def test_of_many_at_once_one_leads(self):
        gate, leaders = threading.Barrier(8), []

        def ask():
            gate.wait()
            if self.fills.lead_or_follow(IMAGE):
                leaders.append(None)
                return
            with self.fills.begin(IMAGE) as file:
                leaders.append(file)
                done.wait(60)

        done = threading.Event()
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        waiting.until(lambda: len(leaders) == 8, 'all to lead or follow')
        done.set()
        for thread in threads:
            thread.join()
        self.assertEqual(7, leaders.count(None))

    def test_one_who_does_not_begin_is_replaced(self):
        self.patch(fills, 'INTENT_SECONDS', 0.2)
        self.assertFalse(self.fills.lead_or_follow(IMAGE))
        self.assertFalse(self.fills.lead_or_follow(IMAGE))

    def test_a_damaged_intent_is_no_obstacle(self):
        self.patch(fills, 'INTENT_SECONDS', 0.2)
        self.write_file(f'{IMAGE}.intent', b'nonsense')
        self.assertFalse(self.fills.lead_or_follow(IMAGE))

    def test_clean_spares_what_is_written(self):
        old = self.write_file('old', b'left behind')
        with self.fills.begin(IMAGE) as file:
            file.write(b'x')
            file.flush()
            self.assertEqual(1, self.fills.clean(time.time() + 60))
            self.assertTrue(self.fills.path(IMAGE).exists())
        self.assertFalse(old.exists())

    def test_a_moments_look_does_not_keep_the_leader_out(self):
        path = self.fills.path(IMAGE)
        path.write_bytes(b'')
        fd = os.open(path, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_SH)
        # The look ends between two tries of the leader.
        looks = [fd]
        self.patch(fills, 'time', types.SimpleNamespace(
            sleep=lambda _seconds: looks and os.close(looks.pop())))
        with self.fills.begin(IMAGE) as file:
            self.assertIsNotNone(file)
