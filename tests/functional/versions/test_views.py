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
"""Reflinks of a running guest's raw disk, on a real XFS, in a real QEMU."""

import os
import pathlib
import shutil
import signal
import unittest

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.disks import disk_views
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions import version_store
from tests import base
from tests.functional.fixtures import filesystems
from tests.functional.fixtures import qemu

_MIB = 1 << 20


@filesystems.NEEDED
@unittest.skipUnless(shutil.which(qemu.PROGRAM), f'needs {qemu.PROGRAM}')
class TestReflink(base.TestCase):

    def setUp(self):
        super().setUp()
        self.mount = self.useFixture(filesystems.Xfs(self.directory)).path
        self.disk = self.mount / 'disk'
        self.disk.write_bytes(b'\1' * _MIB + bytes(7 * _MIB))
        self.socket = self.directory / 'qmp'
        self.useFixture(qemu.Qemu(
            self.socket, '-blockdev', 'driver=raw,node-name=disk,'
            f'file.driver=file,file.filename={self.disk}',
            '-device', 'virtio-blk-pci,id=disk0,drive=disk'))

    def guest_writes(self, pattern):
        """Let the guest write to the first MiB."""
        with snapshots.Monitor(self.socket) as monitor:
            answer = monitor.command('human-monitor-command', **{
                'command-line':
                    'qemu-io -d /machine/peripheral/disk0/virtio-backend '
                    f'"write -P {pattern} 0 1M"'})
        self.assertEqual('', answer)

    def status(self):
        with snapshots.Monitor(self.socket) as monitor:
            return monitor.command('query-status')['running']

    def content(self, store, version) -> bytes:
        output = self.directory / 'out'
        store.restore(version.id, output, 'raw')
        return output.read_bytes()

    def test_what_the_guest_writes_meanwhile_is_of_the_next_version(self):
        store = version_store.VersionStore.open(
            file.FileStore(self.directory / 'store'))
        disk = version_store.Disk(self.disk, 'a', format='raw')
        seen = []

        def write_on(_done, _total):
            if not seen:
                seen.append(self.status())
                self.guest_writes(2)

        # The guest writes before the first piece is read: a view of it that
        # is none would have that.
        [first] = store.save([disk], snapshots.Guest(self.socket),
                             job=version_store.Job(rate=2 * _MIB,
                                                   progress=write_on))
        [second] = store.save([disk], snapshots.Guest(self.socket))
        self.assertEqual([True], seen)
        self.assertEqual(b'\1' * _MIB, self.content(store, first)[:_MIB])
        self.assertEqual(b'\2' * _MIB, self.content(store, second)[:_MIB])
        self.assertGreater(first.pause_ms, 0)
        self.assertEqual(['disk'], self.files())

    def files(self):
        return [each.name for each in pathlib.Path(self.mount).iterdir()]

    def killed(self, work):
        """Do something in a process that is killed at a certain place."""
        child = os.fork()
        if child == 0:
            try:
                work()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        self.assertTrue(os.WIFSIGNALED(status))

    def test_a_process_that_is_killed_in_the_pause(self):
        store = version_store.VersionStore.open(
            file.FileStore(self.directory / 'store'))
        disk = version_store.Disk(self.disk, 'a', format='raw')
        made = disk_views.Reflink.create

        def make_and_die(view):
            made(view)
            os.kill(os.getpid(), signal.SIGKILL)

        disk_views.Reflink.create = make_and_die
        self.addCleanup(setattr, disk_views.Reflink, 'create', made)
        self.killed(lambda: store.save([disk], snapshots.Guest(self.socket)))
        self.assertFalse(self.status())
        self.assertEqual(2, len(self.files()))
        disk_views.Reflink.create = made
        store.save([disk], snapshots.Guest(self.socket))
        self.assertTrue(self.status())
        self.assertEqual(['disk'], self.files())

    def test_a_save_that_is_killed_goes_on_with_its_moment(self):
        store = version_store.VersionStore.open(
            file.FileStore(self.directory / 'store'))
        disk = version_store.Disk(self.disk, 'a', format='raw')
        guest = snapshots.Guest(self.socket)
        die = version_store.Job(
            lambda *_told: os.kill(os.getpid(), signal.SIGKILL))
        self.killed(lambda: store.save([disk], guest, job=die, token='t-1'))
        self.assertTrue(self.status())
        self.guest_writes(2)
        [first] = store.save([disk], guest, token='t-1')
        self.assertEqual(b'\1' * _MIB, self.content(store, first)[:_MIB])
        self.killed(lambda: store.save([disk], guest, job=die, token='t-2'))
        # Whoever wants another state does not get that one.
        self.guest_writes(3)
        [third] = store.save([disk], guest, token='t-3')
        self.assertEqual(b'\3' * _MIB, self.content(store, third)[:_MIB])
        self.assertEqual(['disk'], self.files())

    def test_a_disk_that_the_guest_has_is_in_use(self):
        store = version_store.VersionStore.open(
            file.FileStore(self.directory / 'store'))
        disk = version_store.Disk(self.disk, 'a', format='raw')
        self.assertRaises(exceptions.Busy, store.save, [disk])
        [version] = store.save([disk], snapshots.Guest(self.socket))
        self.assertRaises(exceptions.Busy, store.roll_back_disks,
                          [(version.id, disk)])
