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

from unittest import mock

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import blob_parts
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.catalogue import record_tables
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture


class Killed(BaseException):
    """The process of a writer ends."""


class LargeStoresTest(fixture.VersionsTestCase):
    """Stores most of whose records are in segments."""

    blocks = 40

    def setUp(self):
        super().setUp()
        self.patch(record_tables, 'MOST_RECENT', 3)
        self.patch(record_tables, 'SEGMENT_RECORDS', 4)
        self.contents = {}

    def save_some(self, count):
        for place in range(count):
            self.write_blocks(self.disk, place % self.blocks)
            version = self.save()
            self.contents[version.id] = self.disk.read_bytes()

    def assert_all_there(self):
        head = self.access.head()
        self.assertEqual(set(self.contents), set(head.versions))
        for version_id, content in self.contents.items():
            self.assertEqual(content, self.content(head.versions[version_id]))
        found = verification.verify(self.access)
        self.assertTrue(found.intact, found)

    def stray(self):
        """Blobs that nothing needs, and those that are missing."""
        needed = self.access.head().blobs()
        there = {path.name for path in (self.directory / 'store').iterdir()
                 if blob_names.is_own(path.name)
                 and not blob_names.is_bookkeeping(path.name)}
        return there ^ needed


class TestSegments(LargeStoresTest):

    def test_many_versions_are_saved_deleted_and_pruned(self):
        self.save_some(14)
        head = self.access.head()
        self.assertTrue(head.is_large)
        self.assertLessEqual(len(head.packs.changes()), 3)
        self.assert_all_there()
        for gone in list(self.contents)[1:9]:
            del self.contents[gone]
            pruning.delete(self.access, [gone])
        pruning.prune(self.access)
        self.assert_all_there()
        self.assertEqual(set(), self.stray())
        self.save_some(5)
        self.assert_all_there()
        self.assertEqual(set(), self.stray())

    def test_a_save_reads_the_records_that_it_needs(self):
        self.save_some(14)
        other = self.write_file('other', self.blocks_of(3))
        segments = self.access.head().packs.segments
        for segment in segments:
            for name in segment.blobs:
                self.store.delete(name)
        # None of them is the new disk's.
        self.save(other, series='other')
        self.assertRaises(exceptions.NotFound, self.access.head().blobs)

    def test_a_save_to_a_store_of_objects_reads_no_others_either(self):
        self.access = store_access.StoreAccess(
            fixture.RemoteStore(self.directory / 'store'))
        self.save_some(14)
        other = self.write_file('other', self.blocks_of(3))
        with mock.patch.object(record_tables, 'read', autospec=True,
                               side_effect=record_tables.read) as read:
            self.save(other, series='other')
        versions = set(self.access.head().versions.table.segments)
        self.assertEqual(set(), {
            call.args[1] for call in read.call_args_list} - versions)

    def test_a_changed_segment_is_refused(self):
        self.save_some(14)
        first, second = self.access.head().packs.segments[0].blobs
        damaged = bytearray(self.store.read(first))
        damaged[20] ^= 1
        self.store.replace(first, bytes(damaged))
        found = verification.verify(self.access)
        self.assertEqual([first], [each.object for each in found.damage])
        # The other copy is read.
        self.save_some(1)
        self.assertEqual(self.disk.read_bytes(), self.content(
            self.access.head().of_series('a')[-1]))
        self.store.replace(second, bytes(damaged))
        self.assertRaises(exceptions.IntegrityError, self.access.head().blobs)
        self.assertRaises(exceptions.IntegrityError, pruning.prune,
                          self.access)

    def test_killed_writers_leave_the_old_state_or_the_new(self):
        self.save_some(6)
        for step in range(12):
            before = set(self.access.head().versions)
            self.write_blocks(self.disk, step)
            killed = self.killed_at(step)
            after = set(self.access.head().versions)
            for new in after - before:
                self.contents[new] = self.disk.read_bytes()
            self.assertLessEqual(before, after)
            self.assert_all_there()
            with self.access.maintaining():
                pass
            self.assertEqual(set(), self.stray())
            if not killed:
                break
        self.assertFalse(killed)

    def killed_at(self, step):
        """Have a save killed before one of its changes of the store."""
        left = [step]
        for name in ('create', 'replace', 'put_file', 'delete'):
            def change(*args, real=getattr(self.store, name)):
                if not left[0]:
                    raise Killed
                left[0] -= 1
                return real(*args)
            setattr(self.store, name, change)
        try:
            self.save()
        except Killed:
            return True
        finally:
            for name in ('create', 'replace', 'put_file', 'delete'):
                delattr(self.store, name)
        return False


class TestJoinedFiles(LargeStoresTest):
    """The files of small saves are one blob in a store of objects."""

    def setUp(self):
        super().setUp()
        self.remote = fixture.RemoteStore(self.directory / 'store')
        self.access = store_access.StoreAccess(self.remote)

    def test_a_small_save_puts_one_blob(self):
        self.save_some(1)
        self.remote.sent.clear()
        self.save_some(1)
        [name] = [name for name in self.remote.sent
                  if not name.startswith('hooks-')]
        pack = self.access.head().packs[2]
        self.assertEqual(name, pack.blob)
        self.assertEqual(name, blob_parts.whole(pack.index))
        self.assertIn(name, self.access.head().blobs())
        self.assert_all_there()

    def test_joined_files_are_pruned_and_verified(self):
        self.save_some(9)
        self.assert_all_there()
        for gone in list(self.contents)[1:7]:
            del self.contents[gone]
            pruning.delete(self.access, [gone])
        pruning.prune(self.access)
        self.assert_all_there()
        self.assertEqual(set(), self.stray())

    def test_large_saves_are_not_joined(self):
        self.patch(blob_parts, 'MOST_BYTES', 1000)
        self.save_some(2)
        head = self.access.head()
        self.assertFalse([pack for pack in head.packs.values()
                          if '@' in pack.index])
        self.assert_all_there()

    def test_a_damaged_part_is_found(self):
        self.save_some(2)
        pack = self.access.head().packs[2]
        part = blob_parts.parse(pack.index)
        path = self.directory / 'store' / part.blob
        data = bytearray(path.read_bytes())
        data[part.offset + 50] ^= 1
        path.write_bytes(data)
        self.assertFalse(verification.verify(self.access).intact)

    def test_a_save_takes_few_requests(self):
        self.save_some(1)
        requests = []
        for name in ('create', 'replace', 'put_file', 'delete', 'read',
                     'size'):
            def ask(*args, what=name, real=getattr(self.remote, name)):
                requests.append((what, args[0]))
                return real(*args)
            setattr(self.remote, name, ask)
        self.write_blocks(self.disk, 5)
        self.save(disk_format='raw')
        # Two pointers, two catalogues, the map and the index; what is new and
        # its catalogue; and twice a pointer. No file of hooks was read.
        self.assertLessEqual(len(requests), 12, requests)
