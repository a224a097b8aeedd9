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
"""Readers notice nothing of workers that are killed."""

import concurrent.futures
import os
import pathlib
import re
import signal

import testtools.content

from tests.functional.lazy import served_image
from tests.functional.versions import failing
from tests import waiting

# A longer campaign is run by hand: DIFFCACHE_TEST_KILLS=1000.
_KILLS = int(os.environ.get('DIFFCACHE_TEST_KILLS', '6'))
# Where the memory that outlives workers has the requests that they read: see
# native/daemon/src/processes/shared.rs.
_SLOTS, _SLOTS_AT, _SLOT_LEN = 64, 4096, (1 << 20) + 8192


class TestKills(served_image.ServedImageTest):

    def test_killed_workers_are_not_noticed_by_readers(self):
        self._assert_kills_are_not_noticed()

    def test_nor_without_requests_that_the_kernel_sends_again(self):
        self._assert_kills_are_not_noticed('--no-resend')

    def test_nor_with_a_single_thread(self):
        self._assert_kills_are_not_noticed('--no-resend', '--workers', '1')

    def _assert_kills_are_not_noticed(self, *words):
        self._serve(None, *words)
        end = self.folder / 'end'
        readers = self._readers(end)
        seen = None
        for _ in range(_KILLS):
            # The next worker has taken over when its process id is there.
            seen = self._other_worker(seen)
            os.kill(seen, signal.SIGKILL)
        end.touch()
        times = self._end(readers)
        self.addDetail('reads', testtools.content.text_content(
            f'{len(times)} reads, the longest {times[-1]:.3f} s, 99 % of them'
            f' {times[len(times) * 99 // 100]:.3f} s'))
        self.assertEqual(self.content, pathlib.Path(self.path).read_bytes())
        self._wait_for(errors=0, corrupt=0, worker_restarts=_KILLS)

    def _other_worker(self, former=None):
        def find():
            found = self._read_status()['worker_pid']
            return None if found == former else found

        return waiting.until(find, 'another worker')

    def test_the_kernel_sends_again_what_the_daemon_has_lost(self):
        self._skip_without_resend()
        server, url = self._http()
        server.mode = 'slow'
        process = self._serve(url)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            read = pool.submit(self._read_once, 1 << 20, 100)
            waiting.until(lambda: server.requests, 'a request')
            self._lose_requests(process)
            server.mode = None
            self.assertEqual(self.content[1 << 20:(1 << 20) + 100],
                             read.result(waiting.SECONDS))
        self._wait_for(errors=0, worker_restarts=1, resend=True)

    def test_copies_are_answered_without_the_kernel(self):
        server, url = self._http()
        server.mode = 'slow'
        self._serve(url, '--no-resend')
        with concurrent.futures.ThreadPoolExecutor() as pool:
            read = pool.submit(self._read_once, 1 << 20, 100)
            waiting.until(lambda: server.requests, 'a request')
            os.kill(self._read_status()['worker_pid'], signal.SIGKILL)
            server.mode = None
            self.assertEqual(self.content[1 << 20:(1 << 20) + 100],
                             read.result(waiting.SECONDS))
        self._wait_for(errors=0, worker_restarts=1, resend=False)

    def _skip_without_resend(self):
        version = tuple(map(int, os.uname().release.split('.')[:2]))
        if version < (6, 9):
            self.skipTest('FUSE_NOTIFY_RESEND needs Linux 6.9')

    def _lose_requests(self, keeper):
        """Kill the worker, and wipe its requests before the next one."""
        keeper.send_signal(signal.SIGSTOP)
        worker = self._worker_of(keeper)
        os.kill(worker, signal.SIGKILL)
        [memory] = [
            file for file in pathlib.Path(f'/proc/{keeper.pid}/fd').iterdir()
            if os.readlink(file).startswith('/memfd:diffcached ')]
        wiped = 0
        with open(memory, 'r+b', buffering=0) as file:
            for slot in range(_SLOTS):
                at = _SLOTS_AT + slot * _SLOT_LEN
                wiped += any(os.pread(file.fileno(), 4, at))
                os.pwrite(file.fileno(), bytes(8192), at)
        self.assertLess(0, wiped)
        keeper.send_signal(signal.SIGCONT)

    def _worker_of(self, keeper):
        children = pathlib.Path(
            f'/proc/{keeper.pid}/task/{keeper.pid}/children').read_text()
        [worker] = children.split()
        return int(worker)

    def test_pauses_before_new_workers_are_as_configured(self):
        log = self.folder / 'log'
        with open(log, 'wb') as file:
            # Less than the second pause would be.
            self._serve(None, '--restart-backoff', '0.015', stderr=file)

        def pauses():
            return [float(word) for word in re.findall(
                'Starting it in ([0-9.]+) s', log.read_text())]

        seen = None

        def has_paused():
            nonlocal seen
            worker = self._read_status()['worker_pid']
            if worker != seen:
                # A fault of its own, other than SIGKILL.
                os.kill(worker, signal.SIGUSR1)
                seen = worker
            return 0.015 in pauses()

        # A worker that lived for longer begins the pauses anew: not so two
        # in turn, even where the machine is busy.
        waiting.until(has_paused, 'the longest pause', seen=pauses)
        self.assertEqual({0.01, 0.015}, set(pauses()))
        self._assert_reads(1 << 20)
        self.assertEqual(0, self._read_status()['errors'])


class TestSlowStart(served_image.ServedImageTest):
    """Each thread of the daemon takes a while to start."""

    def setUp(self):
        super().setUp()
        if not failing.is_possible():
            self.skipTest('strace delays no system calls here')

    def words(self, source, *words):
        # As a grandchild: signals are for the daemon.
        return ['strace', '-D', '-f', '-qq', '-o', '/dev/null',
                '-e', 'trace=clone3', '-e', 'inject=clone3:delay_exit=50000',
                *super().words(source, *words)]

    def test_a_worker_that_answers_is_in_the_status(self):
        self._serve(None)
        worker = self._read_status()['worker_pid']
        self.assertTrue(os.path.exists(f'/proc/{worker}'), worker)
