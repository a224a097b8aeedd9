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
"""Rolling disks back."""

import contextlib
import os
import subprocess
import unittest

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import nbd
from diffcache_openstack.versions import rollback
from diffcache_openstack.versions import saving
from diffcache_openstack.versions import snapshots
from tests.unit.versions import fixture

BLOCK = fixture.BLOCK


@unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
class TestOffline(fixture.VersionsTestCase):

    def test_counts_that_a_killed_qemu_img_left_are_mended(self):
        disk = self.directory / 'disk.qcow2'
        fixture.make_qcow2(disk, 1 << 20)
        fixture.qemu_io(disk, 'write -P 1 0 64k')
        with open(disk, 'r+b') as stream:
            # The first data cluster counts twice, as in a snapshot that was
            # never written down: the refcount block is the third cluster.
            stream.seek((2 << 16) + 2 * 5)
            stream.write(b'\0\2')
        self.assertEqual(2, self.check(disk))
        snapshots.working_path(disk).touch()
        snapshots.Offline(disk).create('s')
        self.assertEqual(0, self.check(disk))
        self.assertFalse(snapshots.working_path(disk).exists())

    @staticmethod
    def check(disk):
        return subprocess.run(['qemu-img', 'check', '-q', str(disk)],
                              stderr=subprocess.DEVNULL).returncode


@unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
class TestServer(fixture.VersionsTestCase):

    def test_a_process_with_many_open_files_has_a_server_too(self):
        """A shell that knows descriptors of one digit only failed here."""
        disk = self.directory / 'disk.qcow2'
        fixture.make_qcow2(disk, 1 << 20)
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(open(os.devnull, 'rb'))
            with nbd.Server(disk, 'qcow2') as client:
                client.write(0, b'x')
                client.flush()


class TestRaw(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.first = self.save()
        self.before = self.disk.read_bytes()
        self.write_blocks(self.disk, 7, 8, 500)
        self.after = self.disk.read_bytes()
        self.request = saving.Request(self.disk, 'a')

    def test_only_what_differs_is_written(self):
        done = rollback.roll_back(self.repo, self.first.id, self.request)
        self.assertEqual(self.before, self.disk.read_bytes())
        self.assertEqual((3 * BLOCK, 3 * BLOCK),
                         (done.bytes_differing, done.bytes_written))

    def test_the_state_before_is_kept(self):
        done = rollback.roll_back(self.repo, self.first.id, self.request)
        kept = self.repo.head().find(done.kept)
        self.assertEqual(self.after, self.content(kept))
        rollback.roll_back(self.repo, kept.id, self.request)
        self.assertEqual(self.after, self.disk.read_bytes())

    def test_it_need_not_be_kept(self):
        done = rollback.roll_back(self.repo, self.first.id, self.request,
                                  keep=False)
        self.assertIsNone(done.kept)
        self.assertEqual(self.before, self.disk.read_bytes())
        self.assertEqual(1, len(self.repo.head().versions))

    def test_a_plan_changes_nothing(self):
        plan = rollback.plan(self.repo, self.first.id, self.request)
        self.assertEqual(3 * BLOCK, plan.bytes_differing)
        self.assertEqual(700 * BLOCK, plan.bytes_rebuild)
        self.assertEqual('rollback', plan.cheaper)
        self.assertEqual(self.after, self.disk.read_bytes())
        self.assertEqual(1, len(self.repo.head().versions))

    def test_a_disk_that_differs_everywhere_is_better_rebuilt(self):
        self.disk.write_bytes(self.blocks_of(700))
        plan = rollback.plan(self.repo, self.first.id, self.request)
        self.assertEqual('rebuild', plan.cheaper)

    def test_zeroes_come_back_as_zeroes(self):
        with open(self.disk, 'r+b') as stream:
            stream.write(bytes(20 * BLOCK))
        zeroed = self.save()
        self.write_blocks(self.disk, 0, 19)
        rollback.roll_back(self.repo, zeroed.id, self.request)
        self.assertEqual(bytes(20 * BLOCK),
                         self.disk.read_bytes()[:20 * BLOCK])

    def test_an_interrupted_rollback_is_finished_and_not_saved(self):
        kept = self.save()
        rollback._write_journal(self.request, self.first, kept.id)
        with open(self.disk, 'r+b') as stream:
            stream.seek(7 * BLOCK)
            stream.write(self.before[7 * BLOCK:8 * BLOCK])
        self.assertEqual(self.first.id,
                         rollback.interrupted(self.disk)['version'])
        done = rollback.roll_back(self.repo, self.first.id, self.request)
        self.assertEqual(kept.id, done.kept)
        self.assertEqual(self.before, self.disk.read_bytes())
        self.assertEqual(2, len(self.repo.head().versions))
        self.assertIsNone(rollback.interrupted(self.disk))

    def test_a_disk_of_another_size_is_refused(self):
        with open(self.disk, 'ab') as stream:
            stream.write(bytes(BLOCK))
        self.assertRaises(exceptions.InvalidInput, rollback.roll_back,
                          self.repo, self.first.id, self.request)
        self.assertIsNone(rollback.interrupted(self.disk))


@unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
class TestQcow2(fixture.VersionsTestCase):

    def test_blocks_of_the_base_come_back(self):
        base_image = self.write_file('base', self.blocks_of(512))
        disk = self.directory / 'overlay.qcow2'
        fixture.make_qcow2(disk, 4 << 20, base_image)
        fixture.qemu_io(disk, 'write -P 7 128k 4k')
        first = self.save_qcow2(disk, base=base_image)
        wanted = self.content(first, base_image)
        fixture.qemu_io(disk, 'write -P 8 128k 4k', 'write -P 9 1M 8k',
                        'write -z 3M 64k', 'write -P 1 3900k 4k')
        request = saving.Request(disk, 'q', base=base_image,
                                 snapshotter=snapshots.Offline(disk))
        plan = rollback.plan(self.repo, first.id, request)
        done = rollback.roll_back(self.repo, first.id, request)
        self.assertEqual(4 * BLOCK, plan.bytes_differing)
        self.assertEqual(4 * BLOCK, done.bytes_written)
        self.assert_same_disk(self.write_file('wanted', wanted), disk)
        # Its state is known: the next save reads tables only.
        again = self.save_qcow2(disk, base=base_image)
        self.assertEqual((done.kept, 4, 0), (
            again.parent, again.blocks_changed, again.blocks_stored))
        self.assertLess(again.bytes_read, 1 << 20)
