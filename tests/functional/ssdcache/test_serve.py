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
"""Volumes behind a cache, and clients of QEMU."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.parse

from diffcache_openstack.ssdcache import control
from testing import nbd
from tests import base
from tests import waiting

BLOCK = 4096
SIZE = 16 << 20
CAPACITY = 1024


class CacheTest(base.TestCase):
    """Starts caches of volumes that are files."""

    CAPACITY = CAPACITY

    def setUp(self):
        super().setUp()
        if shutil.which('qemu-io') is None:
            self.skipTest('needs qemu-io, of the package qemu-utils')
        self.move_in(self.directory)
        self.origins = {}
        for name in ('a', 'b'):
            self.origins[name] = self.directory / f'{name}.raw'
            with open(self.origins[name], 'wb') as origin:
                origin.truncate(SIZE)

    def move_in(self, home):
        """Have the next cache that is started in a directory."""
        self.home = home
        self.control = str(home / 'control')
        self.state = home / 'state'

    def command(self, *words):
        return [sys.executable, '-c',
                'from diffcache_openstack.cmd.toolbox import app as toolbox;'
                ' raise SystemExit(toolbox.main())', 'ssdcache', *words]

    def line(self, *volumes, words=()):
        """Return the command line that serves volumes."""
        line = self.command(
            'serve', '--device', str(self.home / 'device'),
            '--socket', str(self.home / 'nbd'),
            '--control', self.control, '--state', str(self.state),
            '--capacity', str(self.CAPACITY), *words)
        for name in volumes:
            name, _, options = name.partition(',')
            origin = f'{self.origins[name]}'
            line += ['--volume', ','.join(filter(None, [
                f'{name}={origin}', options]))]
        return line

    def start(self, *words, volumes=('a', 'b')):
        """Start a cache; return its process and its exports."""
        process = subprocess.Popen(
            self.line(*volumes, words=words), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        ready = process.stdout.readline()
        if not ready:
            self.fail(process.stderr.read())
        ready = json.loads(ready)
        self.assertEqual((True, process.pid), (ready['ready'], ready['pid']))
        return process, ready['exports']

    def end(self, process, number=signal.SIGKILL):
        """Stop a cache; return its exit code."""
        if process.poll() is None:
            process.send_signal(number)
        code = process.wait(waiting.SECONDS)
        process.stdout.close()
        process.stderr.close()
        return code

    def io(self, uri, *commands):
        """Run commands of qemu-io; return whether all did what they say."""
        line = ['qemu-io', '-f', 'raw']
        for command in commands:
            line += ['-c', command]
        done = subprocess.run([*line, uri], capture_output=True, text=True,
                              timeout=waiting.SECONDS)
        return done.returncode == 0 and 'failed' not in done.stdout

    def status(self, name):
        return control.send(self.control, 'status')['volumes'][name]


class TestServe(CacheTest):

    def test_a_device_that_failed_is_not_used_again(self):
        process, _ = self.start('--format')
        self.end(process)
        # In place of a disk that fails: the note that is written then.
        superblock = (self.directory / 'device').read_bytes()[:4096]
        note = self.state / f'{superblock[24:40].hex()}.failed'
        note.write_text('The cache device failed: it is gone\n')
        done = subprocess.run(self.line('a'), capture_output=True, text=True,
                              timeout=waiting.SECONDS)
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertIn('start it with --format', done.stderr)
        self.assertIn(str(note), done.stderr)
        self.start('--format')

    def test_reads_and_writes(self):
        _, exports = self.start('--format')
        self.assertTrue(self.io(
            exports['a'], 'write -P 7 64k 128k', 'read -P 7 64k 128k',
            'write -P 8 65000 1000', 'read -P 8 65000 1000',
            'read -P 0 512k 64k', 'read -P 0 512k 64k', 'flush'))
        with open(self.origins['a'], 'rb') as origin:
            origin.seek(128 << 10)
            self.assertEqual(b'\7', origin.read(1))
        found = self.status('a')
        self.assertEqual('write-through', found['mode'])
        # 32 blocks read after the write, 2 + 2 of the small write and read,
        # and 16 read again; each once or, if QEMU aligns, a few more.
        self.assertGreaterEqual(found['hits'], 50)
        self.assertEqual(0, found['corrupted'])
        self.assertEqual(0, self.status('b')['reads'])
        self.assertGreater(found['latency_us']['hit']['p99'], 0)

    def test_trim_and_zeroes(self):
        _, exports = self.start('--format')
        self.assertTrue(self.io(
            exports['a'], 'write -P 7 0 256k', 'write -z 0 64k',
            'discard 64k 64k', 'read -P 0 0 64k', 'read -P 0 64k 64k',
            'read -P 7 128k 128k'))

    def test_a_whole_image_is_copied(self):
        _, exports = self.start('--format')
        image = self.directory / 'image'
        image.write_bytes(os.urandom(SIZE))
        for line in (
                ['qemu-img', 'convert', '-n', '-f', 'raw', '-O', 'raw',
                 str(image), exports['a']],
                ['qemu-img', 'compare', '-f', 'raw', '-F', 'raw', str(image),
                 exports['a']],
                ['qemu-img', 'compare', '-f', 'raw', '-F', 'raw', str(image),
                 str(self.origins['a'])]):
            subprocess.run(line, check=True, capture_output=True,
                           timeout=waiting.SECONDS)
        self.assertEqual(self.status('a')['limit'], self.status('a')['blocks'])

    def test_exports_are_secret_names_of_volumes(self):
        _, exports = self.start('--format')
        name = exports['a'].removeprefix('nbd+unix:///').partition('?')[0]
        self.assertRegex(name, '^[0-9a-f]{32}$')
        self.assertNotEqual(exports['a'], exports['b'])
        for other in ('', 'a', '0' * 32):
            self.assertFalse(self.io(exports['a'].replace(name, other),
                                     'read 0 4k'))

    def test_requests_beyond_the_end_are_refused(self):
        _, exports = self.start('--format')
        self.assertFalse(self.io(exports['a'], f'read {SIZE} 4k'))
        self.assertTrue(self.io(exports['a'], f'read {SIZE - BLOCK} 4k'))


class TestParent(CacheTest):

    def test_the_cache_outlives_who_started_it(self):
        line = self.line('a', words=('--format',))
        starter = subprocess.run(
            [sys.executable, '-c',
             'import subprocess, sys; p = subprocess.Popen(sys.argv[1:],'
             ' stdout=subprocess.PIPE, stdin=subprocess.DEVNULL);'
             ' print(p.stdout.readline().decode(), end="")', *line],
            stdout=subprocess.PIPE, text=True, timeout=waiting.SECONDS)
        ready = json.loads(starter.stdout)
        descriptor = os.pidfd_open(ready['pid'])
        self.addCleanup(os.close, descriptor)
        self.addCleanup(signal.pidfd_send_signal, descriptor, signal.SIGKILL)
        self.assertTrue(self.io(ready['exports']['a'], 'write -P 7 0 4k',
                                'read -P 7 0 4k'))
        self.assertEqual('ok', self.status('a')['state'])


class TestRestart(CacheTest):

    def test_after_a_kill(self):
        process, exports = self.start('--format')
        self.assertTrue(self.io(exports['a'], 'write -P 7 0 1M',
                                'read -P 0 2M 64k'))
        self.assertEqual(-signal.SIGKILL, self.end(process))
        process, again = self.start()
        self.assertEqual(exports, again)
        self.assertTrue(self.io(exports['a'], 'read -P 7 0 1M',
                                'read -P 0 2M 64k'))
        found = self.status('a')
        self.assertEqual((272, 0, 0), (found['hits'], found['misses'],
                                       found['corrupted']))

    def test_after_a_stop_with_a_client(self):
        process, exports = self.start('--format')
        self.assertTrue(self.io(exports['a'], 'write -P 7 0 64k'))
        address = str(self.directory / 'nbd')
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(address)
            # The greeting: the server has the connection.
            self.assertEqual(b'NBDMAGIC', client.recv(8, socket.MSG_WAITALL))
            self.assertEqual(0, self.end(process, signal.SIGTERM))
        for path in (address, self.control):
            self.assertFalse(os.path.lexists(path), path)
        _, again = self.start()
        self.assertEqual(exports, again)
        self.assertTrue(self.io(exports['a'], 'read -P 7 0 64k'))
        self.assertEqual(16, self.status('a')['hits'])

    def test_kills_under_writes_leave_nothing_old(self):
        process, exports = self.start('--format')
        for value in range(1, 6):
            writes = [f'write -P {value} {n * 12}k 20k' for n in range(400)]
            commands = [word for write in writes for word in ('-c', write)]
            with subprocess.Popen(
                    ['qemu-io', '-f', 'raw', *commands, exports['a']],
                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                    ) as client:
                # Some writes are done, and others are not.
                for _ in range(40):
                    client.stdout.readline()
                self.end(process)
                client.stdout.read()
            process, exports = self.start()
            subprocess.run(
                ['qemu-img', 'compare', '-f', 'raw', '-F', 'raw',
                 exports['a'], str(self.origins['a'])], check=True,
                capture_output=True, timeout=waiting.SECONDS)
            self.assertEqual(0, self.status('a')['corrupted'])

    def test_another_file_under_the_name_of_a_volume(self):
        process, exports = self.start('--format')
        self.assertTrue(self.io(exports['a'], 'write -P 7 0 64k'))
        self.end(process)
        replaced = self.directory / 'replaced'
        with open(replaced, 'wb') as origin:
            origin.truncate(SIZE)
        os.replace(replaced, self.origins['a'])
        _, again = self.start()
        self.assertEqual(exports, again)
        self.assertTrue(self.io(exports['a'], 'read -P 0 0 64k'))


class TestWriteBack(CacheTest):
    """Volume a is in the mode write-back, and nothing is old enough."""

    VOLUMES = ('a,mode=write-back', 'b')
    WORDS = ('--dirty-age', '3600')

    def setUp(self):
        super().setUp()
        self.process, self.exports = self.begin('--format')
        self.assertTrue(self.io(self.exports['a'], 'write -P 7 64k 128k',
                                'write -P 8 65000 1000', 'flush'))

    def begin(self, *words):
        return self.start(*self.WORDS, *words, volumes=self.VOLUMES)

    def origin(self, offset):
        with open(self.origins['a'], 'rb') as origin:
            origin.seek(offset)
            return origin.read(1)[0]

    def refused(self, *words, volumes=VOLUMES):
        """Return why a start is refused."""
        done = subprocess.run(self.line(*volumes, words=words),
                              capture_output=True, text=True,
                              timeout=waiting.SECONDS)
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        return done.stderr

    def test_a_kill_and_a_stop(self):
        # Partial writes may have made more of the first blocks dirty.
        dirty = self.status('a')['dirty']
        self.assertGreaterEqual(dirty, 32)
        self.assertEqual(0, self.origin(100 << 10))
        self.end(self.process)
        process, exports = self.begin()
        self.assertEqual(self.exports, exports)
        self.assertEqual(dirty, self.status('a')['dirty'])
        self.assertTrue(self.io(exports['a'], 'read -P 8 65000 1000',
                                'read -P 7 100k 92k', 'write -P 9 100k 4k'))
        self.assertEqual(0, self.end(process, signal.SIGTERM))
        self.assertEqual([8, 9, 7], [self.origin(65500),
                                     self.origin(100 << 10),
                                     self.origin(104 << 10)])
        self.begin()
        self.assertEqual(0, self.status('a')['dirty'])

    def test_flush_and_mode(self):
        control.send(self.control, 'flush', volume='a')
        self.assertEqual((0, 7), (self.status('a')['dirty'],
                                  self.origin(100 << 10)))
        self.assertTrue(self.io(self.exports['a'], 'write -P 9 100k 4k'))
        self.assertEqual((1, 7), (self.status('a')['dirty'],
                                  self.origin(100 << 10)))
        control.send(self.control, 'set', volume='a', mode='write-through')
        self.assertEqual((0, 9), (self.status('a')['dirty'],
                                  self.origin(100 << 10)))
        self.assertTrue(self.io(self.exports['a'], 'write -P 5 100k 4k'))
        self.assertEqual((0, 5), (self.status('a')['dirty'],
                                  self.origin(100 << 10)))

    def test_dirty_blocks_are_not_lost_by_a_start(self):
        self.end(self.process)
        self.assertIn('were not written back', self.refused('--format'))
        process, exports = self.start(volumes=('b',))
        self.assertTrue(self.io(exports['b'], 'read 0 4k'))
        held = self.status('a')
        self.assertEqual('held', held['state'])
        self.assertIn('it is not attached now', held['reason'])
        self.assertEqual(0, self.end(process, signal.SIGTERM))
        process, _ = self.begin()
        self.assertGreaterEqual(self.status('a')['dirty'], 32)
        self.end(process)
        self.start('--discard-dirty', '--format')
        self.assertEqual((0, 0), (self.status('a')['dirty'],
                                  self.origin(100 << 10)))

    def test_a_blank_device_in_place_of_one_with_dirty_blocks(self):
        self.end(self.process)
        os.unlink(self.directory / 'device')
        text = self.refused('--format')
        self.assertIn('volume a: another cache device', text)
        self.assertIn('--discard-dirty', text)
        process, _ = self.start('--format', '--discard-dirty')
        self.end(process)
        self.start('--format')

    def test_a_volume_that_was_written_back_is_served_with_any_device(self):
        self.assertEqual(0, self.end(self.process, signal.SIGTERM))
        os.unlink(self.directory / 'device')
        process, _ = self.start('--format', volumes=self.VOLUMES)
        self.assertEqual(0, self.status('a')['dirty'])
        self.end(process)
        # The same device, without a dirty block.
        self.start('--format')

    def test_detach(self):
        control.send(self.control, 'detach', volume='a')
        self.assertEqual(7, self.origin(100 << 10))

    def test_dirty_blocks_are_written_back_when_they_are_old(self):
        self.end(self.process)
        self.start('--dirty-age', '0', volumes=self.VOLUMES)
        waiting.until(lambda: not self.status('a')['dirty'], 'no dirty block')
        self.assertEqual(7, self.origin(100 << 10))

    def test_kills_under_writes_lose_nothing(self):
        process, exports = self.process, self.exports
        expected = None
        for value in range(1, 6):
            # Each block is written several times, by parts of requests.
            writes = [f'write -P {value} {n % 60 * 12}k 20k'
                      for n in range(400)]
            with subprocess.Popen(
                    ['qemu-io', '-f', 'raw',
                     *[word for write in writes for word in ('-c', write)],
                     exports['a']],
                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                    ) as client:
                # Two lines for each write: these 80 are complete.
                for _ in range(160):
                    client.stdout.readline()
                self.end(process)
                client.stdout.read()
            process, exports = self.begin()
            expected = f'read -P {value} 0 720k'
            self.assertTrue(self.io(exports['a'], expected), value)
            self.assertEqual(0, self.status('a')['corrupted'])
        self.assertEqual(0, self.end(process, signal.SIGTERM))
        self.assertTrue(self.io(str(self.origins['a']), expected))


class TestControl(CacheTest):

    def setUp(self):
        super().setUp()
        self.process, self.exports = self.start('--format')
        self.assertTrue(self.io(self.exports['a'], 'write -P 7 0 1M'))

    def run_command(self, name, *words):
        done = subprocess.run(
            self.command(name, '--control', self.control, '-f', 'json',
                         *words), capture_output=True, text=True)
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        return json.loads(done.stdout)

    def test_limit(self):
        found = self.run_command('set', 'a', '--limit', '100')
        self.assertEqual((100, 100), (found['volumes']['a']['limit'],
                                      found['volumes']['a']['blocks']))
        error = self.assertRaises(
            control.CommandRefused, control.send, self.control, 'set',
            volume='a', limit=CAPACITY)
        self.assertIn('limits add up to', str(error))

    def test_mode(self):
        found = self.run_command('set', 'a', '--mode', 'pass-through')
        self.assertEqual('pass-through', found['volumes']['a']['mode'])
        self.assertTrue(self.io(self.exports['a'], 'write -P 8 0 4k',
                                'read -P 8 0 4k', 'read -P 7 4k 4k'))
        self.run_command('set', 'a', '--mode', 'write-around')
        self.assertTrue(self.io(self.exports['a'], 'read -P 8 0 4k',
                                'read -P 7 4k 4k'))

    def test_flush_and_status(self):
        found = self.run_command('flush', 'a')
        self.assertEqual(found, self.run_command('status'))
        device = found['device']
        self.assertIn(device.pop('reads'), ('io_uring', 'threads'))
        self.assertEqual(
            {'state': 'ok', 'blocks': CAPACITY, 'free': CAPACITY - 256,
             'dirty': 0, 'ring_reads': 0, 'ring_refused': 0}, device)

    def test_invalidate(self):
        found = self.run_command('invalidate', 'a')
        self.assertEqual(0, found['volumes']['a']['blocks'])
        self.assertTrue(self.io(self.exports['a'], 'read -P 7 0 1M'))

    def test_detach(self):
        found = self.run_command('detach', 'a')
        self.assertEqual(['b'], list(found['volumes']))
        self.assertFalse(self.io(self.exports['a'], 'read 0 4k'))
        self.assertTrue(self.io(self.exports['b'], 'read 0 4k'))
        self.end(self.process)
        _, exports = self.start()
        self.assertNotEqual(self.exports['a'], exports['a'])
        self.assertEqual(self.exports['b'], exports['b'])

    def test_a_client_that_stays_after_a_detach_is_disconnected(self):
        with (nbd.Client(self.exports['a']) as client,
              nbd.Client(self.exports['b']) as other):
            self.run_command('detach', 'a')
            self.assertRaises(ConnectionError, client.receive)
            other.send(nbd.READ, 0, 4096)
            self.assertEqual(0, other.receive().error)

    def read(self, client):
        client.send(nbd.READ, 0, 4096)
        self.assertEqual(0, client.receive().error)

    def test_connections_to_one_export_leave_room_for_those_to_others(self):
        with contextlib.ExitStack() as stack:
            first = [stack.enter_context(nbd.Client(self.exports['a']))
                     for _ in range(64)]
            self.assertRaises(ConnectionError, nbd.Client, self.exports['a'])
            self.read(first[0])
            self.read(stack.enter_context(nbd.Client(self.exports['b'])))

    def test_connections_that_choose_no_export_keep_no_one_away(self):
        [path] = urllib.parse.parse_qs(urllib.parse.urlsplit(
            self.exports['b']).query)['socket']
        with contextlib.ExitStack() as stack:
            idle = []
            for _ in range(300):
                one = stack.enter_context(socket.socket(socket.AF_UNIX))
                one.settimeout(nbd.PATIENCE_S)
                one.connect(path)
                idle.append(one)
            self.read(stack.enter_context(nbd.Client(self.exports['b'])))
            # The oldest gave way.
            while idle[0].recv(64):
                pass

    def test_clients_that_vanish_with_reads_under_way_end_nothing_else(self):
        # nbdkit 1.32, which served the cache before, ended then.
        with nbd.Client(self.exports['b']) as other:
            for _ in range(20):
                with nbd.Client(self.exports['a']) as client:
                    # More than the socket has room for.
                    for block in range(64):
                        client.send(nbd.READ, block * 4096, 4096)
                other.send(nbd.READ, 0, 4096)
                self.assertEqual(0, other.receive().error)
        self.assertIsNone(self.process.poll())

    def test_garbage(self):
        for garbage in (b'', b'\n', b'{', b'[]\n', b'\xff' * 100000,
                        b'{"command": "status", "more": 1}\n',
                        b'{"command": "format"}\n'):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(self.control)
                try:
                    client.sendall(garbage)
                    client.shutdown(socket.SHUT_WR)
                    answer = client.recv(1 << 16)
                except (BrokenPipeError, ConnectionResetError):
                    # More than a command may have.
                    continue
                self.assertIn('error', json.loads(answer))
        self.assertEqual('ok', control.send(self.control, 'status')
                         ['device']['state'])

    def test_the_socket_is_its_users(self):
        self.assertEqual(0o600, os.stat(self.control).st_mode & 0o777)

    def test_unknown_volume(self):
        done = subprocess.run(
            self.command('flush', '--control', self.control, 'x'),
            capture_output=True, text=True)
        self.assertEqual(1, done.returncode)
        self.assertEqual(1, done.stderr.count('\n'), done.stderr)
        self.assertIn('volume x is not attached', done.stderr)


class TestRefused(CacheTest):

    def refused(self, *words, device='device'):
        done = subprocess.run(
            self.command('serve', '--device', str(self.directory / device),
                         '--socket', str(self.directory / 'other'),
                         '--control', str(self.directory / 'other-control'),
                         '--state', str(self.state), *words),
            capture_output=True, text=True, timeout=waiting.SECONDS)
        self.assertEqual((1, ''), (done.returncode, done.stdout), done.stderr)
        self.assertEqual(1, done.stderr.count('\n'), done.stderr)
        return done.stderr

    def test_two_processes_on_one_device(self):
        _, exports = self.start('--format')
        for words in ((), ('--format',)):
            text = self.refused('--capacity', str(CAPACITY), '--volume',
                                f'a={self.origins["a"]}', *words)
            self.assertIn('another process serves it', text)
        self.assertTrue(self.io(exports['a'], 'read 0 4k'))

    def test_devices_that_are_none(self):
        (self.directory / 'plain').write_bytes(bytes(100))
        (self.directory / 'zeroes').write_bytes(bytes(1 << 20))
        volume = ('--volume', f'a={self.origins["a"]}')
        for device, text in (('missing', '--format creates'),
                             ('plain', 'not a cache device'),
                             ('zeroes', 'not a cache device')):
            self.assertIn(text, self.refused('--capacity', '64', *volume,
                                             device=device))

    def test_another_capacity(self):
        process, _ = self.start('--format')
        self.end(process)
        text = self.refused('--capacity', '64', '--volume',
                            f'a={self.origins["a"]}')
        self.assertIn(f'formatted for {CAPACITY} blocks', text)

    def test_missing_origin(self):
        text = self.refused('--capacity', '64', '--format', '--volume',
                            f'a={self.directory}/none')
        self.assertIn(f'no file or device {self.directory}/none', text)
