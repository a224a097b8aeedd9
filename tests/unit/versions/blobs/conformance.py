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
"""One set of tests that every store of blobs passes."""

import pathlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base as store_base
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.copies import replication
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification


class Conformance:
    """Mix in with a test case, and return a new store from ``make_store``."""

    def make_store(self) -> store_base.BlobStore:
        """An empty store."""
        raise NotImplementedError

    def setUp(self):
        super().setUp()
        self.store = self.make_store()

    def put(self, name: str, data: bytes) -> None:
        """Put a blob by a file."""
        with self.store.staging() as staging:
            path = staging / 'file'
            path.write_bytes(data)
            self.store.put_file(name, path)
        self.store.flush()

    def test_what_was_created_is_read(self):
        self.store.create('head-1', b'0123456789')
        self.assertEqual(b'0123456789', self.store.read('head-1'))
        self.assertEqual(b'345', self.store.read('head-1', 3, 3))
        self.assertEqual(b'89', self.store.read('head-1', 8, 100))
        self.assertEqual(b'', self.store.read('head-1', 10, 1))
        self.assertEqual(10, self.store.size('head-1'))
        self.assertTrue(self.store.exists('head-1'))

    def test_creating_twice_is_a_conflict_and_changes_nothing(self):
        self.store.create('head-1', b'old')
        self.assertRaises(exceptions.Conflict, self.store.create, 'head-1',
                          b'new')
        self.assertEqual(b'old', self.store.read('head-1'))

    def test_replacing_makes_or_changes(self):
        self.store.replace('latest', b'one')
        self.store.replace('latest', b'another')
        self.assertEqual(b'another', self.store.read('latest'))

    def test_files_become_blobs(self):
        data = bytes(range(256)) * 40_000
        self.put('pack-1', data)
        self.assertEqual(data, self.store.read('pack-1'))
        self.assertEqual(data[5_000_000:5_000_010],
                         self.store.read('pack-1', 5_000_000, 10))

    def test_files_do_not_replace_blobs(self):
        self.put('pack-1', b'old')
        self.assertRaises(exceptions.Conflict, self.put, 'pack-1', b'new')
        self.assertEqual(b'old', self.store.read('pack-1'))

    def test_what_is_not_there_is_not_found(self):
        self.assertRaises(exceptions.NotFound, self.store.read, 'none')
        self.assertRaises(exceptions.NotFound, self.store.size, 'none')
        self.assertFalse(self.store.exists('none'))

    def test_deleting_is_for_good_and_may_be_repeated(self):
        self.store.create('head-1', b'x')
        self.store.delete('head-1')
        self.store.delete('head-1')
        self.assertFalse(self.store.exists('head-1'))
        self.store.create('head-1', b'y')
        self.assertEqual(b'y', self.store.read('head-1'))

    def test_names_that_leave_the_store_are_refused(self):
        for name in ('../x', 'a/b', '', 'A', '.hidden', 'x' * 200):
            self.assertRaises(exceptions.InvalidInput, self.store.create,
                              name, b'')
            self.assertRaises(exceptions.InvalidInput, self.store.read, name)

    def test_names_are_those_of_the_blobs_if_they_can_be_told(self):
        self.store.create('b', b'')
        self.store.create('a', b'')
        names = self.store.names()
        if names is not None:
            self.assertEqual(['a', 'b'], sorted(names))

    def test_local_paths_have_the_bytes(self):
        self.store.create('a', b'bytes')
        path = self.store.local_path('a')
        if path is not None:
            self.assertEqual(b'bytes', pathlib.Path(path).read_bytes())

    def test_staging_is_empty_and_goes(self):
        with self.store.staging() as staging:
            self.assertEqual([], list(staging.iterdir()))
            (staging / 'x').write_bytes(b'x')
        self.assertFalse(staging.exists())

    def test_the_lock_can_be_taken_again(self):
        for _ in range(2):
            with self.store.lock():
                self.store.replace('a', b'')


class KeepsVersions(Conformance):
    """What holds where versions are kept, besides."""

    def test_a_life_of_versions(self):
        repo = store_access.StoreAccess(self.store)
        disk = self.write_file('disk', bytes(range(256)) * 16000)
        output = self.directory / 'out'
        contents = []
        for change in range(3):
            with open(disk, 'r+b') as stream:
                stream.seek(change * 8192)
                stream.write(b'change')
            saving.save(repo, save_request.SaveRequest(disk, 'a'))
            contents.append(disk.read_bytes())
        versions = repo.head().of_series('a')
        self.assertEqual(3, len(versions))
        for version, content in zip(versions, contents):
            restoring.restore(repo, version.id,
                              restoring.Output(output, 'raw'))
            self.assertEqual(content, output.read_bytes())
        pruning.delete(repo, [version.id for version in versions[:2]])
        pruning.prune(repo, rule=pruning.PruneRule(0.0, level=9))
        self.assertTrue(verification.verify(repo).intact)
        self.assertEqual([versions[2].id],
                         [each.id for each in repo.head().of_series('a')])
        restoring.restore(repo, versions[2].id,
                          restoring.Output(output, 'raw'))
        self.assertEqual(contents[2], output.read_bytes())

    def test_a_copy_of_another_store_and_back(self):
        first = file.FileStore(self.directory / 'first')
        access = store_access.StoreAccess(first)
        disk = self.write_file('disk', bytes(range(256)) * 16000)
        for change in range(3):
            with open(disk, 'r+b') as stream:
                stream.seek(change * 8192)
                stream.write(b'change')
            saving.save(access, save_request.SaveRequest(disk, 'a'))
            replication.replicate(access, self.store)
            copy = store_access.StoreAccess(self.store)
            self.assertTrue(verification.verify(copy).intact)
            self.assertEqual(access.head(), copy.head())
        pruning.delete(access, [access.head().of_series('a')[0].id])
        pruning.prune(access, rule=pruning.PruneRule(0.0))
        replication.replicate(access, self.store)
        rebuilt = file.FileStore(self.directory / 'rebuilt')
        replication.rebuild(copy, rebuilt)
        again = store_access.StoreAccess(rebuilt)
        self.assertEqual(access.head(), again.head())
        self.assertTrue(verification.verify(again).intact)

    def test_work_that_may_go_on_finds_what_it_left(self):
        def leave(error):
            with self.store.lock(), self.store.staging('work-1') as staging:
                (staging / 'half').write_bytes(b'half')
                raise error

        for error, kept in ((exceptions.ServiceUnavailable('x'), True),
                            (exceptions.Interrupted('x'), True),
                            (exceptions.NoSpace('x'), False),
                            (exceptions.Cancelled('x'), False),
                            (ValueError(), False)):
            self.assertRaises(type(error), leave, error)
            with self.store.lock(), self.store.staging('work-1') as staging:
                self.assertEqual(kept, (staging / 'half').exists())
            with self.store.lock(), self.store.staging('work-1') as staging:
                self.assertEqual([], list(staging.iterdir()))
