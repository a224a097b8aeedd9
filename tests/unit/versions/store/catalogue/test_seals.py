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
"""Stores that were changed by a writer without their key."""

import dataclasses
import shutil

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.commits import head_memory
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture

_KEY = bytes(range(32))


class TestSeals(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.access = store_access.StoreAccess(self.store, _KEY)
        self.first = self.save()
        self.write_blocks(self.disk, *range(40))
        self.second = self.save()

    def stored(self):
        """Return the head without checking its seal."""
        return heads.load(self.store)

    def forge(self, head, key=None):
        """Write a head with right checksums, but without the key."""
        name = blob_names.of_head(head.number)
        self.store.replace(name, head.encode(key))

    def swap_roots(self, head):
        one, other = head.versions.values()
        for version, root in ((one, other.root), (other, one.root)):
            head.versions[version.id] = dataclasses.replace(version,
                                                            root=root)
        return head

    def test_swapped_roots_are_noticed(self):
        for key in (None, bytes(32)):
            self.forge(self.swap_roots(self.stored()), key)
            for read in (self.access.head, self.save,
                         lambda: verification.verify(self.access)):
                error = self.assertRaises(exceptions.IntegrityError, read)
                self.assertIn('without the key', str(error))

    def test_an_older_catalogue_under_a_later_number_is_noticed(self):
        head = self.stored()
        old = self.store.read(blob_names.of_head(head.number - 1))
        self.store.replace(blob_names.of_head(head.number), old)
        self.assertRaises(exceptions.IntegrityError, self.access.head)

    def test_exchanged_maps_and_indexes_are_noticed(self):
        head = self.access.head()
        with self.access.opened(head) as opened:
            live, _known = opened.live([self.first.root])
            path, _size = opened.compact_map(2, live, self.directory)
            forged = path.read_bytes()
        blob = head.maps[2].blob
        self.store.replace(blob, forged)
        found = verification.verify(self.access)
        self.assertFalse(found.intact)
        self.assertIn(blob, [each.object for each in found.damage])
        self.assertRaises(exceptions.IntegrityError, self.content,
                          self.second)

    def test_an_exchanged_index_is_noticed(self):
        head = self.access.head()
        with self.access.opened(head) as opened:
            live, _known = opened.live([self.second.root])
            written = opened.compact(1, live, self.directory, 3)
        self.store.replace(head.packs[1].index, written.index.read_bytes())
        self.assertRaises(exceptions.IntegrityError, self.content,
                          self.second)


class TestMemory(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.path = self.directory / 'state' / 'p1.json'
        self.access = store_access.StoreAccess(
            self.store, _KEY, memory=head_memory.HeadMemory(self.path))
        self.first = self.save()
        self.copy = self.directory / 'copy'
        shutil.copytree(self.directory / 'store', self.copy)
        self.write_blocks(self.disk, 1)
        self.second = self.save()

    def put_back(self):
        shutil.rmtree(self.directory / 'store')
        shutil.copytree(self.copy, self.directory / 'store')

    def assert_noticed(self, expected):
        names = sorted(self.store.names())
        for use in (self.access.head, self.save,
                    lambda: pruning.prune(self.access)):
            error = self.assertRaises(exceptions.IntegrityError, use)
            self.assertIn(expected, str(error))
            self.assertIn(str(self.path), str(error))
        # Nothing is removed for being unknown to an old catalogue.
        self.assertEqual(names, sorted(self.store.names()))

    def test_a_store_that_is_put_back_is_noticed(self):
        self.put_back()
        self.assert_noticed('is back at catalogue 1')
        # The operator restored it on purpose.
        self.path.unlink()
        self.assertEqual([self.first.id], list(self.access.head().versions))
        self.save()

    def test_a_store_that_is_refused_keeps_its_reserve(self):
        reserve = self.directory / 'store' / '.reserve'
        self.put_back()
        size = reserve.stat().st_size
        for work in (lambda: pruning.delete(self.access, [self.first.id]),
                     lambda: pruning.prune(self.access)):
            self.assertRaises(exceptions.IntegrityError, work)
            self.assertEqual(size, reserve.stat().st_size)
            self.assertLessEqual(size, reserve.stat().st_blocks * 512)

    def test_a_store_that_is_emptied_is_noticed(self):
        shutil.rmtree(self.directory / 'store')
        self.store = file.FileStore(self.directory / 'store')
        self.access.store = self.store
        self.assert_noticed('is empty')

    def test_another_store_in_its_place_is_noticed(self):
        shutil.rmtree(self.directory / 'store')
        self.store = file.FileStore(self.directory / 'store')
        other = store_access.StoreAccess(self.store, _KEY)
        for _ in range(3):
            other.commit(other.head_or_new())
        self.access.store = self.store
        self.assert_noticed('is another one')

    def test_a_later_catalogue_is_not_forgotten_for_an_older_one(self):
        """Each thread and process has a memory of its own of one file."""
        head, locked = self.access.head(), files.locked

        def after_another(path):
            self.patch(files, 'locked', locked)
            head_memory.HeadMemory(self.path).note(
                dataclasses.replace(head, number=9))
            return locked(path)

        self.patch(files, 'locked', after_another)
        memory = head_memory.HeadMemory(self.path)
        memory.note(dataclasses.replace(head, number=7))
        self.assertEqual(9, memory.read().number)

    def test_commits_of_other_threads_are_no_step_back(self):
        # Between reading the memory and the store, and after both.
        real = heads.load

        def load(store, decided=None):
            head = real(store)
            self.patch(heads, 'load', real)
            other = store_access.StoreAccess(
                self.store, _KEY, memory=head_memory.HeadMemory(self.path))
            other.commit(other.head())
            return head

        self.patch(heads, 'load', load)
        number = self.access.head().number
        self.assertEqual(number + 1, self.access.head().number)
