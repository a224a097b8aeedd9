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
"""The rest of files, which the kernel reads from an image that arrives."""

import concurrent.futures
import os
import pathlib
import random
import shutil
import signal
import subprocess

from diffcache_openstack import _native
from tests.functional.lazy import http_source
from tests.functional.lazy import serving
from tests import waiting

CHUNK = 256 << 10
MARKS_AT, LEAVES = 128, 4


class FilesCase(serving.ServingTest):
    """An image with two files of 8 MiB, mounted from where it arrives.

    Subclasses set ``options`` of the mount, and make the image with the files
    of a folder in ``_make``.
    """

    options: str

    def setUp(self):
        super().setUp()
        numbers = random.Random(3)
        tree = self.folder / 'tree'
        tree.mkdir()
        for name in ('first', 'second'):
            (tree / name).write_bytes(numbers.randbytes(8 << 20))
        self.image = self.folder / 'image'
        self._make(tree)
        manifest = self.folder / 'manifest'
        self.manifest = _native.manifest_create(self.image, manifest)
        image = self.image.read_bytes()
        self.places = {image[at:at + 4096]: at
                       for at in range(0, len(image), 4096)}
        self.chunks = {path.name: self._chunks_of(path.read_bytes())
                       for path in tree.iterdir()}

    def _chunks_of(self, content: bytes) -> list[int]:
        """Return the chunks of a file, in its order."""
        chunks: dict[int, None] = {}
        for at in range(0, len(content), 4096):
            chunks[self.places[content[at:at + 4096]] // CHUNK] = None
        return list(chunks)

    def _serve(self, *words, source=None):
        self.start(source or self.image, '--manifest',
                   self.folder / 'manifest', *words)
        path = self.folder / 'guest'
        path.mkdir(exist_ok=True)
        subprocess.run(['mount', '-o', self.options, self.path, path],
                       check=True)
        self.addCleanup(subprocess.run, ['umount', path], check=True)
        return path

    def _read(self, path: pathlib.Path) -> None:
        """Read the first block of a file."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            self.assertEqual(
                (self.folder / 'tree' / path.name).read_bytes()[:4096],
                os.pread(descriptor, 4096, 0))
        finally:
            os.close(descriptor)

    def _kill_worker(self) -> None:
        """Kill the worker; return when the next one has taken over."""
        worker = self._read_status()['worker_pid']
        os.kill(worker, signal.SIGKILL)
        waiting.until(lambda: self._read_status()['worker_pid'] not in (
            None, worker), 'the next worker')

    def _absent(self, chunks) -> set[int]:
        """Return those of some chunks that have not arrived."""
        name = f'{self.manifest["content_id"]}.leaves'
        marks = (self.state / name).read_bytes()[MARKS_AT:]
        return {chunk for chunk in chunks
                if not all(marks[chunk * LEAVES:(chunk + 1) * LEAVES])}

    def _wait_for(self, chunks) -> None:
        waiting.until(lambda: not self._absent(chunks), 'chunks',
                      seen=lambda: self._absent(chunks))


class FilesTests:
    """What is tested with each filesystem."""

    def test_a_file_comes_when_its_first_block_is_read(self):
        guest = self._serve()
        first, second = self.chunks['first'], self.chunks['second']
        self.assertGreaterEqual(len(first), 32)
        self._read(guest / 'first')
        self._wait_for(first[:9])
        self.assertGreater(self._read_status()['prefetched'], 4)
        # Eight besides those that the kernel reads, at most 1 MiB; and
        # nothing of what is not read.
        self.assertTrue(self._absent(first[13:]))
        self.assertTrue(self._absent(set(second) - set(first)))

    def test_nothing_comes_where_nothing_is_prefetched(self):
        guest = self._serve('--no-prefetch')
        self._read(guest / 'first')
        self.assertEqual(0, self._read_status()['prefetched'])
        self.assertGreater(len(self._absent(self.chunks['first'])), 8)


class Ext4FilesTest(FilesTests, FilesCase):

    options = 'ro,loop,noload'

    def _make(self, tree):
        subprocess.run(['mke2fs', '-q', '-t', 'ext4', '-b', '4096', '-d', tree,
                        self.image, '48M'], check=True)

    def test_the_next_worker_finds_inodes_that_the_kernel_keeps(self):
        guest = self._serve()
        self._read(guest / 'first')
        self._kill_worker()
        self._read(guest / 'second')
        self._wait_for(self.chunks['second'][:9])
        self.assertEqual(1, self._read_status()['worker_restarts'])

    def test_a_read_that_the_next_worker_answers_is_followed(self):
        """The rest came once the guest had read something else."""
        server = http_source.start(self, self.image.read_bytes())
        guest = self._serve(source=server.url)
        self._read(guest / 'first')
        self._wait_for(self.chunks['first'][:9])
        server.mode = 'slow'
        asked = len(server.requests)
        pool = self.enterContext(concurrent.futures.ThreadPoolExecutor(1))
        reading = pool.submit(self._read, guest / 'second')
        waiting.until(lambda: len(server.requests) > asked, 'a request')
        self._kill_worker()
        server.mode = None
        server.is_fast.set()
        reading.result()
        self._wait_for(self.chunks['second'][:9])
        self.assertEqual(1, self._read_status()['worker_restarts'])


class XfsFilesTest(FilesTests, FilesCase):
    """A new worker knows its inodes when they are read again."""

    options = 'ro,loop,norecovery'

    def _make(self, tree):
        with self.image.open('wb') as file:
            file.truncate(300 << 20)
        subprocess.run(['mkfs.xfs', '-q', self.image], check=True)
        mount = self.folder / 'made'
        mount.mkdir()
        subprocess.run(['mount', '-o', 'loop', self.image, mount], check=True)
        try:
            for path in tree.iterdir():
                shutil.copy(path, mount)
        finally:
            subprocess.run(['umount', mount], check=True)
