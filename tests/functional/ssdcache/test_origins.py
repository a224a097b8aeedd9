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
"""Origins that are not files: servers of NBD, and what QEMU opens."""

import json
import os
import pathlib
import shutil
import signal
import subprocess

from diffcache_openstack.ssdcache import control
from testing import nbd
from tests.functional.ssdcache import test_serve
from tests import waiting

ENOSPC = 28


class OriginTest(test_serve.CacheTest):
    """A cache without volumes of its own."""

    def setUp(self):
        super().setUp()
        self.socket = self.directory / 'origin'
        self.image = self.directory / 'image'
        with open(self.image, 'wb') as image:
            image.truncate(test_serve.SIZE)

    def serve_image(self, option=(), parameter=()):
        """Serve the image over NBD; return the server's process."""
        self.socket.unlink(missing_ok=True)
        server = subprocess.Popen(
            ['nbdkit', '--foreground', '--exit-with-parent', '--unix',
             str(self.socket), *option, 'file', str(self.image), *parameter])
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        waiting.until_started(server, self.socket.exists, 'nbdkit')
        return server

    def wait_until(self, is_so):
        waiting.until(is_so, 'the cache')

    @property
    def address(self):
        return f'nbd+unix:///?socket={self.socket}'

    def attach(self, origin, name='v'):
        """Attach an origin; return the address of its export."""
        status = control.send(self.control, 'attach', volume=name,
                              origin=origin, mode='write-through', limit=256,
                              sequential=0)
        export = status['volumes'][name]['export']
        return f'nbd+unix:///{export}?socket={self.directory / "nbd"}'

    def refusal(self, origin):
        """Return why an origin is not attached."""
        with self.assertRaises(control.CommandRefused) as caught:
            self.attach(origin)
        return str(caught.exception)


class TestNbdOrigins(OriginTest):

    def test_reads_and_writes(self):
        self.serve_image()
        self.start('--format', volumes=())
        export = self.attach(self.address)
        self.assertTrue(self.io(
            export, 'write -P 7 64k 128k', 'write -P 8 65000 1000',
            'read -P 8 65000 1000', 'write -z 128k 4k', 'flush',
            'read -P 0 512k 64k', 'read -P 0 512k 64k'))
        content = self.image.read_bytes()
        self.assertEqual(b'\7' * 100, content[70000:70100])
        self.assertEqual(bytes([8]) * 1000, content[65000:66000])
        self.assertEqual(bytes(4096), content[128 << 10:132 << 10])
        self.assertGreaterEqual(self.status('v')['hits'], 16)

    def test_a_server_that_is_gone_and_returns(self):
        server = self.serve_image()
        self.start('--format', volumes=())
        export = self.attach(self.address)
        self.assertTrue(self.io(export, 'write -P 7 0 64k', 'flush'))
        server.kill()
        server.wait()
        self.assertTrue(self.io(export, 'read -P 7 0 64k'))
        self.assertFalse(self.io(export, 'read 1M 4k'))
        self.assertFalse(self.io(export, 'write -P 9 1M 4k'))
        self.serve_image()
        # After a failure there is no attempt for a second.
        self.wait_until(lambda: self.io(export, 'write -P 9 1M 4k'))
        self.assertTrue(self.io(export, 'flush', 'read -P 9 1M 4k',
                                'read -P 7 0 64k'))

    def test_a_volume_that_shrank_or_grew_meanwhile(self):
        server = self.serve_image()
        self.start('--format', volumes=())
        export = self.attach(self.address)
        for size in (test_serve.SIZE // 2, test_serve.SIZE * 2):
            server.kill()
            server.wait()
            os.truncate(self.image, size)
            server = self.serve_image()
            self.assertFalse(self.io(export, 'read 1M 4k'))
        control.send(self.control, 'resize', volume='v')
        self.assertTrue(self.io(
            export, f'write -P 7 {test_serve.SIZE} 4k'))
        self.assertEqual(7, self.image.read_bytes()[test_serve.SIZE])

    def test_a_cache_starts_before_the_server(self):
        server = self.serve_image()
        process, _ = self.start('--format', volumes=())
        export = self.attach(self.address)
        self.assertTrue(self.io(export, 'write -P 7 0 64k', 'flush'))
        self.end(process)
        server.kill()
        server.wait()
        self.start(volumes=())
        self.assertTrue(self.io(export, 'read -P 7 0 64k'))
        self.assertFalse(self.io(export, 'read 1M 4k'))
        self.serve_image()
        self.wait_until(lambda: self.io(export, 'read -P 0 1M 4k'))

    def test_errors_are_those_of_the_origin(self):
        self.serve_image(['--filter=error'], [
            'error-pwrite=ENOSPC', 'error-pwrite-rate=100%'])
        self.start('--format', volumes=())
        with nbd.Client(self.attach(self.address)) as client:
            client.send(nbd.WRITE, 0, data=bytes(4096))
            self.assertEqual(ENOSPC, client.receive().error)
            client.send(nbd.READ, 0, 4096)
            self.assertEqual(0, client.receive().error)
        # The write left nothing that the read could have found.
        self.assertEqual(0, self.status('v')['hits'])

    def test_what_is_refused(self):
        self.serve_image(['--readonly'])
        self.start('--format', volumes=())
        self.assertIn('for reading only', self.refusal(self.address))
        self.assertIn('No such file', self.refusal(
            f'nbd+unix:///?socket={self.directory}/none'))
        for origin in ('nbds://localhost/x', 'relative', 'json:{"a":1}',
                       'json:[]', 'nbd+unix:///x'):
            self.refusal(origin)


class TestOriginsOfQemu(OriginTest):
    """What qemu-storage-daemon opens; a daemon for each."""

    def setUp(self):
        super().setUp()
        if shutil.which('qemu-storage-daemon') is None:
            self.skipTest('needs qemu-storage-daemon, of the package'
                          ' qemu-utils or qemu-system-common')

    def options(self, **file):
        return 'json:' + json.dumps({'driver': 'qcow2', 'file': {
            'driver': 'file', 'filename': str(self.qcow2), **file}})

    @property
    def qcow2(self):
        path = self.directory / 'image.qcow2'
        if not path.exists():
            subprocess.run(['qemu-img', 'create', '-q', '-f', 'qcow2',
                            str(path), str(test_serve.SIZE)], check=True)
        return path

    def daemons(self):
        """Return the numbers of the daemons that have this test's image."""
        found = []
        for entry in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
            try:
                words = entry.read_bytes().split(b'\0')
            except OSError:
                continue
            if words[0].endswith(b'qemu-storage-daemon') and any(
                    os.fsencode(self.directory) in word for word in words):
                found.append(int(entry.parent.name))
        return found

    def test_reads_and_writes_of_an_image(self):
        self.start('--format', volumes=())
        export = self.attach(self.options())
        self.assertTrue(self.io(export, 'write -P 7 64k 128k', 'flush',
                                'read -P 7 64k 128k', 'read -P 0 1M 64k'))
        self.assertEqual(1, len(self.daemons()))
        # The same origin again is the same daemon.
        self.assertEqual(export, self.attach(self.options()))
        self.assertEqual(1, len(self.daemons()))
        control.send(self.control, 'detach', volume='v')
        self.wait_until(lambda: not self.daemons())
        raw = self.directory / 'raw'
        subprocess.run(['qemu-img', 'convert', '-f', 'qcow2', '-O', 'raw',
                        str(self.qcow2), str(raw)], check=True)
        self.assertEqual(bytes([7]) * (128 << 10),
                         raw.read_bytes()[64 << 10:192 << 10])

    def test_a_daemon_that_is_killed_is_started_again(self):
        self.start('--format', volumes=())
        export = self.attach(self.options())
        self.assertTrue(self.io(export, 'write -P 7 0 64k', 'flush'))
        [daemon] = self.daemons()
        os.kill(daemon, signal.SIGKILL)
        self.assertTrue(self.io(export, 'read -P 0 1M 64k',
                                'write -P 8 2M 64k', 'flush'))
        self.assertNotEqual([daemon], self.daemons())

    def test_a_cache_that_is_killed_takes_its_daemons_with_it(self):
        process, _ = self.start('--format', volumes=())
        export = self.attach(self.options())
        self.assertTrue(self.io(export, 'write -P 7 0 64k', 'flush'))
        self.end(process)
        self.wait_until(lambda: not self.daemons())
        self.start(volumes=())
        self.assertTrue(self.io(export, 'read -P 7 0 64k',
                                'read -P 0 1M 64k'))
        self.assertEqual(16, self.status('v')['hits'])

    def test_an_image_that_grew(self):
        origin = 'json:' + json.dumps(
            {'driver': 'file', 'filename': str(self.image)})
        self.start('--format', volumes=())
        export = self.attach(origin)
        self.assertTrue(self.io(export, 'write -P 7 0 64k'))
        os.truncate(self.image, 2 * test_serve.SIZE)
        control.send(self.control, 'resize', volume='v')
        self.assertTrue(self.io(export, f'write -P 8 {test_serve.SIZE} 4k',
                                'read -P 7 0 64k', 'flush'))
        self.assertEqual(8, self.image.read_bytes()[test_serve.SIZE])

    def test_what_qemu_cannot_open(self):
        self.start('--format', volumes=())
        origin = 'json:' + json.dumps(
            {'driver': 'file', 'filename': str(self.directory / 'none')})
        self.assertIn('No such file', self.refusal(origin))
        self.assertEqual([], self.daemons())


class TestBlockDevices(OriginTest):

    def setUp(self):
        super().setUp()
        done = subprocess.run(
            ['losetup', '--show', '--find', str(self.image)],
            capture_output=True, text=True)
        if done.returncode:
            self.skipTest(f'needs loop devices: {done.stderr.strip()}')
        self.device = done.stdout.strip()
        self.addCleanup(subprocess.run, ['losetup', '-d', self.device])

    def test_any_range_past_the_page_cache(self):
        process, _ = self.start('--format', volumes=())
        export = self.attach(self.device)
        self.assertTrue(self.io(
            export, 'write -P 7 64k 128k', 'write -P 8 65000 1000',
            'read -P 8 65000 1000', 'read -P 7 66000 1000',
            'write -z 128k 4k', 'flush', 'read -P 0 512k 64k'))
        content = self.image.read_bytes()
        self.assertEqual(bytes([8]) * 1000, content[65000:66000])
        self.assertEqual(bytes(4096), content[128 << 10:132 << 10])
        device = os.stat(self.device).st_rdev
        opened = [entry for entry in pathlib.Path(
            f'/proc/{process.pid}/fd').iterdir()
            if os.stat(entry).st_rdev == device]
        self.assertNotEqual([], opened)
        for entry in opened:
            info = (entry.parent.parent / 'fdinfo' / entry.name).read_text()
            [flags] = [line.split()[1] for line in info.splitlines()
                       if line.startswith('flags:')]
            self.assertTrue(int(flags, 8) & os.O_DIRECT)
