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
"""One image that ``diffcache lazy serve`` serves, and its readers."""

import errno
import json
import os
import random
import subprocess
import sys

from tests.functional.lazy import http_source
from tests.functional.lazy import serving
from tests import waiting

# Reads past the page cache at least 200 times, and until the file is there
# that is named last; prints how long the reads took.
_READER = '''
import json, os, random, sys, time
path, image, seed, end = sys.argv[1:]
expected = open(image, 'rb').read()
numbers = random.Random(int(seed))
descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
times = []
while len(times) < 200 or not os.path.exists(end):
    offset = numbers.randrange(len(expected))
    length = numbers.choice([1, 4096, 65537, 1 << 20])
    start = time.monotonic()
    got = os.pread(descriptor, length, offset)
    times.append(time.monotonic() - start)
    # What crosses a page at its end may be read in two parts.
    assert got and got == expected[offset:offset + len(got)], (offset, length)
print(json.dumps(times))
'''


class ServedImageTest(serving.ServingTest):

    def setUp(self):
        super().setUp()
        numbers = random.Random(1)
        self.content = b''.join(
            bytes(1 << 20) if i % 3 == 0 else numbers.randbytes(1 << 20)
            for i in range(12)) + numbers.randbytes(12345)
        self.image = self.folder / 'image'
        self.image.write_bytes(self.content)
        self._toolbox('image', 'manifest', self.image,
                      self.folder / 'manifest')

    def _toolbox(self, *words, **options):
        return subprocess.run(
            [sys.executable, '-c', serving.TOOLBOX, *map(str, words)],
            check=True, capture_output=True, text=True, **options).stdout

    def _serve(self, source=None, *words, **options):
        return self.start(source or self.image, '--manifest',
                          self.folder / 'manifest', *words, **options)

    def _status(self):
        return json.loads(self._toolbox(
            'lazy', 'status', '--state', self.state, '-f', 'json'))

    def _wait_for(self, **expected):
        """Wait until the status has some values; return all of it."""
        def find():
            status = self._read_status()
            return expected.items() <= status.items() and status

        return waiting.until(find, str(expected), seen=lambda: {
            name: self._read_status()[name] for name in expected})

    def _http(self, port=0):
        server = http_source.start(self, self.content, port)
        return server, server.url

    def _read(self, offset, length):
        with open(self.path, 'rb', buffering=0) as file:
            return os.pread(file.fileno(), length, offset)

    def _assert_fails(self, offset):
        error = self.assertRaises(OSError, self._read_once, offset, 100)
        self.assertEqual(errno.EIO, error.errno)

    def _assert_reads(self, offset):
        self.assertEqual(self.content[offset:offset + 100],
                         self._read_once(offset, 100))

    def _readers(self, end='/'):
        return [subprocess.Popen([sys.executable, '-c', _READER, self.path,
                                  str(self.image), str(seed), str(end)],
                                 stdout=subprocess.PIPE, text=True)
                for seed in range(3)]

    def _end(self, readers):
        """Return how long each read took; none may have failed."""
        outputs = [reader.communicate()[0] for reader in readers]
        self.assertEqual([0, 0, 0], [reader.returncode for reader in readers])
        return sorted(t for output in outputs for t in json.loads(output))
