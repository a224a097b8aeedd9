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
"""What the toolbox leaves where something stops it, and very large images."""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys

from diffcache_openstack.blocks.codecs import registry
from tests import base
from tests import waiting

_TOOLBOX = 'import sys; from diffcache_openstack.cmd.toolbox import app; ' \
           'sys.exit(app.main())'
_TIB = 1 << 40

#: Closes a file that has no name, and says that its bytes did not arrive.
_SHIM = '''
#define _GNU_SOURCE
#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int close(int fd)
{
    struct stat found;
    int nameless = fstat(fd, &found) == 0 && S_ISREG(found.st_mode)
                   && found.st_nlink == 0 && found.st_size > 0;
    int closed = syscall(SYS_close, fd);
    if (nameless) {
        errno = EIO;
        return -1;
    }
    return closed;
}
'''


class OutputTest(base.TestCase):

    def setUp(self):
        super().setUp()
        words = random.Random(1)
        vocabulary = [words.randbytes(words.randrange(2, 12))
                      for _ in range(3000)]
        for name in ('base', 'target'):
            self.write_file(name, b''.join(
                words.choice(vocabulary) for _ in range(1_500_000)))

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def start(self, *argv: str, **environment: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, '-c', _TOOLBOX, *argv],
            env=os.environ | environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def start_writing(self) -> subprocess.Popen:
        """Start to make a patch, which takes long; return in the middle."""
        process = self.start(
            'patch', 'create', self.path('base'), self.path('target'),
            self.path('patch'), '--codec', 'block', '--level', '19')
        waiting.until_started(
            process, lambda: self.has_output(process.pid), 'the toolbox')
        return process

    def has_output(self, pid: int) -> bool:
        inputs = {self.path('base'), self.path('target')}
        opened = set()
        for fd in pathlib.Path(f'/proc/{pid}/fd').iterdir():
            try:
                opened.add(os.readlink(fd))
            except FileNotFoundError:
                continue
        return any(name.startswith(self.path('')) and name not in inputs
                   for name in opened)

    def assert_nothing_left(self) -> None:
        self.assertEqual({'base', 'target'}, set(os.listdir(self.directory)))

    def has_nameless_files(self) -> bool:
        try:
            os.close(os.open(self.directory, os.O_TMPFILE | os.O_RDWR))
        except OSError:
            return False
        return True

    def test_an_interrupted_patch_leaves_nothing(self):
        process = self.start_writing()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=waiting.SECONDS)
        self.assertEqual(130, process.returncode)
        self.assert_nothing_left()

    def test_a_killed_patch_leaves_nothing(self):
        if not self.has_nameless_files():
            self.skipTest('needs a filesystem with nameless files (O_TMPFILE)')
        process = self.start_writing()
        process.kill()
        process.communicate(timeout=waiting.SECONDS)
        self.assert_nothing_left()

    def test_an_error_of_close_is_an_error(self):
        compiler = shutil.which('cc')
        if compiler is None or not self.has_nameless_files():
            self.skipTest('needs a C compiler (package gcc) and a filesystem '
                          'with nameless files (O_TMPFILE)')
        source = self.write_file('../shim.c', _SHIM.encode())
        shim = source.with_suffix('.so')
        for path in (source, shim):
            self.addCleanup(path.unlink, missing_ok=True)
        subprocess.run([compiler, '-shared', '-fPIC', '-o', shim, source],
                       check=True)
        process = self.start(
            'patch', 'create', self.path('base'), self.path('target'),
            self.path('patch'), '--codec', 'block', '--level', '1',
            LD_PRELOAD=str(shim))
        _, error = process.communicate(timeout=waiting.SECONDS)
        self.assertEqual(1, process.returncode)
        self.assertIn('Input/output error', error)
        self.assertIn(self.path('patch'), error)
        self.assert_nothing_left()


class LargeTest(base.TestCase):
    """Images of more than 2 TiB, nearly all of them holes."""

    def write_sparse(self, name: str, size: int, seeds: dict) -> str:
        """Write 64 KiB of noise at each offset; return the path."""
        path = self.directory / name
        with path.open('wb') as stream:
            stream.truncate(size)
            for offset, seed in seeds.items():
                stream.seek(offset)
                noise = random.Random(seed).randbytes(64 << 10)
                stream.write(noise[:size - offset])
        return str(path)

    def test_data_beyond_2_tib_and_unaligned_ends(self):
        size = 2 * _TIB + 100_000
        origin = self.write_sparse('base', size, {
            0: 1, 2 * _TIB - (32 << 10): 2, size - 3000: 3})
        target = self.write_sparse('target', size - 777, {
            0: 1, _TIB: 2, 2 * _TIB - (32 << 10): 4, size - 3000: 3})
        patch, output = (str(self.directory / name)
                         for name in ('patch', 'output'))
        codec = registry.get('block')
        made = codec.create(origin, target, patch)
        self.assertEqual(16 + 1, made.blocks_inserted)
        self.assertEqual(16 + 16 + 1, made.blocks_copied)
        codec.apply(origin, patch, output)
        self.assertEqual(os.stat(target).st_size, os.stat(output).st_size)
        self.assertLess(os.stat(output).st_blocks * 512, 1 << 20)
        for offset in (0, _TIB, 2 * _TIB - (32 << 10), size - 3000):
            with open(target, 'rb') as one, open(output, 'rb') as other:
                one.seek(offset)
                other.seek(offset)
                self.assertEqual(one.read(80 << 10), other.read(80 << 10))
