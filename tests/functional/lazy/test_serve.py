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

import contextlib
import errno
import http.server
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time

import fixtures

from diffcache_openstack.cmd import lazy
from tests import base

_TOOLBOX = 'import sys; from diffcache_openstack.cmd import toolbox; ' \
           'sys.exit(toolbox.main())'
_KILLS = 10
_READER = '''
import random, sys
path, image, seed = sys.argv[1:]
expected = open(image, 'rb').read()
numbers = random.Random(int(seed))
with open(path, 'rb', buffering=0) as file:
    for _ in range(200):
        offset = numbers.randrange(len(expected))
        length = numbers.choice([1, 4096, 65537, 1 << 20])
        file.seek(offset)
        got = file.read(length)
        assert got == expected[offset:offset + length], (offset, length)
'''


class _Handler(http.server.BaseHTTPRequestHandler):
    """Serves ranges of the server's ``content``; ``mode`` makes it fail."""

    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        content, mode = self.server.content, self.server.mode
        self.server.requests.append(self.headers['Range'])
        first, last = map(int, re.fullmatch(
            r'bytes=(\d+)-(\d+)', self.headers['Range']).groups())
        body = content[first:last + 1]
        status = 206
        if isinstance(mode, int):
            status, body = mode, content if mode == 200 else b''
        elif mode == 'wrong':
            body = bytes(byte ^ 1 for byte in body)
        self.send_response(status)
        if status == 206:
            self.send_header('Content-Range',
                             f'bytes {first}-{last}/{len(content)}')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        # The client leaves when it did not ask for what comes.
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *args):
        pass


class LazyServeTest(base.TestCase):

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or not os.path.exists('/dev/fuse'):
            self.skipTest('mounting FUSE needs root and /dev/fuse')
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        numbers = random.Random(1)
        self.content = b''.join(
            bytes(1 << 20) if i % 3 == 0 else numbers.randbytes(1 << 20)
            for i in range(12)) + numbers.randbytes(12345)
        self.image = self.folder / 'image'
        self.image.write_bytes(self.content)
        (self.folder / 'mount').mkdir()
        self.state = self.folder / 'state'
        self._toolbox('image', 'manifest', self.image,
                      self.folder / 'manifest')

    def _toolbox(self, *words, **options):
        return subprocess.run(
            [sys.executable, '-c', _TOOLBOX, *map(str, words)], check=True,
            capture_output=True, text=True, **options).stdout

    def _serve(self, source=None, *words):
        process = subprocess.Popen(
            [sys.executable, '-c', _TOOLBOX, 'lazy', 'serve',
             str(source or self.image), '--manifest',
             str(self.folder / 'manifest'), '--mount',
             str(self.folder / 'mount'), '--state', str(self.state),
             *map(str, words)], stdout=subprocess.PIPE)
        self.addCleanup(self._stop, process)
        ready = json.loads(process.stdout.readline())
        self.assertIs(True, ready['ready'])
        self.path = ready['path']
        return process

    def _stop(self, process):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        code = process.wait()
        process.stdout.close()
        return code

    def _status(self):
        return json.loads(self._toolbox(
            'lazy', 'status', '--state', self.state, '-f', 'json'))

    def _wait_for(self, **expected):
        """Wait until the status has some values; return all of it."""
        end = time.monotonic() + 60
        while True:
            status = lazy._read_status(str(self.state))
            found = {name: status[name] for name in expected}
            if found == expected:
                return status
            self.assertLess(time.monotonic(), end, f'{found} != {expected}')

    def _http(self):
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), _Handler)
        server.content, server.mode, server.requests = self.content, None, []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        return server, f'http://127.0.0.1:{server.server_port}/image'

    def _read(self, offset, length):
        with open(self.path, 'rb', buffering=0) as file:
            return os.pread(file.fileno(), length, offset)

    def _readers(self):
        return [subprocess.Popen([sys.executable, '-c', _READER, self.path,
                                  str(self.image), str(seed)])
                for seed in range(3)]

    def test_several_readers_see_the_image_and_chunks_come_once(self):
        server, url = self._http()
        process = self._serve(url)
        self.assertEqual(self.content[:5], self._read(0, 5))
        self.assertEqual([0, 0, 0], [r.wait() for r in self._readers()])
        self.assertEqual(self.content, pathlib.Path(self.path).read_bytes())
        status = self._status()
        self.assertTrue(status['complete'])
        self.assertEqual(self.content,
                         pathlib.Path(status['plain_path']).read_bytes())
        self.assertEqual(status['data_chunks'], status['present'])
        self.assertEqual(status['data_chunks'], len(set(server.requests)))
        self.assertEqual(status['data_chunks'], len(server.requests))
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
            file.seek(12)
            file.write(b'\0')
        with open(data, 'r+b') as file:
            file.seek(1 << 20)
            file.write(b'x' * 100)
        self._serve()
        self.assertEqual(self.content[1 << 20:(1 << 20) + 100],
                         self._read(1 << 20, 100))
        self.assertEqual(1, self._status()['sources'][0]['requests'])

    def test_killed_workers_are_not_noticed_by_readers(self):
        self._serve()
        readers = self._readers()
        seen = 0
        for _ in range(_KILLS):
            # The next worker has taken over when its process id is there.
            while (pid := self._status()['worker_pid']) == seen:
                pass
            os.kill(pid, signal.SIGKILL)
            seen = pid
        self.assertEqual([0, 0, 0], [r.wait() for r in readers])
        self.assertEqual(self.content, pathlib.Path(self.path).read_bytes())
        self.assertEqual(0, self._status()['errors'])

    def test_wrong_bytes_are_never_served(self):
        server, url = self._http()
        server.mode = 'wrong'
        self._serve(url, '--wait', '0')
        error = self.assertRaises(OSError, self._read, 1 << 20, 100)
        self.assertEqual(errno.EIO, error.errno)
        self.assertLess(0, self._status()['corrupt'])
        server.mode = None
        self.assertEqual(self.content[1 << 20:(1 << 20) + 100],
                         self._read(1 << 20, 100))

    def test_a_source_that_refuses_is_tried_again(self):
        server, url = self._http()
        self._serve(url, '--wait', '0')
        for mode in (200, 416, 429, 500):
            server.mode = mode
            error = self.assertRaises(OSError, self._read, 1 << 20, 100)
            self.assertEqual(errno.EIO, error.errno)
        server.mode = None
        self.assertEqual(self.content[1 << 20:(1 << 20) + 100],
                         self._read(1 << 20, 100))
        self.assertLessEqual(4, self._status()['sources'][0]['failures'])

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

    def test_hydration_fetches_what_is_not_read(self):
        self._serve(None, '--hydrate', 'idle')
        while not self._status()['complete']:
            pass
        status = self._status()
        self.assertEqual(self.content,
                         pathlib.Path(status['plain_path']).read_bytes())

    def test_the_profile_is_prefetched_after_the_first_miss(self):
        server, url = self._http()
        rows = [[4, 1, 0], [9, 3, 20], [5, 3, 10.5], [16, 2, 1], [0, 3, 0]]
        profile = self.folder / 'profile'
        profile.write_text(json.dumps({'mode': 'first', 'profile': rows}))
        self._serve(url, '--profile', profile)
        self.assertEqual([], server.requests)
        self._read(4 << 18, 10)
        # Chunk 0 is all zero: it is there.
        status = self._wait_for(prefetched=3)
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
        self._serve(url, '--prefetch', 'off')
        with open(self.path, 'rb', buffering=0) as file:
            for chunk in (28, 29, 30, 31):
                os.pread(file.fileno(), 1, chunk << 18)
        status = self._status()
        self.assertEqual((0, 4), (status['prefetched'], status['misses']))

    def test_a_profile_that_cannot_be_used_is_refused(self):
        profile = self.folder / 'profile'
        for text, reason in (
                ('[[0, 1, 1], [50, 1, 1]]', 'entry 1: chunk 50'),
                ('[[0, 1, 1], [1, 1', 'entry 1: EOF'),
                ('[[0, 1, 1], [0, 1, 1]]', 'entry 1: chunk 0'),
                ('{"mode": "first"}', 'no "profile"'),
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
            [sys.executable, '-c', _TOOLBOX, 'lazy', 'serve', str(self.image),
             '--manifest', str(self.folder / 'manifest'), '--mount',
             str(self.folder / mount), '--state', str(self.state),
             *map(str, words)], capture_output=True, text=True)
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
