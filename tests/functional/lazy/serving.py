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
"""What tests of ``diffcache lazy serve`` share."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import fixtures

from diffcache_openstack.cmd.toolbox import lazy
from tests import base

TOOLBOX = 'import sys; from diffcache_openstack.cmd.toolbox import app; ' \
          'sys.exit(app.main())'


class ServingTest(base.TestCase):
    """A folder to mount at, and one for the state.

    :ivar ready: what the command printed when the file could be read
    :ivar path: of that file
    """

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or not os.path.exists('/dev/fuse'):
            self.skipTest('mounting FUSE needs root and /dev/fuse')
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.folder / 'mount').mkdir()
        self.state = self.folder / 'state'

    def words(self, source, *words):
        """The command that serves something."""
        return [sys.executable, '-c', TOOLBOX, 'lazy', 'serve', str(source),
                '--mount', str(self.folder / 'mount'), '--state',
                str(self.state), *map(str, words)]

    def start(self, source, *words, **options):
        process = subprocess.Popen(self.words(source, *words),
                                   stdout=subprocess.PIPE, **options)
        self.addCleanup(self._stop, process)
        self.ready = json.loads(process.stdout.readline())
        self.assertIs(True, self.ready['ready'])
        self.path = self.ready['path']
        return process

    def _stop(self, process):
        """End what was started; return its exit code."""
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        code = process.wait()
        process.stdout.close()
        return code

    def _read_status(self):
        return lazy._read_status(str(self.state))

    def _read_once(self, offset, length):
        """Read past the page cache, which attempts what failed again."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        try:
            return os.pread(descriptor, length, offset)
        finally:
            os.close(descriptor)
