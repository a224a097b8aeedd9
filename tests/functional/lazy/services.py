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
"""What tests of diffcached as a service share."""

import os
import pathlib
import random
import select
import shutil
import signal
import subprocess
import sys

import fixtures

from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.cmd.toolbox import lazy
from diffcache_openstack.common import exceptions
from tests import base
from tests import waiting

SERVICE = ('import sys; from diffcache_openstack.cmd import lazy_service;'
           ' sys.exit(lazy_service.main())')
KEY = bytes(range(32))
MIB = 1 << 20


class LazyServicesTest(base.TestCase):
    """Images, data planes, and services of hosts, in one folder."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or not os.path.exists('/dev/fuse'):
            self.skipTest('mounting FUSE needs root and /dev/fuse')
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.folder / 'key').write_text(KEY.hex())
        (self.folder / 'key').chmod(0o600)

    def make_image(self, name, seed):
        """An image of 12 MiB, a third of which is zeros; returns its id."""
        numbers = random.Random(seed)
        # Half of each block compresses well.
        return self.store_image(name, b''.join(
            bytes(MIB) if i % 3 == 0
            else numbers.randbytes(MIB // 2) + b'x' * (MIB // 2)
            for i in range(12)) + numbers.randbytes(12345))

    def store_image(self, name, content):
        """An image with this content, and its manifest; returns its id."""
        path = self.folder / name
        path.write_bytes(content)
        manifest = self.folder / f'{name}.manifest'
        found = _native.manifest_create(path, manifest)
        path.rename(self.folder / found['content_id'])
        manifest.rename(self.manifest(found['content_id']))
        return found['content_id']

    def content(self, image):
        return (self.folder / image).read_bytes()

    def manifest(self, image):
        return self.folder / f'{image}.manifest'

    def plane(self, name, *images, compressed=True):
        """A host's data plane with some images."""
        root = self.folder / name
        plane = native_plane.DataPlane(
            root, name, '127.0.0.1:0', KEY, key_name='site')
        self.addCleanup(plane.close)
        for image in images:
            shutil.copy(self.folder / image, root / 'images' / image)
            if compressed:
                _native.compressed_create(
                    self.folder / image, self.manifest(image),
                    root / 'compressed' / image, 3)
        return plane

    def start_service(self, folder):
        """Start diffcached with its socket, state and mount in a folder."""
        file = self.write_configuration(folder)
        return self.launch(folder, sys.executable, '-c', SERVICE,
                           '--config-file', file)

    def write_configuration(self, folder):
        """Write the configuration of a folder's service; return its path."""
        folder.mkdir(exist_ok=True)
        (folder / 'conf').write_text(
            f'[lazy]\nsocket = {folder}/socket\n'
            f'state_dir = {folder}/state\n'
            f'mount = {folder}/mount\n'
            f'[data_plane]\nkey_file = {self.folder}/key\n')
        return str(folder / 'conf')

    def launch(self, folder, *words):
        """Start a folder's service, and wait until it answers."""
        process = subprocess.Popen(words)
        # After the service, which would start keepers again.
        self.addCleanup(self._end_keepers, folder)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        found = diffcached.Diffcached(f'{folder}/socket')
        self.wait_until(lambda: self.answers(found))
        return process

    def answers(self, found):
        try:
            found.images()
        except exceptions.ServiceUnavailable:
            return False
        return True

    def _end_keepers(self, folder):
        """End what a service leaves running when it ends, and its mounts."""
        for image in (folder / 'state' / 'images').iterdir():
            try:
                keeper = lazy._read_status(str(image))['pid']
                descriptor = os.pidfd_open(keeper)
            except (lazy.NotServed, ProcessLookupError):
                continue
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            select.select([descriptor], [], [], waiting.SECONDS)
            os.close(descriptor)
        # Of keepers that were killed.
        for mount in (folder / 'mount').iterdir():
            subprocess.run(['umount', '--lazy', mount], check=False,
                           capture_output=True)

    def wait_until(self, condition):
        return waiting.until(condition, 'diffcached')

    @staticmethod
    def answered(daemon, image=None):
        """The status of an image, of the only one unless named.

        A keeper that is started, or waits for a processor, answers later.
        """
        def find():
            found = [each for each in daemon.images()
                     if image in (None, each['content_id'])]
            return len(found) == 1 and 'error' not in found[0] and found[0]

        return waiting.until(find, 'a keeper', seen=daemon.images)
