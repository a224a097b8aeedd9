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
"""What tests of versions share: disks that change, and their contents."""

import contextlib
import hashlib
import os
import pathlib
import random
import select
import shutil
import signal
import subprocess
import tempfile
from typing import Iterator

from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store.access import store_access
from tests import base

BLOCK = 4096
NEEDS_QEMU = 'needs the programs of the package qemu-utils'


def has_qemu() -> bool:
    """Whether qcow2 disks can be made here."""
    return all(map(shutil.which, ('qemu-img', 'qemu-io', 'qemu-nbd')))


def digest(content: bytes) -> str:
    """What stands for a long content in messages of tests."""
    return f'{len(content)} bytes, {hashlib.sha256(content).hexdigest()[:16]}'


def make_qcow2(path: pathlib.Path, size: int,
               backing: pathlib.Path | None = None) -> None:
    """An empty disk, or one that lies on a raw base."""
    options = ['-b', str(backing), '-F', 'raw'] if backing else []
    subprocess.run(['qemu-img', 'create', '-q', '-f', 'qcow2', *options,
                    str(path), str(size)], check=True)


def qemu_io(path: pathlib.Path, *commands: str) -> None:
    """Let QEMU write to a qcow2 disk."""
    arguments = [each for command in commands for each in ('-c', command)]
    subprocess.run(['qemu-io', '-f', 'qcow2', *arguments, str(path)],
                   check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def guest_of(path: pathlib.Path, disk_format: str = 'raw'
             ) -> Iterator[pathlib.Path]:
    """Have QEMU use a disk, locked as a guest's, for a ``with`` block.

    :returns: the socket by which it is served
    """
    with tempfile.TemporaryDirectory(prefix='diffcache-') as directory:
        socket = pathlib.Path(directory) / 'nbd'
        pid_file = pathlib.Path(directory) / 'pid'
        # Returns when it is served.
        subprocess.run(
            ['qemu-nbd', '--fork', '--persistent', '-k', str(socket),
             '--pid-file', str(pid_file), '-f', disk_format, str(path)],
            check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        ended = os.pidfd_open(int(pid_file.read_text()))
        try:
            yield socket
        finally:
            signal.pidfd_send_signal(ended, signal.SIGKILL)
            select.select([ended], [], [], 60)
            os.close(ended)


class RemoteStore(file.FileStore):
    """A store of files that behaves like one of objects."""

    def __init__(self, directory):
        super().__init__(directory)
        self.sent = []

    def put_file(self, name, path):
        copy = path.with_name('copy')
        copy.write_bytes(path.read_bytes())
        super().put_file(name, copy)
        self.sent.append(name)

    def names(self):
        return None

    def local_path(self, name):
        return None


class VersionsTestCase(base.TestCase):
    """A store in the test's directory, and a raw disk of some blocks."""

    blocks = 700

    def setUp(self):
        super().setUp()
        self.noise = random.Random(1)
        self.store = file.FileStore(self.directory / 'store')
        self.access = store_access.StoreAccess(self.store)
        self.disk = self.write_file('disk', self.blocks_of(self.blocks))

    def blocks_of(self, count: int) -> bytes:
        """Blocks that are like no others."""
        return self.noise.randbytes(count * BLOCK)

    def write_blocks(self, disk: pathlib.Path, *places: int) -> None:
        """Write new content to some blocks of a raw disk."""
        with open(disk, 'r+b') as stream:
            for place in places:
                stream.seek(place * BLOCK)
                stream.write(self.blocks_of(1))

    def save(self, disk: pathlib.Path | None = None, series: str = 'a',
             **options):
        """Save a disk."""
        return saving.save(self.access, save_request.SaveRequest(
            disk or self.disk, series, **options))

    def save_qcow2(self, disk: pathlib.Path, series: str = 'q', **options):
        """Save a stopped guest's disk."""
        return self.save(
            disk, series, snapshotter=snapshots.OfflineSnapshotter(disk),
            disk_format='qcow2', **options)

    def content(self, version, base_image: pathlib.Path | None = None
                ) -> bytes:
        """What a version is, restored as a raw disk."""
        output = self.directory / 'restored'
        restoring.restore(self.access, version.id,
                          restoring.Output(output, 'raw'), base_image)
        return output.read_bytes()

    def blocks_by_origin(self, version) -> dict[int, int]:
        """How many blocks of a version each version's packs have."""
        head = self.access.head()
        counts: dict[int, int] = {}
        with self.access.opened(head) as opened:
            live, _known = opened.live([version.root])
            for number, pack in head.packs.items():
                needed, _ = opened.need(number, live)
                if needed:
                    counts[pack.origin] = (counts.get(pack.origin, 0)
                                           + needed)
        return counts

    def assert_same_disk(self, one: pathlib.Path, other: pathlib.Path):
        """Let QEMU compare two disks of any format."""
        done = subprocess.run(['qemu-img', 'compare', str(one), str(other)],
                              capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
