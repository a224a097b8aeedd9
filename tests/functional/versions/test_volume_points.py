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
"""One moment of a guest's local disk and volumes, in a real QEMU.

The guest boots from a volume that is a file, has a local qcow2 disk, and
another volume by NBD; it counts over the three.
"""

import os
import shutil
import signal
import subprocess
import unittest
from unittest import mock

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.guests import volume_points
from diffcache_openstack.versions.save import save_uploads
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions import version_store
from tests import base
from tests.functional.fixtures import counting_guest
from tests.functional.fixtures import qemu
from tests.unit.versions import fixture
from tests import waiting

_MIB = 1 << 20
_SIZE = 16 * _MIB


@unittest.skipUnless(shutil.which(qemu.PROGRAM) and fixture.has_qemu(),
                     f'needs {qemu.PROGRAM} and {fixture.NEEDS_QEMU}')
class TestVolumes(base.TestCase):

    def setUp(self):
        super().setUp()
        self.boot, self.data = (self.directory / name
                                for name in ('boot', 'data'))
        self.qcow2 = self.directory / 'disk'
        self.boot.write_bytes(
            counting_guest.boot_sector(3).ljust(_SIZE, b'\0'))
        with open(self.data, 'wb') as stream:
            stream.seek(8 * _MIB)  # A hole.
            stream.write(b'\7' * 8 * _MIB)
        subprocess.run(['qemu-img', 'create', '-q', '-f', 'qcow2',
                        str(self.qcow2), '8M'], check=True)
        self.serve(self.data)
        self.socket = self.directory / 'qmp'
        self.process = self.useFixture(qemu.Qemu(
            self.socket,
            *self.disk(0, f'driver=raw,file.driver=file,'
                          f'file.filename={self.boot}'),
            *self.disk(1, f'driver=qcow2,file.driver=file,'
                          f'file.filename={self.qcow2}'),
            *self.disk(2, f'driver=raw,discard=unmap,file.driver=nbd,'
                          f'file.discard=unmap,file.server.type=unix,'
                          f'file.server.path={self.directory}/nbd')
        )).process
        self.guest = snapshots.Guest(self.socket)
        self.disks = [version_store.Disk(self.qcow2, 'q', format='qcow2')]
        self.store = version_store.VersionStore.open(
            file.FileStore(self.directory / 'store'))
        self.wait_for(1)

    def serve(self, path):
        """Export a volume as a cache or a remote host does."""
        process = subprocess.Popen(
            ['qemu-nbd', '-k', str(self.directory / 'nbd'), '-f', 'raw', '-t',
             '-e', '4', '--discard', 'unmap', str(path)])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        waiting.until_started(process, (self.directory / 'nbd').exists,
                              'qemu-nbd')

    @staticmethod
    def disk(number, node):
        return ['-blockdev', f'node-name=libvirt-{number}-format,{node}',
                '-device', f'virtio-blk-pci,id=virtio-disk{number},'
                f'drive=libvirt-{number}-format,bootindex={number}']

    def volumes(self, limit=_SIZE):
        return version_store.GuestVolumes(
            [version_store.GuestVolume(
                volume_points.Volume(f'volume-{number}',
                                     f'virtio-disk{number}'),
                f'v{number}') for number in (0, 2)],
            volume_points.Scratch(self.directory, limit))

    def save(self, **options):
        return self.store.save(self.disks, self.guest, **options)

    def counted(self) -> int:
        """How far the guest is."""
        return counting_guest.counted(self.boot)

    def wait_for(self, number):
        counting_guest.wait_for(self.boot, number)

    def command(self, name, **arguments):
        with snapshots.Monitor(self.socket) as monitor:
            return monitor.command(name, **arguments)

    def guest_writes(self, command):
        """Let QEMU write to the last volume as its guest would."""
        answer = self.command('human-monitor-command', **{
            'command-line': f'qemu-io -d /machine/peripheral/virtio-disk2/'
                            f'virtio-backend "{command}"'})
        self.assertNotIn('failed', answer)

    def contents(self, versions):
        output = self.directory / 'out'
        found = {}
        for version in versions:
            self.store.restore(version.id, output, 'raw')
            found[version.series] = output.read_bytes()
        return found

    def assert_one_moment(self, versions) -> int:
        found = self.contents(versions)
        numbers = [counting_guest.number(found[series])
                   for series in ('v0', 'q', 'v2')]
        self.assertEqual(sorted(numbers, reverse=True), numbers)
        self.assertLessEqual(numbers[0] - numbers[-1], 1, numbers)
        return numbers[0]

    def assert_nothing_is_left(self):
        for node in self.command('query-named-block-nodes', flat=True):
            self.assertNotIn('dc-', node['node-name'])
        self.assertEqual([], self.command('query-block-exports'))
        self.assertEqual([], self.command('query-fdsets'))
        self.assertEqual('running', self.command('query-status')['status'])
        self.wait_for(self.counted() + 1)

    def test_all_disks_are_of_one_moment(self):
        last = 0
        for _ in range(4):
            versions = self.save(volumes=self.volumes())
            number = self.assert_one_moment(versions)
            self.assertGreater(number, last)
            self.assertEqual(1, len({each.pause_ms for each in versions}))
            self.assertGreater(versions[0].pause_ms, 0)
            last = number
            self.wait_for(last + 1)
        self.assert_nothing_is_left()

    def test_what_the_guest_overwrites_meanwhile_is_kept(self):
        whole = saving._Save._add

        def add(save, request, progress):
            if request.point is not None and request.series == 'v2':
                self.guest_writes('write -P 9 10M 3M')
            return whole(save, request, progress)
        with mock.patch.object(saving._Save, '_add', add):
            versions = self.save(volumes=self.volumes())
        content = self.contents(versions)['v2']
        self.assertEqual(b'\7' * 8 * _MIB, content[8 * _MIB:])
        content = self.contents(self.save(volumes=self.volumes()))['v2']
        self.assertEqual(b'\7\7\x09\x09\x09\7\7\7', content[8 * _MIB::_MIB])

    def test_what_is_overwritten_before_it_is_read_is_kept(self):
        """QEMU 7.2 reads what is there now across parts copied and not."""
        published = volume_points.VolumePoints.publish

        def publish(points, monitor):
            published(points, monitor)
            self.pending = ['write -P 9 9M 64k', 'discard 11M 2M',
                            'write -P 8 1M 64k', 'write -z -u 15M 128k']
        whole = saving._Save._add

        def add(save, request, progress):
            while self.pending:
                self.guest_writes(self.pending.pop())
            return whole(save, request, progress)
        with mock.patch.object(volume_points.VolumePoints, 'publish',
                               publish), \
                mock.patch.object(saving._Save, '_add', add):
            versions = self.save(volumes=self.volumes())
        content = self.contents(versions)['v2']
        self.assertEqual(bytes(7 * _MIB), content[_MIB:8 * _MIB])
        self.assertEqual(b'\7' * 8 * _MIB, content[8 * _MIB:])
        self.assert_one_moment(versions)

    def test_zeroes_of_a_volume_are_not_read(self):
        volume = self.save(volumes=self.volumes())[2]
        self.assertEqual(_SIZE, volume.size)
        self.assertLess(volume.bytes_read, 10 * _MIB)

    def test_a_full_scratch_file_ends_the_save_and_no_write(self):
        whole = saving._Save._add

        def add(save, request, progress):
            if request.point is not None and request.series == 'v2':
                self.guest_writes('write -P 9 8M 8M')
            return whole(save, request, progress)
        with mock.patch.object(saving._Save, '_add', add):
            error = self.assertRaises(exceptions.NoSpace, self.save,
                                      volumes=self.volumes(2 * _MIB))
        self.assertIn('volume volume-2', str(error))
        self.assertIn(f'may keep, {2 * _MIB} bytes', str(error))
        self.guest_writes('read -P 9 8M 8M')
        self.assertRaises(exceptions.NotFound, self.store.version, 'v2')
        self.assert_nothing_is_left()

    def killed_in(self, where, what, dies=lambda *_args: True):
        """Kill a save in a call."""
        made = getattr(where, what)

        def call(*args, **options):
            if dies(*args):
                os.kill(os.getpid(), signal.SIGKILL)
            return made(*args, **options)

        child = os.fork()
        if child == 0:
            try:
                with mock.patch.object(where, what, call):
                    self.save(volumes=self.volumes(), token='t')
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        self.assertEqual(signal.SIGKILL, status)

    def test_a_save_that_was_killed_is_repeated_at_another_moment(self):
        for where, what, dies in (
                (volume_points.VolumePoints, 'keep', lambda *_args: True),
                (snapshots.Monitor, 'command', lambda _monitor, name:
                    name == 'transaction'),
                (volume_points.VolumePoints, 'publish', lambda *_args: True),
                (snapshots.Monitor, 'command', lambda _monitor, name:
                    name == 'block-export-add'),
                (saving._Save, '_add', lambda _save, request, *_args:
                    request.series == 'v2'),
                (save_uploads.SaveUploads, 'commit', lambda *_args: True),
                (volume_points, 'clear', lambda monitor: len(
                    monitor.command('query-fdsets')) > 0)):
            with self.subTest(what=what):
                self.killed_in(where, what, dies)
                self.assert_one_moment(
                    self.save(volumes=self.volumes(), token='t'))
                self.store.delete([version.id for version
                                   in self.store.versions()])
                self.assert_nothing_is_left()

    def test_a_guest_that_is_gone_leaves_nothing(self):
        begun = saving._Save._add

        def add(save, request, progress):
            if request.point is not None:
                self.process.kill()
                self.process.wait()
            return begun(save, request, progress)
        with mock.patch.object(saving._Save, '_add', add):
            self.assertRaises(exceptions.RetryableError, self.save,
                              volumes=self.volumes())
        self.assertLessEqual(
            {path.name for path in self.directory.iterdir()},
            {'boot', 'data', 'disk', 'nbd', 'qmp', 'store'})

    def test_a_paused_guest_stays_paused(self):
        self.command('stop')
        self.assert_one_moment(self.save(volumes=self.volumes()))
        self.killed_in(volume_points.VolumePoints, 'publish')
        with snapshots.Monitor(self.socket) as monitor:
            volume_points.clear(monitor)
        self.assertEqual('paused', self.command('query-status')['status'])

    def test_a_volume_that_qemu_does_not_serve(self):
        volumes = version_store.GuestVolumes([version_store.GuestVolume(
            volume_points.Volume('elsewhere', 'virtio-disk7'), 's')],
            volume_points.Scratch(self.directory, _SIZE))
        error = self.assertRaises(exceptions.NotFound, self.save,
                                  volumes=volumes)
        self.assertIn('serve volume elsewhere', str(error))
        self.assert_nothing_is_left()

    def test_another_server_of_nbd_is_left_alone(self):
        self.command('nbd-server-start', addr={
            'type': 'unix', 'data': {'path': str(self.directory / 'other')}})
        self.assertRaises(exceptions.Busy, self.save, volumes=self.volumes())
        self.command('nbd-server-stop')
        self.assert_nothing_is_left()
