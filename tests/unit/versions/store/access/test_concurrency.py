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
"""Stores whose writers are not excluded, or that lost what names the head."""

import contextlib
import os

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import mounts
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store.access import reserve
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture


class ObjectStore(file.FileStore):
    """Stands for an object store: it lists nothing."""

    def names(self):
        return None


class TestLostPointers(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.store = ObjectStore(self.directory / 'store')
        self.access = store_access.StoreAccess(self.store)

    def save_some(self, count):
        for number in range(count):
            self.write_blocks(self.disk, number)
            self.save()

    def lose_pointers(self):
        for name in ('latest-0', 'latest-1'):
            self.store.delete(name)

    def test_a_store_of_six_versions_is_not_taken_for_an_empty_one(self):
        self.save_some(6)
        kept = [self.store.read(f'latest-{each}') for each in range(2)]
        self.lose_pointers()
        error = self.assertRaises(exceptions.IntegrityError,
                                  self.access.head_or_new)
        self.assertIn('latest-0', str(error))
        self.assertRaises(exceptions.IntegrityError, self.save)
        self.store.create('latest-1', kept[1])
        self.assertEqual(6, len(self.access.head().versions))

    def test_stores_of_earlier_releases_are_marked_by_the_next_commit(self):
        self.save_some(5)
        self.store.delete(blob_names.MARKER)
        self.save_some(1)
        self.lose_pointers()
        self.assertRaises(exceptions.IntegrityError, self.access.head_or_new)

    def test_writers_killed_early_leave_a_store_that_works(self):
        for step in ('create', 'replace'):
            self.lose_pointers()
            killed = self.assert_killed_at(step)
            self.assertEqual(killed, self.access.head_or_new().number)
        self.save_some(1)
        self.assertEqual(1, len(self.access.head().versions))

    def assert_killed_at(self, step):
        """Have a writer killed after its first call of a method."""
        real = getattr(self.store, step)

        def die(*args):
            real(*args)
            raise KeyboardInterrupt

        with contextlib.ExitStack() as stack:
            setattr(self.store, step, die)
            stack.callback(delattr, self.store, step)
            head = self.access.head_or_new()
            self.assertRaises(KeyboardInterrupt, self.access.commit, head)
        return head.number + 1


class UnlockedStore(file.FileStore):
    """A store on a filesystem whose locks exclude nothing, like some NFS."""

    @property
    def exclusive(self):
        return False

    @staticmethod
    def _try_lock(handle):
        return True


class TestUnlockedStores(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.store = UnlockedStore(self.directory / 'store')
        self.access = store_access.StoreAccess(self.store)
        self.other = store_access.StoreAccess(
            UnlockedStore(self.directory / 'store'))
        self.first = self.save()
        self.write_blocks(self.disk, 3)

    def meanwhile(self, action):
        """Let another writer act between this one's uploads and commit."""
        real = heads.commit

        def commit(*args):
            self.patch(heads, 'commit', real)
            action()
            return real(*args)

        self.patch(heads, 'commit', commit)

    def test_a_second_writer_removes_nothing_that_the_first_commits(self):
        def write():
            with self.other.writing():
                pass

        self.meanwhile(write)
        second = self.save()
        self.assertTrue(verification.verify(self.access).intact)
        self.assertEqual(self.disk.read_bytes(), self.content(second))

    def test_without_an_arbiter_the_second_writer_is_refused(self):
        def write():
            saving.save(self.other, save_request.SaveRequest(self.disk, 'b'))

        self.meanwhile(write)
        error = self.assertRaises(exceptions.Busy, self.save)
        self.assertIn('have one at a time', str(error))
        self.assertEqual(['a', 'b'], sorted(
            version.series for version
            in self.access.head().versions.values()))
        self.assertEqual(0, verification.verify(self.access).orphans)

    def test_a_commit_whose_blobs_are_gone_fails(self):
        def lose():
            for name in (set(self.store.names())
                         - self.other.head().blobs()):
                if name.startswith('pack-'):
                    self.store.delete(name)

        keep = reserve.keep
        self.patch(reserve, 'keep',
                   lambda store, head: (lose(), keep(store, head)))
        error = self.assertRaises(exceptions.Busy, self.save)
        self.assertIn('removed', str(error))
        self.assertEqual([self.first.id], list(self.access.head().versions))

    def test_remains_are_removed_after_the_grace_period(self):
        self.store.create('pack-00000009-abc', b'')
        staged = self.write_file('store/.writers/staging-x/pack',
                                 b'half').parent
        for age, there in ((0, True), (file.base.GRACE_SECONDS + 60, False)):
            for path in (self.store.local_path('pack-00000009-abc'),
                         staged / 'pack', staged):
                then = path.stat().st_mtime - age
                os.utime(path, (then, then))
            with self.access.maintaining():
                self.assertEqual(there, self.store.exists(
                    'pack-00000009-abc'))
                self.assertEqual(there, staged.exists())

    def test_a_writer_that_others_overtook_by_far_commits_nothing(self):
        late = self.other.head()
        for _ in range(8):
            self.access.commit(self.access.head())
        number = self.access.head().number
        # The name of its catalogue is free again.
        self.assertFalse(self.store.exists(blob_names.of_head(
            late.number + 1)))
        self.assertRaises(exceptions.Busy, self.other.commit, late)
        self.assertEqual(number, self.access.head().number)
        self.assertFalse(self.store.exists(blob_names.of_head(late.number)))

    def test_a_save_that_fails_removes_what_it_uploaded(self):
        def full(store, head):
            raise exceptions.NoSpace('full')

        names = sorted(self.store.names())
        self.patch(reserve, 'keep', full)
        self.assertRaises(exceptions.NoSpace, self.save)
        self.assertEqual(names, sorted(self.store.names()))


class TestLocks(fixture.VersionsTestCase):

    def test_local_filesystems_exclude_writers(self):
        for kind, exclusive in (('ext4', True), ('xfs', True),
                                ('nfs4', False), ('fuse.glusterfs', False),
                                ('9p', False)):
            self.patch(mounts, 'mount_of', lambda _path, kind=kind:
                       mounts.Mount(kind, self.directory))
            store = file.FileStore(self.directory / 'store')
            self.assertEqual(exclusive, store.exclusive)
