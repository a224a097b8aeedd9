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

from concurrent import futures
import contextlib
import json
import os
import subprocess
import unittest
from unittest import mock

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import disk_files
from diffcache_openstack.versions.disks import disk_writers
from diffcache_openstack.versions.disks import locks
from diffcache_openstack.versions.disks import rollback_journal
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.restore import rollback
from diffcache_openstack.versions.restore import rollback_plan
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
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
        snapshots.marker_path(disk).touch()
        snapshots.OfflineSnapshotter(disk).create('s')
        self.assertEqual(0, self.check(disk))
        self.assertFalse(snapshots.marker_path(disk).exists())

    def test_errors_other_than_leaks_are_reported_and_not_repaired(self):
        disk = self.directory / 'disk.qcow2'
        fixture.make_qcow2(disk, 1 << 20)
        fixture.qemu_io(disk, 'write -P 1 0 64k')
        with open(disk, 'r+b') as stream:
            # The first data cluster counts as free.
            stream.seek((2 << 16) + 2 * 5)
            stream.write(b'\0\0')
        before = disk.read_bytes()
        snapshots.marker_path(disk).touch()
        error = self.assertRaises(
            exceptions.PermanentError,
            snapshots.OfflineSnapshotter(disk).create, 's')
        self.assertIn('qemu-img check', str(error))
        self.assertEqual(before, disk.read_bytes())

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
            with disk_writers.open_disk(disk, 'qcow2') as served:
                served.flush()


class TestRaw(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.first = self.save()
        self.before = self.disk.read_bytes()
        self.write_blocks(self.disk, 7, 8, 500)
        self.after = self.disk.read_bytes()
        self.request = save_request.SaveRequest(self.disk, 'a')

    def test_only_what_differs_is_written(self):
        done = rollback.roll_back(self.access, self.first.id, self.request)
        self.assertEqual(self.before, self.disk.read_bytes())
        self.assertEqual((3 * BLOCK, 3 * BLOCK),
                         (done.bytes_differing, done.bytes_written))

    def test_the_state_before_is_kept(self):
        done = rollback.roll_back(self.access, self.first.id, self.request)
        kept = self.access.head().find(done.kept)
        self.assertEqual(self.after, self.content(kept))
        rollback.roll_back(self.access, kept.id, self.request)
        self.assertEqual(self.after, self.disk.read_bytes())

    def test_it_need_not_be_kept(self):
        done = rollback.roll_back(self.access, self.first.id, self.request,
                                  keep=False)
        self.assertIsNone(done.kept)
        self.assertEqual(self.before, self.disk.read_bytes())
        self.assertEqual(1, len(self.access.head().versions))

    def test_a_plan_changes_nothing(self):
        plan = rollback_plan.plan(self.access, self.first.id, self.request)
        self.assertEqual(3 * BLOCK, plan.bytes_differing)
        self.assertEqual(700 * BLOCK, plan.bytes_rebuild)
        self.assertEqual('rollback', plan.cheaper)
        self.assertEqual(self.after, self.disk.read_bytes())
        self.assertEqual(1, len(self.access.head().versions))

    def test_a_disk_that_differs_everywhere_is_better_rebuilt(self):
        self.disk.write_bytes(self.blocks_of(700))
        plan = rollback_plan.plan(self.access, self.first.id, self.request)
        self.assertEqual('rebuild', plan.cheaper)

    def test_zeroes_come_back_as_zeroes(self):
        with open(self.disk, 'r+b') as stream:
            stream.write(bytes(20 * BLOCK))
        zeroed = self.save()
        self.write_blocks(self.disk, 0, 19)
        rollback.roll_back(self.access, zeroed.id, self.request)
        self.assertEqual(bytes(20 * BLOCK),
                         self.disk.read_bytes()[:20 * BLOCK])

    def test_a_link_in_place_of_the_journal_is_not_followed(self):
        planted = self.write_file('etc/journal', json.dumps(
            {'version': self.first.id, 'kept': None, 'series': 'a'}).encode())
        rollback_journal.path_of(self.disk).symlink_to(planted)
        error = self.assertRaises(exceptions.Conflict, rollback_journal.read,
                                  self.disk)
        self.assertIn('disk.rollback', str(error))
        self.assertRaises(exceptions.Conflict, rollback.roll_back,
                          self.access, self.first.id, self.request)
        self.assertEqual(self.after, self.disk.read_bytes())
        rollback_journal.write(self.disk, 'a', self.first.id, None)
        rollback_journal.remove([self.disk])
        self.assertIn(self.first.id, planted.read_text())

    def test_what_is_no_journal_is_reported(self):
        for text in ('', '[]', '{"version": 1, "kept": null, "series": ""}',
                     '{"version": "x"}'):
            rollback_journal.path_of(self.disk).write_text(text)
            self.assertRaises(exceptions.Conflict, rollback_journal.read,
                              self.disk)

    def test_an_interrupted_rollback_is_finished_and_not_saved(self):
        kept = self.save()
        rollback_journal.write(self.disk, self.request.series,
                               self.first.id, kept.id)
        with open(self.disk, 'r+b') as stream:
            stream.seek(7 * BLOCK)
            stream.write(self.before[7 * BLOCK:8 * BLOCK])
        self.assertEqual(self.first.id,
                         rollback_journal.read(self.disk)['version'])
        done = rollback.roll_back(self.access, self.first.id, self.request)
        self.assertEqual(kept.id, done.kept)
        self.assertEqual(self.before, self.disk.read_bytes())
        self.assertEqual(2, len(self.access.head().versions))
        self.assertIsNone(rollback_journal.read(self.disk))

    def test_a_disk_in_the_middle_of_a_rollback_is_not_saved(self):
        rollback_journal.write(self.disk, 'a', self.first.id, None)
        error = self.assertRaises(exceptions.Conflict, self.save)
        self.assertIn(self.first.id, str(error))
        self.assertIn('--discard-current', str(error))
        self.assertEqual([self.first.id], list(self.access.head().versions))

    def compared(self, meanwhile):
        """Call something while the disk is compared."""
        compare = rollback_plan.compare

        def and_then(*arguments):
            found = compare(*arguments)
            meanwhile()
            return found

        self.patch(rollback_plan, 'compare', and_then)

    def test_a_disk_that_is_written_to_while_it_is_compared_stays(self):
        """Nothing is written by an old comparison."""
        self.compared(lambda: self.write_blocks(self.disk, 3))
        for method in (rollback_plan.ROLLBACK, rollback_plan.REBUILD):
            error = self.assertRaises(
                exceptions.Busy, rollback.roll_back_disks, self.access,
                [(self.first.id, self.request)], method)
            self.assertIn('while it was compared', str(error))
            self.assertIsNone(rollback_journal.read(self.disk))
        self.assertNotEqual(self.before, self.disk.read_bytes())
        self.assertEqual(self.after[7 * BLOCK:],
                         self.disk.read_bytes()[7 * BLOCK:])

    @unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
    def test_no_guest_starts_while_a_disk_is_compared(self):
        refused = []

        def start():
            refused.append(subprocess.run(
                ['qemu-io', '-f', 'raw', '-c', 'write 0 4k', str(self.disk)],
                capture_output=True, text=True).stderr)

        self.compared(start)
        rollback.roll_back(self.access, self.first.id, self.request)
        self.assertIn('lock', refused[0])
        self.assertEqual(self.before, self.disk.read_bytes())

    def test_two_rollbacks_of_a_disk_exclude_each_other(self):
        second = self.save()
        refused = []

        def another():
            with futures.ThreadPoolExecutor(1) as thread:
                refused.append(thread.submit(
                    rollback.roll_back, self.access, second.id,
                    self.request, False).exception())

        self.compared(another)
        rollback.roll_back(self.access, self.first.id, self.request, False)
        self.assertIsInstance(refused[0], exceptions.Busy)
        self.assertEqual(self.before, self.disk.read_bytes())

    def test_what_is_kept_is_what_was_compared(self):
        """No guest can start between the save and the comparison."""
        save = saving.save

        def and_then(*arguments):
            version = save(*arguments)
            with futures.ThreadPoolExecutor(1) as thread:
                self.assertRaises(exceptions.Busy, thread.submit(
                    self.held).result)
            return version

        self.patch(saving, 'save', and_then)
        done = rollback.roll_back(self.access, self.first.id, self.request)
        self.assertEqual(self.after, self.content(
            self.access.head().find(done.kept)))

    def held(self):
        with locks.hold(self.disk):
            pass

    def test_a_disk_that_is_being_saved_is_not_rolled_back(self):
        with locks.reading(self.disk):
            self.assertRaises(exceptions.Busy, rollback.roll_back,
                              self.access, self.first.id, self.request, False)
        self.assertEqual(self.after, self.disk.read_bytes())

    def test_a_disk_of_another_size_is_refused(self):
        with open(self.disk, 'ab') as stream:
            stream.write(bytes(BLOCK))
        self.assertRaises(exceptions.InvalidInput, rollback.roll_back,
                          self.access, self.first.id, self.request)
        self.assertIsNone(rollback_journal.read(self.disk))


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
        request = save_request.SaveRequest(
            disk, 'q', base=base_image, disk_format='qcow2',
            snapshotter=snapshots.OfflineSnapshotter(disk))
        plan = rollback_plan.plan(self.access, first.id, request)
        done = rollback.roll_back(self.access, first.id, request)
        self.assertEqual(4 * BLOCK, plan.bytes_differing)
        self.assertEqual(4 * BLOCK, done.bytes_written)
        self.assert_same_disk(self.write_file('wanted', wanted), disk)
        # Its state is known: the next save reads tables only.
        again = self.save_qcow2(disk, base=base_image)
        self.assertEqual((done.kept, 4, 0), (
            again.parent, again.blocks_changed, again.blocks_stored))
        self.assertLess(again.bytes_read, 1 << 20)


@unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
class TestSeveral(fixture.VersionsTestCase):
    """A qcow2 disk on a base, and one that is raw."""

    def setUp(self):
        super().setUp()
        self.base = self.write_file('base', self.blocks_of(256))
        # Known by a name that leads elsewhere, as Nova's base images may be.
        self.link = self.directory / 'link'
        self.link.symlink_to(self.base)
        self.overlay = self.directory / 'overlay.qcow2'
        fixture.make_qcow2(self.overlay, 4 << 20, self.link)
        fixture.qemu_io(self.overlay, 'write -P 7 128k 64k')
        self.requests = [
            save_request.SaveRequest(
                self.overlay, 'q', base=self.link, disk_format='qcow2',
                snapshotter=snapshots.OfflineSnapshotter(self.overlay)),
            save_request.SaveRequest(self.disk, 'a')]
        versions = saving.save_disks(self.access, self.requests)
        self.targets = [(version.id, request) for version, request
                        in zip(versions, self.requests)]
        self.before = self.state()
        fixture.qemu_io(self.overlay, 'write -P 8 1M 4k')
        self.write_blocks(self.disk, 3)

    def state(self):
        """What a guest would read of both disks."""
        raw = self.directory / 'raw'
        subprocess.run(['qemu-img', 'convert', '-O', 'raw',
                        str(self.overlay), str(raw)], check=True)
        return raw.read_bytes(), self.disk.read_bytes()

    def back(self, method):
        return rollback.roll_back_disks(self.access, self.targets, method)

    def assertBack(self):
        self.assertEqual(self.before, self.state())
        self.assertEqual(
            0, TestOffline.check(self.overlay), 'the disk has errors')
        self.assertEqual(
            [None, None], [rollback_journal.read(request.disk)
                           for request in self.requests])
        left = {path.name for path in self.directory.iterdir()}
        self.assertFalse([name for name in left if 'rebuilt' in name])

    def test_what_differs_little_is_written_in_place(self):
        self.assertEqual('rollback', rollback.roll_back_disks(
            self.access, self.targets).method)
        self.assertBack()

    def test_what_differs_much_is_written_anew(self):
        self.disk.write_bytes(self.blocks_of(700))
        back = rollback.roll_back_disks(self.access, self.targets)
        self.assertEqual('rebuild', back.method)
        self.assertIn(f'{701 * BLOCK} bytes in', back.reason)
        self.assertBack()

    def test_disks_built_anew_take_the_places_of_the_old_ones(self):
        for request in self.requests:
            request.disk.chmod(0o640)
        inodes = [request.disk.stat().st_ino for request in self.requests]
        back = self.back('rebuild')
        self.assertEqual('The request names this method.', back.reason)
        self.assertBack()
        for request, inode in zip(self.requests, inodes):
            self.assertEqual(0o640, request.disk.stat().st_mode & 0o777)
            self.assertNotEqual(inode, request.disk.stat().st_ino)
        info = subprocess.run(['qemu-img', 'info', str(self.overlay)],
                              check=True, capture_output=True, text=True)
        self.assertIn(f'backing file: {self.link}\n', info.stdout)
        # The next save looks at what changed since, and at no more.
        [version, _raw] = saving.save_disks(self.access, self.requests)
        self.assertEqual(0, version.blocks_changed)
        self.assertLess(version.bytes_read, 1 << 20)

    def test_all_or_none(self):
        with open(self.disk, 'ab') as stream:
            stream.write(bytes(BLOCK))
        after = self.state()
        for method in rollback_plan.METHODS:
            self.assertRaises(exceptions.InvalidInput, self.back, method)
            self.assertEqual(after, self.state())
            self.assertIsNone(rollback_journal.read(self.overlay))

    def test_a_disk_that_a_guest_has_keeps_the_others_from_going_back(self):
        after = self.state()
        with fixture.guest_of(self.overlay, 'qcow2'):
            self.targets.reverse()
            for method in ('rollback', 'rebuild'):
                self.assertRaises(exceptions.Busy, self.back, method)
        self.assertEqual(after, self.state())
        self.assertIsNone(rollback_journal.read(self.disk))

    def test_cut_short_between_two_disks(self):
        replace = disk_files.DiskFiles.replace

        def once(access, disk):
            replace(access, disk)
            if disk == self.overlay:
                raise KeyboardInterrupt

        with mock.patch.object(disk_files.DiskFiles, 'replace', once):
            self.assertRaises(KeyboardInterrupt, self.back, 'rebuild')
        # Neither may be started, or saved, before both are back.
        self.assertEqual(
            [version for version, _ in self.targets],
            [rollback_journal.read(request.disk)['version']
             for request in self.requests])
        self.back('auto')
        self.assertBack()

    def test_what_a_killed_one_built_is_removed(self):
        nest = self.overlay.with_name(f'.{self.overlay.name}.rebuilt')
        nest.mkdir()
        (nest / '.overlay.qcow2.1-1.part').write_bytes(b'a part')
        adopted = nest.with_name(f'{nest.name}.part')
        adopted.write_bytes(b'a disk')
        self.back('rollback')
        self.assertBack()
        self.assertFalse(nest.exists() or adopted.exists())

    def test_no_room_for_disks_anew(self):
        self.disk.write_bytes(self.blocks_of(700))
        with mock.patch.object(rollback, '_build',
                               side_effect=exceptions.NoSpace('full')):
            self.assertRaises(exceptions.NoSpace, self.back, 'rebuild')
            back = self.back('auto')
        self.assertEqual('rollback', back.method)
        self.assertIn('full', back.reason)
        self.assertBack()

    @unittest.skipUnless(os.geteuid() == 0, 'needs root to chown')
    def test_disks_that_belong_to_somebody_else(self):
        self.disk.write_bytes(self.blocks_of(700))
        os.chown(self.disk, 12345, 12345)
        with mock.patch.object(os, 'fchown', side_effect=PermissionError):
            self.assertRaises(exceptions.PermanentError, self.back,
                              'rebuild')
            back = self.back('auto')
        self.assertEqual('rollback', back.method)
        self.assertIn(f'owner of {self.disk}', back.reason)
        self.assertBack()

    def test_snapshots_of_others_are_not_lost(self):
        subprocess.run(['qemu-img', 'snapshot', '-c', 'mine',
                        str(self.overlay)], check=True)
        self.disk.write_bytes(self.blocks_of(700))
        self.assertRaises(exceptions.Conflict, self.back, 'rebuild')
        self.assertEqual('rollback', self.back('auto').method)
        self.assertBack()

    def test_no_such_method(self):
        self.assertRaises(exceptions.InvalidInput, self.back, 'sideways')
