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
"""One moment for all disks of a real guest, which writes to them in turn.

The guest counts: its first disk is raw, its second is qcow2.
"""

import os
import shutil
import signal
import subprocess
import unittest
from unittest import mock

from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.disks import disk_views
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions import version_store
from tests import base
from tests.functional.fixtures import counting_guest
from tests.functional.fixtures import filesystems
from tests.functional.fixtures import qemu

_MIB = 1 << 20


@filesystems.NEEDED
@unittest.skipUnless(shutil.which(qemu.PROGRAM), f'needs {qemu.PROGRAM}')
class TestBothKinds(base.TestCase):

    def setUp(self):
        super().setUp()
        self.mount = self.useFixture(filesystems.Xfs(self.directory)).path
        self.raw, self.qcow2 = self.mount / 'raw', self.mount / 'qcow2'
        self.raw.write_bytes(
            counting_guest.boot_sector(2).ljust(8 * _MIB, b'\0'))
        subprocess.run(['qemu-img', 'create', '-q', '-f', 'qcow2',
                        str(self.qcow2), '8M'], check=True)
        self.socket = self.directory / 'qmp'
        self.useFixture(qemu.Qemu(
            self.socket, *self.disk('raw', self.raw, 0),
            *self.disk('qcow2', self.qcow2, 1)))
        self.guest = snapshots.Guest(self.socket)
        # The second disk first: the order of writing is not that of saving.
        self.disks = [version_store.Disk(self.qcow2, 'q', format='qcow2'),
                      version_store.Disk(self.raw, 'r', format='raw')]
        self.store = version_store.VersionStore.open(
            file.FileStore(self.directory / 'store'))
        self.wait_for(1)

    @staticmethod
    def disk(kind, path, number):
        return ['-blockdev', f'driver={kind},node-name=disk{number},'
                f'file.driver=file,file.filename={path}', '-device',
                f'virtio-blk-pci,id=disk{number},drive=disk{number},'
                f'bootindex={number}']

    def counted(self) -> int:
        """How far the guest is."""
        return counting_guest.counted(self.raw)

    def wait_for(self, number):
        counting_guest.wait_for(self.raw, number)

    def numbers(self, versions) -> dict[str, int]:
        output = self.directory / 'out'
        found = {}
        for version in versions:
            self.store.restore(version.id, output, 'raw')
            found[version.series] = counting_guest.number(
                output.read_bytes())
        return found

    def assert_one_moment(self, versions) -> int:
        numbers = self.numbers(versions)
        self.assertIn(numbers['r'] - numbers['q'], (0, 1), numbers)
        return numbers['r']

    def test_raw_and_qcow2_disks_are_of_one_moment(self):
        last = 0
        for disks in (self.disks, self.disks[::-1]) * 2:
            versions = self.store.save(disks, self.guest)
            number = self.assert_one_moment(versions)
            self.assertGreater(number, last)
            self.assertEqual(versions[0].pause_ms, versions[1].pause_ms)
            self.assertGreater(versions[0].pause_ms, 0)
            # It goes on.
            last = number
            self.wait_for(last + 1)
        self.assertEqual({'raw', 'qcow2'}, {
            path.name for path in self.mount.iterdir()})

    def killed_in(self, where, what, token, dies=lambda *_args: True):
        """How far the guest is when a save is killed in a call."""
        made = getattr(where, what)

        def call(*args, **options):
            if dies(*args):
                os.kill(os.getpid(), signal.SIGKILL)
            return made(*args, **options)

        child = os.fork()
        if child == 0:
            try:
                with mock.patch.object(where, what, call):
                    self.store.save(self.disks, self.guest, token=token)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        self.assertEqual(signal.SIGKILL, status)
        return self.counted()

    def go_on(self, token):
        number = self.assert_one_moment(
            self.store.save(self.disks, self.guest, token=token))
        self.assertEqual({'raw', 'qcow2'}, {
            path.name for path in self.mount.iterdir()})
        with snapshots.Monitor(self.socket) as monitor:
            nodes = monitor.command('query-named-block-nodes')
        self.assertEqual(1, max(len(node['image'].get('snapshots', ()))
                                for node in nodes if node['drv'] == 'qcow2'))
        return number

    def test_a_save_that_was_killed_goes_on_with_the_moment_of_both(self):
        # Both are kept, and nothing was read yet.
        reached = self.killed_in(saving._Save, '_add', 't-1')
        self.wait_for(reached + 2)
        self.assertLessEqual(self.go_on('t-1'), reached)

    def test_what_was_kept_of_one_kind_only_is_not_gone_on_with(self):
        # The views have not got their names yet, the snapshot is there.
        reached = self.killed_in(disk_views.Reflink, 'publish', 't-1')
        self.wait_for(reached + 2)
        self.assertGreater(self.go_on('t-1'), reached)

    def test_a_guest_that_stood_still_for_a_killed_save_goes_on(self):
        reached = self.killed_in(
            snapshots.Monitor, 'command', 't-1',
            lambda _monitor, name: name == 'transaction')
        self.assertGreaterEqual(self.go_on('t-1'), reached)
        self.wait_for(reached + 1)
