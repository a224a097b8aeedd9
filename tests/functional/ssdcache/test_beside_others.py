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
"""The cache beside other servers of NBD, and under other programs' checks.

What our own client reads right could be wrong by the same mistake twice:
QEMU, libnbd and fio are written by others, and so is nbdkit.
"""

import os
import random
import shutil
import signal
import subprocess

from tests.functional.ssdcache import test_serve
from tests import waiting

SEED = int(os.environ.get('DIFFCACHE_BESIDE_SEED', '1'))
ROUNDS = int(os.environ.get('DIFFCACHE_BESIDE_ROUNDS', '6'))
COMMANDS = 60
# Smaller than a volume, so that blocks are evicted.
OPTIONS = 'mode=write-back,limit=512'


def commands(chance):
    """Yield commands of qemu-io: most of them change what a disk has."""
    for _ in range(COMMANDS):
        start = chance.randrange(test_serve.SIZE // 512) * 512
        # Of a sector up to 256 KiB, small ones more often.
        size = 512 << chance.randrange(10)
        size = min(size, test_serve.SIZE - start)
        kind = chance.choice(('write -P', 'write -P', 'write -P', 'write -z',
                              'write -z -u', 'discard', 'read', 'flush'))
        if kind == 'write -P':
            kind += f' {chance.randrange(1, 256)}'
        yield kind if kind == 'flush' else f'{kind} {start} {size}'


class BesideTest(test_serve.CacheTest):
    """Compares one volume in write-back with what others have."""

    def compare(self, one, other):
        """Fail unless two disks have the same content."""
        done = subprocess.run(
            ['qemu-img', 'compare', '-f', 'raw', '-F', 'raw', one, other],
            capture_output=True, text=True, timeout=waiting.SECONDS)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)


class TestNbdkit(BesideTest):

    def setUp(self):
        super().setUp()
        if shutil.which('nbdkit') is None:
            self.skipTest('needs nbdkit')
        socket = self.directory / 'nbdkit'
        server = subprocess.Popen(
            ['nbdkit', '--foreground', '--exit-with-parent', '--unix',
             str(socket), 'memory', str(test_serve.SIZE)])
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        waiting.until_started(server, socket.exists, 'nbdkit')
        self.other = f'nbd+unix:///?socket={socket}'

    def test_the_same_commands_leave_the_same_content(self):
        process, exports = self.start('--format', volumes=(f'a,{OPTIONS}',))
        for number in range(ROUNDS):
            work = list(commands(random.Random(SEED + number)))
            for address in (exports['a'], self.other):
                self.assertTrue(self.io(address, *work), SEED + number)
            self.compare(exports['a'], self.other)
            if number % 2:
                # What was flushed is there after the end of the cache.
                self.assertTrue(self.io(exports['a'], 'flush'))
                self.end(process)
                process, exports = self.start(volumes=(f'a,{OPTIONS}',))
                self.compare(exports['a'], self.other)
        self.assertEqual(0, self.status('a')['corrupted'])
        self.assertEqual(0, self.end(process, signal.SIGTERM))
        self.compare(str(self.origins['a']), self.other)


class TestFio(BesideTest):

    def setUp(self):
        super().setUp()
        engines = subprocess.run(['fio', '--enghelp'], capture_output=True,
                                 text=True) if shutil.which('fio') else None
        if engines is None or 'nbd' not in engines.stdout.split():
            self.skipTest('needs fio with the engine nbd')

    def test_fio_finds_what_it_wrote(self):
        _, exports = self.start('--format', volumes=(f'a,{OPTIONS}',))
        done = subprocess.run(
            ['fio', '--name=verify', '--ioengine=nbd',
             f'--uri={exports["a"]}', f'--size={test_serve.SIZE}',
             '--rw=randrw', '--rwmixwrite=60', '--bsrange=4k-64k',
             '--iodepth=16', '--loops=3', f'--randseed={SEED}',
             '--verify=crc32c', '--verify_fatal=1', '--verify_backlog=256',
             '--fsync=64'],
            capture_output=True, text=True, timeout=waiting.SECONDS,
            cwd=self.directory)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn('err= 0', done.stdout)
        found = self.status('a')
        self.assertLess(0, found['evictions'], found)
        self.assertEqual(0, found['corrupted'])
