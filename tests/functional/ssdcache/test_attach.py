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
"""Volumes that are attached, resized and detached while a cache runs."""

import json
import os
import signal
import socket
import subprocess
import threading

from diffcache_openstack.ssdcache import control
from testing import nbd
from tests.functional.ssdcache import test_serve
from tests import waiting

SIZE = test_serve.SIZE
CAPACITY = test_serve.CAPACITY


class AttachTest(test_serve.CacheTest):
    """Starts a cache without volumes."""

    def setUp(self):
        super().setUp()
        self.process, exports = self.start('--format', volumes=())
        self.assertEqual({}, exports)

    def uri(self, export):
        return f'nbd+unix:///{export}?socket={self.directory}/nbd'

    def attach(self, name, **fields):
        """Attach a volume; return the address of its export."""
        fields = {'origin': str(self.origins[name]), 'mode': 'write-through',
                  'limit': 256} | fields
        status = control.send(self.control, 'attach', volume=name, **fields)
        return self.uri(status['volumes'][name]['export'])

    def kill(self):
        """Kill the cache and start it again; return what it serves."""
        self.end(self.process)
        self.process, exports = self.start(volumes=())
        return exports


class TestAttach(AttachTest):

    def test_by_command(self):
        done = subprocess.run(
            self.command('attach', '--control', self.control, '-f', 'json',
                         'a', str(self.origins['a']), '--limit', '100'),
            capture_output=True, text=True, timeout=waiting.SECONDS)
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        found = json.loads(done.stdout)['volumes']['a']
        self.assertEqual((100, 'write-through'),
                         (found['limit'], found['mode']))
        self.assertTrue(self.io(self.uri(found['export']),
                                'write -P 7 0 64k', 'read -P 7 0 64k'))

    def test_exports_stay_over_a_kill_and_end_with_the_detach(self):
        one, other = self.attach('a'), self.attach('b', mode='write-around')
        self.assertTrue(self.io(one, 'write -P 7 0 64k'))
        control.send(self.control, 'set', volume='b', limit=300)
        self.assertEqual({'a': one, 'b': other}, self.kill())
        self.assertEqual((300, 'write-around'), (
            self.status('b')['limit'], self.status('b')['mode']))
        self.assertTrue(self.io(one, 'read -P 7 0 64k'))
        self.assertEqual((16, 0), (self.status('a')['hits'],
                                   self.status('a')['misses']))
        control.send(self.control, 'detach', volume='a')
        self.assertEqual({'b': other}, self.kill())
        self.assertFalse(self.io(one, 'read 0 4k'))
        again = self.attach('a')
        self.assertNotEqual(one, again)
        self.assertEqual(0, self.status('a')['blocks'])

    def test_kills_while_volumes_come_and_go(self):
        for name in ('a', 'b'):
            for number in range(20):
                (self.directory / f'{name}{number}').write_bytes(
                    bytes([number]) * 4096)
        for number in range(5):
            asked = threading.Event()

            def change(number=number, asked=asked):
                try:
                    for name in (f'a{number}', f'b{number}'):
                        control.send(
                            self.control, 'attach', volume=name, limit=9,
                            origin=f'{self.directory}/{name}',
                            mode='write-through')
                        asked.set()
                    control.send(self.control, 'detach', volume=f'a{number}')
                except control.CacheUnreachable:
                    pass  # It was killed.
                finally:
                    asked.set()

            thread = threading.Thread(target=change)
            thread.start()
            asked.wait(waiting.SECONDS)
            self.end(self.process)
            thread.join()
            self.process, exports = self.start(volumes=())
            # A cache that is whole, with what was answered for at least.
            status = control.send(self.control, 'status')
            self.assertEqual(set(exports), set(status['volumes']))
            for name, uri in exports.items():
                value = int(name[1:])
                self.assertTrue(self.io(uri, f'read -P {value} 0 4k'), name)
            for name in exports:
                control.send(self.control, 'detach', volume=name)

    def test_a_volume_that_a_start_names_belongs_to_it(self):
        export = self.attach('a')
        self.end(self.process)
        self.process, exports = self.start(volumes=('a,limit=10',))
        self.assertEqual({'a': export}, exports)
        self.assertEqual(10, self.status('a')['limit'])
        self.assertEqual({}, self.kill())

    def test_an_origin_that_is_missing_at_a_start(self):
        export = self.attach('a')
        self.assertTrue(self.io(export, 'write -P 7 0 64k'))
        away = self.directory / 'away'
        os.rename(self.origins['a'], away)
        self.assertEqual({'a': export}, self.kill())
        self.assertTrue(self.io(export, 'read -P 7 0 64k'))
        self.assertFalse(self.io(export, 'read 1M 4k'))
        self.assertFalse(self.io(export, 'write -P 8 0 4k'))
        os.rename(away, self.origins['a'])
        self.assertTrue(self.io(export, 'read -P 0 1M 4k',
                                'write -P 8 0 4k', 'read -P 8 0 4k'))

    def test_another_file_is_not_the_missing_origin(self):
        export = self.attach('a')
        os.rename(self.origins['a'], self.directory / 'away')
        self.kill()
        self.origins['a'].write_bytes(bytes(SIZE))
        self.assertFalse(self.io(export, 'write -P 8 0 4k'))
        self.assertEqual(bytes(4096),
                         self.origins['a'].read_bytes()[:4096])

    def test_write_back_survives_a_kill(self):
        export = self.attach('a', mode='write-back')
        self.assertTrue(self.io(export, 'write -P 7 0 64k', 'flush'))
        self.assertEqual({'a': export}, self.kill())
        self.assertEqual(16, self.status('a')['dirty'])
        control.send(self.control, 'detach', volume='a')
        self.assertEqual(b'\7', self.origins['a'].read_bytes()[:1])

    def test_the_origin_is_closed_by_the_detach(self):
        export = self.attach('a')
        with nbd.Client(export) as client:
            client.read(0, 4096)
            control.send(self.control, 'detach', volume='a')
            # It had its time to leave.
            self.assertRaises(OSError, client.read, 4096, 4096)
        self.attach('b')
        control.send(self.control, 'detach', volume='b')
        folder = f'/proc/{self.process.pid}/fd'
        opened = [os.readlink(f'{folder}/{name}')
                  for name in os.listdir(folder)]
        for origin in self.origins.values():
            self.assertNotIn(str(origin), opened)


class TestResize(AttachTest):

    def test_a_volume_that_grew(self):
        export = self.attach('a')
        self.assertTrue(self.io(export, 'write -P 7 0 64k'))
        os.truncate(self.origins['a'], SIZE + 5120)
        self.assertFalse(self.io(export, f'read {SIZE} 4k'))
        control.send(self.control, 'resize', volume='a')
        self.assertTrue(self.io(export, f'write -P 9 {SIZE} 5120',
                                'read -P 7 0 64k'))
        self.assertEqual({'a': export}, self.kill())
        self.assertTrue(self.io(export, f'read -P 9 {SIZE} 5120'))
        self.assertEqual(0, self.status('a')['misses'])

    def test_a_volume_that_became_smaller(self):
        self.attach('a')
        os.truncate(self.origins['a'], SIZE // 2)
        error = self.assertRaises(control.CommandRefused, control.send,
                                  self.control, 'resize', volume='a')
        self.assertIn('fewer than', str(error))


class TestRefused(AttachTest):

    def refused(self, **fields):
        fields = {'volume': 'v', 'origin': str(self.origins['a']),
                  'mode': 'write-through', 'limit': 1} | fields
        error = self.assertRaises(control.CommandRefused, control.send,
                                  self.control, 'attach', **fields)
        self.assertEqual({}, control.send(self.control, 'status')['volumes'])
        return str(error)

    def test_hostile_commands(self):
        fifo = self.directory / 'fifo'
        os.mkfifo(fifo)
        for fields, reason in (
                ({'volume': ''}, '1 to 255 bytes'),
                ({'volume': 'x' * 256}, '1 to 255 bytes'),
                ({'volume': 7}, 'not a command'),
                ({'origin': 'relative'}, 'relative'),
                ({'origin': '/' + 'x' * 1000}, 'File name too long'),
                ({'origin': '/nowhere/x'}, 'No such file'),
                ({'origin': '/etc\0/passwd'}, 'unexpected NUL'),
                ({'origin': str(self.directory)}, 'directory'),
                ({'origin': str(fifo)}, 'neither a file'),
                ({'origin': '/dev/null'}, 'neither a file'),
                ({'mode': 'fast'}, 'no such mode'),
                ({'limit': -1}, 'not a command'),
                ({'limit': 1 << 32}, 'not a command'),
                ({'limit': CAPACITY + 1}, 'limits add up to'),
                ({'sequential': -1}, 'not a command'),
                ({'admission': 17}, 'their reference number 1 to 15'),
                ({'format': True}, 'not a command')):
            self.assertIn(reason, self.refused(**fields), fields)

    def test_a_device_that_the_host_uses(self):
        """The host's own disk is mounted, or part of another device."""
        loop = self.loop(self.origins['a'])
        flags = os.O_RDWR | os.O_EXCL
        host = os.open(loop, flags)
        try:
            self.assertIn('uses this device', self.refused(origin=loop))
        finally:
            os.close(host)
        self.attach('a', origin=loop)
        # The same again, although this process has it.
        self.attach('a', origin=loop, limit=9)
        self.assertRaises(OSError, os.open, loop, flags)
        control.send(self.control, 'detach', volume='a')
        os.close(os.open(loop, flags))

    def loop(self, path):
        """Return a block device of a file."""
        try:
            found = subprocess.run(
                ['losetup', '--show', '--find', str(path)], text=True,
                capture_output=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f'needs a loop device: {error}')
        self.addCleanup(subprocess.run, ['losetup', '--detach', found],
                        check=True)
        return found

    def test_another_origin(self):
        self.attach('a')
        error = self.assertRaises(control.CommandRefused, self.attach, 'a',
                                  origin=str(self.origins['b']))
        self.assertIn('attached with another origin', str(error))

    def test_a_client_that_leaves_before_the_answer(self):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self.control)
            client.sendall(json.dumps({
                'command': 'attach', 'volume': 'a', 'mode': 'write-through',
                'origin': str(self.origins['a']), 'limit': 9,
            }).encode() + b'\n')
        # The same again is without effect, whether or not it was executed.
        self.attach('a', limit=9)
        self.assertEqual(0, self.end(self.process, signal.SIGTERM))

    def test_many_at_the_same_time(self):
        failed = []

        def attach():
            try:
                self.attach('a')
            except control.CommandRefused as error:
                failed.append(error)

        threads = [threading.Thread(target=attach) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([], failed)
        self.assertEqual(['a'], list(
            control.send(self.control, 'status')['volumes']))
