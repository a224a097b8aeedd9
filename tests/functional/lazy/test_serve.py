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
"""``diffcache lazy serve`` with a real mount."""

import concurrent.futures
import errno
import json
import os
import pathlib
import signal
import subprocess

from testing import server as servers
from tests.functional.lazy import served_image
from tests import waiting


class LazyServeTest(served_image.ServedImageTest):

    def test_several_readers_see_the_image_and_chunks_come_once(self):
        server, url = self._http()
        process = self._serve(url)
        self.assertEqual(self.content[:5], self._read(0, 5))
        self._end(self._readers())
        self.assertEqual(self.content, pathlib.Path(self.path).read_bytes())
        status = self._status()
        self.assertTrue(status['complete'])
        self.assertEqual(self.content,
                         pathlib.Path(status['plain_path']).read_bytes())
        self.assertEqual(status['data_chunks'], status['present'])
        # Adjacent ones are one request.
        ranges = [[int(word) for word in request[6:].split('-')]
                  for request in server.requests]
        chunks = [at >> 18 for first, last in ranges
                  for at in range(first, last, 1 << 18)]
        self.assertEqual(status['data_chunks'], len(set(chunks)))
        self.assertEqual(status['data_chunks'], len(chunks))
        self.assertEqual(0, status['errors'])
        self.assertEqual(0, self._stop(process))
        self.assertEqual([], os.listdir(self.folder / 'mount'))

    def test_a_kept_chunk_needs_no_source_after_a_restart(self):
        self._stop(self._serve_and_read())
        self.image.unlink()
        self._serve(None, '--wait', '0')
        self.assertEqual(self.content[1 << 20:(1 << 20) + 100],
                         self._read(1 << 20, 100))
        self.assertEqual(0, self._status()['sources'][0]['requests'])
        error = self.assertRaises(OSError, self._read, 5 << 20, 100)
        self.assertEqual(errno.EIO, error.errno)

    def _serve_and_read(self):
        process = self._serve()
        self._read(1 << 20, 100)
        return process

    def test_damaged_leaves_are_fetched_again_after_an_unclean_end(self):
        process = self._serve_and_read()
        self._stop(process)
        [marks] = self.state.glob('*.leaves')
        [data] = self.state.glob('*.data')
        with open(marks, 'r+b') as file:
            file.seek(56)
            file.write(bytes(64))
        with open(data, 'r+b') as file:
            file.seek(1 << 20)
            file.write(b'x' * 100)
        self._serve()
        self.assertEqual(self.content[1 << 20:(1 << 20) + 100],
                         self._read(1 << 20, 100))
        self.assertEqual(1, self._status()['sources'][0]['requests'])

    def test_wrong_bytes_are_never_served(self):
        server, url = self._http()
        server.mode = 'wrong'
        self._serve(url, '--wait', '0')
        self._assert_fails(1 << 20)
        status = self._status()
        self.assertLess(0, status['corrupt'])
        self.assertEqual(0, status['bytes_fetched'])
        server.mode = None
        self._assert_reads(1 << 20)

    def test_a_source_that_refuses_is_tried_again(self):
        server, url = self._http()
        self._serve(url, '--wait', '0')
        modes = (200, 416, 429, 500, 'short', 'cut', 'other range')
        # The last leaf of a chunk: 'short' sends the others.
        offset = (1 << 20) + (192 << 10)
        for mode in modes:
            server.mode = mode
            self._assert_fails(offset)
        server.mode = None
        self._assert_reads(offset)
        status = self._status()
        self.assertEqual(len(modes), status['sources'][0]['failures'])
        self.assertEqual(len(modes), status['errors'])

    def test_what_came_of_a_chunk_is_read_while_the_rest_does_not_come(self):
        server, url = self._http()
        server.mode = 'short'
        self._serve(url, '--wait', '0')
        self._assert_reads(1 << 20)
        self._assert_fails((1 << 20) + (192 << 10))
        self._assert_reads(1 << 20)

    def test_a_busy_source_is_left_alone_by_hydration(self):
        server, url = self._http()
        server.mode, server.headers = 429, {'Retry-After': '3600'}
        self._serve(url, '--wait', '0', '--hydrate', 'idle')
        waiting.until(lambda: server.requests, 'the first request')
        self._assert_fails(5 << 20)
        self.assertEqual(2, len(server.requests))
        server.mode = None
        self._assert_reads(5 << 20)

    def test_a_source_that_is_too_slow_is_an_error(self):
        server, url = self._http()
        server.mode = 'slow'
        self._serve(url, '--wait', '0.2')
        self._assert_fails(1 << 20)
        server.is_fast.set()
        self._assert_reads_soon(1 << 20)

    def _assert_reads_soon(self, offset):
        """On a busy machine even a fast source may need longer at first."""
        self.assertEqual(self.content[offset:offset + 100], waiting.until(
            lambda: self._read_once(offset, 100), 'the source', OSError))

    def test_a_read_waits_for_a_source_that_is_gone(self):
        # Of which no other process takes the port meanwhile.
        port = servers.free_port()
        server, url = self._http(port)
        self._serve(url, '--wait', str(waiting.SECONDS))
        server.stop.close()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            reading = pool.submit(self._read_once, 1 << 20, 100)
            waiting.until(
                lambda: self._read_status()['sources'][0]['failures'],
                'an attempt in vain')
            self._http(port)
            self.assertEqual(self.content[1 << 20:(1 << 20) + 100],
                             reading.result())
        self.assertEqual(0, self._status()['errors'])

    def test_a_source_that_is_gone_is_an_error_until_it_is_back(self):
        self._serve(None, '--wait', '0.1')
        self.image.rename(self.folder / 'elsewhere')
        self._assert_fails(1 << 20)
        (self.folder / 'elsewhere').rename(self.image)
        self._assert_reads_soon(1 << 20)
        self.assertLess(0, self._status()['errors'])

    def test_the_manifest_of_another_image_serves_nothing(self):
        self.content = bytes(reversed(self.content))
        server, url = self._http()
        self._serve(url, '--wait', '0')
        self._assert_fails(1 << 20)
        self.assertEqual(1, self._status()['corrupt'])

    def test_a_damaged_manifest_is_refused(self):
        manifest = self.folder / 'manifest'
        whole = manifest.read_bytes()
        for damaged in (b'', whole[:-1], whole[:40],
                        whole[:50] + b'?' + whole[51:]):
            with self.subTest(length=len(damaged)):
                manifest.write_bytes(damaged)
                self.assertIn(f'cannot use manifest {manifest}: ',
                              self._refused().stderr)

    def test_a_killed_keeper_is_replaced(self):
        process = self._serve_and_read()
        process.kill()
        process.wait()
        # The worker ends a moment later.
        waiting.until(self._cannot_read, 'the end of the worker')
        process = self._serve()
        self._assert_reads(1 << 20)
        self.assertEqual(0, self._status()['sources'][0]['requests'])
        self.assertEqual(0, self._stop(process))
        self.assertEqual([], os.listdir(self.folder / 'mount'))

    def _cannot_read(self):
        try:
            self._read_once(1 << 20, 100)
        except OSError:
            return True

    def test_a_mount_in_use_is_refused(self):
        self._serve()
        self.state = self.folder / 'other'
        self.assertIn('is mounted at', self._refused().stderr)

    def test_a_state_folder_may_have_a_long_path(self):
        self.state = self.folder / ('s' * 100) / 'state'
        self._serve()
        self.assertEqual(0, self._status()['reads'])

    def test_a_full_disk_keeps_nothing_and_serves(self):
        self.state.mkdir()
        subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs',
                        str(self.state)], check=True)
        self.addCleanup(subprocess.run, ['umount', str(self.state)],
                        check=True)
        process = self._serve()
        self.assertEqual(self.content, pathlib.Path(self.path).read_bytes())
        status = self._status()
        self.assertLess(0, status['not_kept'])
        self.assertFalse(status['complete'])
        self.assertEqual(0, status['errors'])
        self.assertEqual(0, self._stop(process))

    def _assert_completes(self):
        status = self._wait_for(complete=True)
        self.assertEqual(self.content,
                         pathlib.Path(status['plain_path']).read_bytes())
        self.assertEqual(0, status['hydration']['remaining_bytes'])
        return status['hydration']

    def test_hydration_fetches_what_is_not_read(self):
        process = self._serve(None, '--hydrate', 'idle')
        hydration = self._assert_completes()
        self.assertEqual(('idle', None, None),
                         (hydration['mode'], hydration['deadline_s'],
                          hydration['kept']))
        self._stop(process)
        self._serve()
        self.assertTrue(self._status()['complete'])

    def test_hydration_ends_by_a_deadline(self):
        process = self._serve(None, '--hydrate', '1e6', '--rate', '1000')
        self.assertTrue(self.ready['hydration']['kept'])
        self.assertEqual(1e6, self.ready['hydration']['deadline_s'])
        # Adjacent chunks are one request.
        self._wait_for(present=4, complete=False)
        self._stop(process)
        self._serve(None, '--hydrate', '2')
        self._assert_completes()

    def test_a_deadline_that_the_rate_does_not_keep_is_told_at_once(self):
        self._serve(None, '--hydrate', '1', '--rate', '2000000')
        hydration = self.ready['hydration']
        self.assertIs(False, hydration['kept'])
        # 33 chunks of 256 KiB have data, the last of them 12,345 bytes. The
        # first four are fetched without a wait, before this is told or after.
        self.assertLess((28 * 262144 + 12345) / 2e6,
                        hydration['earliest_s'])
        hydration = self._assert_completes()
        self.assertIs(False, hydration['kept'])
        self.assertLess(32 * 262144 / 2e6, hydration['earliest_s'])

    def test_a_deadline_that_was_missed_is_told(self):
        self._serve(None, '--hydrate', '0.001')
        hydration = self._assert_completes()
        self.assertIs(False, hydration['kept'])
        self.assertLess(0, hydration['measured_rate'])

    def test_the_rate_outlives_a_worker(self):
        server, url = self._http()
        self._serve(url, '--hydrate', 'idle', '--rate', '1')
        status = self._wait_for(present=4)
        os.kill(status['worker_pid'], signal.SIGKILL)
        self._assert_reads(1 << 20)
        self._wait_for(worker_restarts=1)
        self.assertEqual(1, len(server.requests))

    def test_the_profile_is_prefetched_after_the_first_miss(self):
        server, url = self._http()
        rows = [[4, 1, 0], [9, 3, 20], [5, 3, 10.5], [16, 2, 1], [0, 3, 0]]
        profile = self.folder / 'profile'
        profile.write_text(json.dumps({
            'format': 1, 'mode': 'first', 'chunk': 1 << 18, 'profile': rows}))
        self._serve(url, '--profile', profile)
        self.assertEqual([], server.requests)
        self._read(4 << 18, 10)
        # Chunk 0 is all zero: it is there.
        status = self._wait_for(prefetched=3, present=4)
        self.assertEqual(0, status['prefetched_used'])
        self.assertEqual(1, status['misses'])
        self.assertEqual(4, len(server.requests))
        self.assertEqual(f'bytes={4 << 18}-{(5 << 18) - 1}',
                         server.requests[0])
        for _ in range(2):
            self._read(9 << 18, 10)
        os.kill(status['worker_pid'], signal.SIGKILL)
        self._read(5 << 18, 10)
        status = self._wait_for(prefetched_used=2, misses=1)
        self.assertEqual(3, status['prefetched'])
        self.assertEqual(4, len(server.requests))

    def test_the_threshold_says_what_of_the_profile_is_prefetched(self):
        profile, record = self.folder / 'profile', self.folder / 'record.json'
        profile.write_text(json.dumps({
            'format': 1, 'chunk': 1 << 18, 'profile': [
                [9, 100, 20], [16, 4, 1], [17, 2, 1]]}))
        process = self._serve(None, '--profile', profile, '--record', record,
                              '--threshold', '3')
        self._read(4 << 18, 10)
        # The default leaves out what less than 10 of 100 read.
        self._wait_for(prefetched=2, present=3)
        self._stop(process)
        self.assertEqual(3, json.loads(record.read_text())['threshold'])

    def test_sequences_are_read_ahead(self):
        server, url = self._http()
        process = self._serve(url)
        for chunk in (4, 5, 6):
            self._read(chunk << 18, 1)
        # Each of these has a handle of its own.
        self.assertEqual(0, self._status()['prefetched'])
        with open(self.path, 'rb', buffering=0) as file:
            for chunk in (16, 17, 18):
                os.pread(file.fileno(), 1, chunk << 18)
            self._wait_for(prefetched=2, prefetched_used=0, misses=6)
            os.pread(file.fileno(), 1, 19 << 18)
            self._wait_for(prefetched=3, prefetched_used=1, misses=6)
        self._stop(process)
        self._serve(url, '--no-prefetch')
        with open(self.path, 'rb', buffering=0) as file:
            for chunk in (28, 29, 30, 31):
                os.pread(file.fileno(), 1, chunk << 18)
        status = self._status()
        self.assertEqual((0, 4), (status['prefetched'], status['misses']))

    def test_a_profile_that_cannot_be_used_is_refused(self):
        profile = self.folder / 'profile'
        for text, reason in (
                ('{"profile": [[0, 1, 1], [50, 1, 1]]}', 'entry 1: chunk 50'),
                ('{"profile": [[0, 1, 1], [1, 1', 'entry 1: EOF'),
                ('{"profile": [[0, 1, 1], [0, 1, 1]]}', 'entry 1: chunk 0'),
                ('{"mode": "first"}', 'no "format"'),
                ('{"format": 2}', f'{profile}: it has format 2'),
                ('{"format": 1}', 'no "profile"'),
                ('{"format": 1, "profile": [[0, 1, 1]]}', 'no "chunk"'),
                ('{"chunk": 65536, "profile": []}', 'have 65536 bytes'),
                ('[[0, 1, 1]]', 'expected an object'),
                ('\x00', 'expected value')):
            with self.subTest(text=text):
                profile.write_text(text)
                ended = self._refused('--profile', profile)
                self.assertIn(f'cannot use profile {profile}: ', ended.stderr)
                self.assertIn(reason, ended.stderr)
        self.assertEqual([], os.listdir(self.folder / 'mount'))

    def test_a_record_is_replayed(self):
        record = self.folder / 'record.json'
        process = self._serve(None, '--record', record)
        reads = [(5 << 20, 4096), (100, 1), (5 << 20, 4096), (7, 1 << 19)]
        opened = [os.open(self.path, os.O_RDONLY) for _ in range(2)]
        os.close(os.open(self.path, os.O_RDONLY))
        for descriptor in opened:
            for offset, length in reads:
                self.assertEqual(
                    self.content[offset:offset + length],
                    os.pread(descriptor, length, offset))
            os.close(descriptor)
        # A read that the end of the image cuts, and one that is all beyond.
        self._read(len(self.content) - 10, 100)
        self._read(len(self.content), 100)
        self.assertEqual(9, self._status()['recorded'])
        os.kill(self._status()['worker_pid'], signal.SIGKILL)
        self._read(3, 5)
        self.assertEqual(0, self._stop(process))
        scenario = json.loads(record.read_text())
        self.assertEqual([reads, reads, [(len(self.content) - 10, 10)],
                          [(3, 5)]],
                         [[(offset, length) for _, offset, length
                           in instance['reads']]
                          for instance in scenario['instances']])
        self.assertEqual(0, scenario['instances'][0]['start_us'])
        self.assertFalse(list(self.folder.glob('.record*')))
        found = json.loads(self._toolbox(
            'lazy', 'replay', record, '--mode', 'first', '-f', 'json'))
        self.assertEqual(4, len(found['instances']))
        self.assertLess(0, found['boot_s']['last'])

    def test_a_record_that_cannot_be_written_is_refused(self):
        ended = self._refused('--record', self.folder / 'absent' / 'file')
        self.assertIn('absent/file', ended.stderr)

    def _refused(self, *words, mount='mount'):
        """Return how a daemon ends that must not start."""
        ended = subprocess.run(
            [*self.words(self.image, '--manifest', self.folder / 'manifest',
                         '--mount', self.folder / mount), *map(str, words)],
            capture_output=True, text=True)
        self.assertEqual(1, ended.returncode, ended.stderr)
        return ended

    def test_a_second_daemon_is_refused(self):
        self._serve()
        (self.folder / 'other').mkdir()
        ended = self._refused(mount='other')
        self.assertIn('another diffcached uses', ended.stderr)

    def test_a_link_in_place_of_the_mount_is_refused(self):
        (self.folder / 'link').symlink_to(self.folder / 'mount')
        self.assertIn('link', self._refused(mount='link').stderr)
