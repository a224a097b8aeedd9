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
"""Blobs as files."""

import contextlib
import errno
import os
import shutil
import stat

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base as blobs_base
from diffcache_openstack.versions.blobs import file
from tests import base
from tests.unit.versions.blobs import conformance


class TestFileStore(conformance.Conformance, base.TestCase):

    def make_store(self):
        return file.FileStore(self.directory / 'store')

    def test_the_lock_excludes_others(self):
        other = file.FileStore(self.directory / 'store', patience_s=0)
        with self.store.lock():
            with self.assertRaises(exceptions.Busy), other.lock():
                self.fail('two writers at a time')
        with other.lock():
            pass

    def test_taking_the_lock_removes_what_the_killed_left(self):
        part = self.write_file('store/.writers/part-x', b'half')
        with self.store.lock():
            self.assertFalse(part.exists())

    def test_the_work_of_the_killed_is_abandoned(self):
        staged = self.write_file('store/.writers/staging-x/pack', b'half')
        with self.store.staging() as live, self.store.lock():
            self.assertEqual({staged.parent, live}, set(self.store.works()))
            self.assertFalse(self.store.is_abandoned(live))
            self.assertTrue(self.store.is_abandoned(staged.parent))

    def test_work_that_may_be_resumed_is_abandoned_later(self):
        with contextlib.suppress(exceptions.Interrupted), \
                self.store.staging('x') as work:
            self.assertFalse(self.store.is_abandoned(work))
            with self.assertRaises(exceptions.Busy), \
                    file.FileStore(self.store._directory).staging('x'):
                self.fail('the same work twice')
            raise exceptions.Interrupted('x')
        self.assertFalse(self.store.is_abandoned(work))
        long_ago = work.stat().st_mtime - blobs_base.GRACE_SECONDS - 60
        os.utime(work, (long_ago, long_ago))
        self.assertTrue(self.store.is_abandoned(work))

    def test_work_that_is_resumed_late_is_not_abandoned(self):
        """Where its age counts: on a filesystem of several hosts."""
        self.patch(file.FileStore, 'exclusive', False)
        with contextlib.suppress(exceptions.Interrupted), \
                self.store.staging('x') as work:
            raise exceptions.Interrupted('x')
        os.utime(work, (0, 0))
        with self.store.staging('x') as work:
            self.assertFalse(self.store.is_abandoned(work))

    def test_a_blob_that_does_not_fit_leaves_nothing(self):
        self.patch(os, 'fsync', no_space)
        for write in (self.store.create, self.store.replace):
            self.assertRaises(exceptions.NoSpace, write, 'name', b'data')
        self.assertEqual([], [
            path for path in (self.directory / 'store').rglob('*')
            if not path.is_dir()])

    def test_no_other_user_may_read_anything_whatever_the_umask(self):
        self.addCleanup(os.umask, os.umask(0))
        self.use_all()
        self.assertEqual({0o700, 0o600}, set(self.modes()))

    def test_stores_of_earlier_releases_are_corrected(self):
        self.use_all()
        directory = self.directory / 'store'
        for path in directory.iterdir():
            path.chmod(0o644)
        directory.chmod(0o755)
        file.FileStore(directory)
        self.assertEqual({0o700, 0o600}, set(self.modes()))

    def test_a_directory_may_be_shared_with_a_group(self):
        self.addCleanup(os.umask, os.umask(0o077))
        for mode, of_files in ((0o2770, 0o660), (0o2750, 0o640)):
            shutil.rmtree(self.directory / 'store')
            (self.directory / 'store').mkdir()
            (self.directory / 'store').chmod(mode)
            self.store = self.make_store()
            self.use_all()
            self.assertEqual({mode, of_files}, set(self.modes()))
            # Each project has a directory in it.
            file.FileStore(self.directory / 'store' / 'p1').create('a', b'')
            self.assertEqual(
                [mode, of_files], [
                    stat.S_IMODE((self.directory / 'store' / each)
                                 .stat().st_mode) for each in ('p1', 'p1/a')])

    def use_all(self):
        self.store.create('a', b'')
        self.store.replace('b', b'')
        self.put('c', b'')
        self.store.keep_reserve(1)
        with self.store.lock():
            pass

    def modes(self):
        directory = self.directory / 'store'
        return [stat.S_IMODE(path.stat().st_mode)
                for path in (directory, *directory.iterdir())]

    def test_the_reserve_grows_and_is_spent(self):
        path = self.directory / 'store' / '.reserve'
        self.store.spend_reserve(1 << 20)
        for size in (1 << 20, 3 << 20, 1 << 20):
            self.store.keep_reserve(size)
            self.assertLessEqual(size, path.stat().st_blocks * 512)
        self.assertEqual(3 << 20, path.stat().st_size)
        self.assertEqual([], self.store.names())
        self.store.spend_reserve(1 << 20)
        self.assertEqual(2 << 20, self.store.reserved())
        self.assertLessEqual(path.stat().st_blocks * 512, 2 << 20)
        self.store.spend_reserve(3 << 20)
        self.assertEqual((0, 0), (path.stat().st_size,
                                  path.stat().st_blocks))

    def test_a_reserve_is_given_back_as_far_as_there_is_room(self):
        real, room = os.posix_fallocate, 3 * 4096

        def fallocate(handle, offset, size):
            if size > room:
                no_space(handle)
            real(handle, offset, size)

        self.patch(os, 'posix_fallocate', fallocate)
        self.assertEqual(room, self.store.regain_reserve(1 << 20))
        self.assertEqual(room, self.store.reserved())
        self.assertEqual(room, self.store.regain_reserve(4096))

    def test_a_reserve_that_does_not_fit_stays_as_it_was(self):
        self.store.keep_reserve(4096)
        self.patch(os, 'posix_fallocate', lambda *_args: no_space(None))
        self.assertRaises(exceptions.NoSpace, self.store.keep_reserve, 8192)
        path = self.directory / 'store' / '.reserve'
        self.assertEqual(4096, path.stat().st_size)

    def test_files_of_the_store_itself_are_no_blobs(self):
        with self.store.lock(), self.store.staging():
            self.assertEqual([], self.store.names())


def no_space(handle):
    raise OSError(errno.ENOSPC, 'No space left on device')
