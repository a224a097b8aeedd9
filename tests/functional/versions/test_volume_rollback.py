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
"""Volumes of a stopped guest, which QEMU has open without running.

One is a file, the other one is reached by NBD.
"""

import hashlib
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
from diffcache_openstack.versions.restore import volume_rollback
from diffcache_openstack.versions import version_store
from tests import base
from tests.functional.fixtures import qemu
from tests.unit.versions import fixture
from tests import waiting

_MIB = 1 << 20
_SIZE = 16 * _MIB


@unittest.skipUnless(shutil.which(qemu.PROGRAM) and fixture.has_qemu(),
                     f'needs {qemu.PROGRAM} and {fixture.NEEDS_QEMU}')
class TestStopped(base.TestCase):

    def setUp(self):
        super().setUp()
        self.files = [self.directory / name for name in ('file', 'export')]
        for number, path in enumerate(self.files):
            path.write_bytes(hashlib.shake_256(b'%d' % number).digest(
                8 * _MIB) + bytes(_SIZE - 8 * _MIB))
        process = subprocess.Popen(
            ['qemu-nbd', '-k', str(self.directory / 'nbd'), '-f', 'raw', '-t',
             '-e', '4', str(self.files[1])])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        waiting.until_started(process, (self.directory / 'nbd').exists,
                              'qemu-nbd')
        self.socket = self.directory / 'qmp'
        self.process = self.useFixture(qemu.Qemu(
            self.socket, '-S',
            *self.disk(0, f'driver=file,filename={self.files[0]}'),
            *self.disk(1, f'driver=nbd,server.type=unix,'
                          f'server.path={self.directory}/nbd'))).process
        self.guest = snapshots.Guest(self.socket)
        self.store = version_store.VersionStore.open(
            file.FileStore(self.directory / 'store'))
        self.started = False

    @staticmethod
    def disk(number, node):
        return ['-blockdev', f'node-name=n{number},{node}', '-device',
                f'virtio-blk-pci,id=d{number},drive=n{number},share-rw=on']

    @property
    def scratch(self):
        return volume_points.Scratch(self.directory, _SIZE)

    def check(self):
        if self.started:
            raise exceptions.Conflict('It was started.')

    def save(self, token=None):
        """Save both; return the versions."""
        return self.store.save([], None, token=token,
                               volumes=version_store.GuestVolumes(
                                   [version_store.GuestVolume(
                                       self.volume(number), f'v{number}')
                                    for number in (0, 1)],
                                   self.scratch, self.guest, self.check))

    @staticmethod
    def volume(number):
        return volume_points.Volume(f'volume-{number}', f'd{number}')

    def rollback(self, saved):
        return self.store.volume_rollback(
            [volume_rollback.Target(self.volume(number), version.id)
             for number, version in enumerate(saved)],
            volume_rollback.Opened(self.guest, self.scratch))

    def write(self, data, at):
        """Write the same to both volumes, which nothing has cached."""
        for path in self.files:
            with open(path, 'r+b') as stream:
                stream.seek(at)
                stream.write(data)

    def contents(self):
        return [path.read_bytes() for path in self.files]

    def command(self, name, **arguments):
        with snapshots.Monitor(self.socket) as monitor:
            return monitor.command(name, **arguments)

    def assert_nothing_is_left(self):
        for node in self.command('query-named-block-nodes', flat=True):
            self.assertNotIn('dc-', node['node-name'])
        self.assertEqual([], self.command('query-block-exports'))
        self.assertFalse(self.command('query-status')['running'])

    def test_only_what_differs_is_written(self):
        before = self.contents()
        saved = self.save()
        self.write(b'\7' * _MIB, 4 * _MIB)
        self.write(b'\x08' * _MIB, 12 * _MIB)
        after = self.contents()
        plans = self.rollback(saved).plan()
        self.assertEqual([2 * _MIB] * 2,
                         [plan.bytes_differing for plan in plans])
        self.assertEqual(after, self.contents())
        begun = []
        done = self.rollback(saved).run(
            lambda: begun.append(self.contents()))
        self.assertEqual([after], begun)
        self.assertEqual([2 * _MIB] * 2,
                         [each.bytes_written for each in done])
        self.assertEqual(before, self.contents())
        self.assert_nothing_is_left()

    def test_nothing_is_written_if_it_may_not_begin(self):
        saved = self.save()
        self.write(b'\7' * _MIB, 4 * _MIB)
        after = self.contents()
        self.started = True
        self.assertRaises(exceptions.Conflict, self.rollback(saved).run,
                          self.check)
        self.assertEqual(after, self.contents())
        self.assert_nothing_is_left()

    def test_what_was_started_meanwhile_is_not_saved(self):
        self.started = True
        self.assertRaises(exceptions.Conflict, self.save, 't')
        self.assertEqual([], self.store.saved_with('t'))
        self.assert_nothing_is_left()

    def test_a_smaller_volume_is_refused_before_any_is_written(self):
        saved = self.save()
        self.write(b'\7' * _MIB, 4 * _MIB)
        os.truncate(self.files[0], 8 * _MIB)
        self.command('block_resize', **{'node-name': 'n0',
                                        'size': 8 * _MIB})
        after = self.contents()
        error = self.assertRaises(exceptions.InvalidInput,
                                  self.rollback(saved).run, lambda: None)
        self.assertIn('Extend the volume', str(error))
        self.assertEqual(after, self.contents())

    def test_what_is_behind_the_version_stays(self):
        before = self.contents()
        saved = self.save()
        self.write(b'\7' * _MIB, 4 * _MIB)
        self.command('block_resize', **{'node-name': 'n0',
                                        'size': 2 * _SIZE})
        with open(self.files[0], 'r+b') as stream:
            stream.seek(_SIZE)
            stream.write(b'\x09' * _SIZE)
        self.rollback(saved).run(lambda: None)
        self.assertEqual([before[0] + b'\x09' * _SIZE, before[1]],
                         self.contents())

    def test_one_that_was_killed_is_repeated(self):
        before = self.contents()
        saved = self.save()
        self.write(b'\7' * _MIB, 4 * _MIB)
        whole = volume_rollback.VolumeRollback._write

        def write(rollback, opened, each):
            if each.volume.id == 'volume-1':
                os.kill(os.getpid(), signal.SIGKILL)
            return whole(rollback, opened, each)

        child = os.fork()
        if child == 0:
            try:
                with mock.patch.object(volume_rollback.VolumeRollback,
                                       '_write', write):
                    self.rollback(saved).run(lambda: None)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        self.assertEqual(signal.SIGKILL, status)
        self.assertEqual([True, False], [
            one == other for one, other in zip(before, self.contents())])
        done = self.rollback(saved).run(lambda: None)
        self.assertEqual([0, _MIB], [each.bytes_written for each in done])
        self.assertEqual(before, self.contents())
        self.assert_nothing_is_left()
