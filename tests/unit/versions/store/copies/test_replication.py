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

import itertools
import shutil
from unittest import mock

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.catalogue import record_tables
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.copies import blob_copying
from diffcache_openstack.versions.store.copies import replication
from diffcache_openstack.versions.store.keys import key_ids
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture

_CHANGES = ('create', 'replace', 'put_file', 'delete')


class Killed(BaseException):
    """The process that copies ends."""


def dying(store, changes):
    """A store whose process is killed before the next change after some."""
    left = itertools.count(changes, -1)

    def counted(change):
        def call(*arguments):
            if next(left) <= 0:
                raise Killed
            change(*arguments)

        return call

    for name in _CHANGES:
        setattr(store, name, counted(getattr(store, name)))
    return store


class ReplicationTestCase(fixture.VersionsTestCase):

    blocks = 40

    def setUp(self):
        super().setUp()
        self.contents = {}

    def open_copy(self):
        return file.FileStore(self.directory / 'copy')

    def save_some(self, count=2):
        for _ in range(count):
            self.write_blocks(self.disk, *self.noise.sample(
                range(self.blocks), 9))
            version = self.save()
            self.contents[version.id] = self.disk.read_bytes()

    def forget_oldest(self):
        version_id = next(iter(self.contents))
        del self.contents[version_id]
        pruning.delete(self.access, [version_id])
        pruning.prune(self.access, rule=pruning.PruneRule(0.01))

    def replicate(self, **options):
        return replication.replicate(self.access, self.open_copy(),
                                     blob_copying.Work(**options))

    def assert_same(self, one, other):
        """Let a store have what another has, intact, and nothing else."""
        heads = [store_access.StoreAccess(store).head()
                 for store in (one, other)]
        self.assertEqual(heads[0], heads[1])
        self.assertEqual(heads[0].digest, heads[1].digest)
        self.assertTrue(
            verification.verify(store_access.StoreAccess(one)).intact)
        if (names := one.names()) is not None:
            self.assertEqual(heads[0].blobs(), {
                name for name in names if not blob_names.is_bookkeeping(name)})
            self.assertEqual(
                [blob_names.of_head(heads[0].number)],
                [name for name in names if blob_names.head_number(name)])


class TestReplication(ReplicationTestCase):

    def test_a_copy_follows_saves_deletions_and_prunes(self):
        self.save_some()
        done = self.replicate()
        self.assertEqual(2, done.lag.versions)
        self.assert_same(self.open_copy(), self.store)
        self.save_some(3)
        self.forget_oldest()
        done = self.replicate()
        self.assertEqual(3, done.lag.versions)
        self.assertGreater(done.blobs_removed, 0)
        self.assert_same(self.open_copy(), self.store)
        self.access = store_access.StoreAccess(self.open_copy())
        for version_id, content in self.contents.items():
            self.assertEqual(content, self.content(
                self.access.head().find(version_id)))

    def test_only_what_is_missing_is_copied(self):
        self.save_some()
        self.replicate()
        self.assertEqual(0, self.replicate().blobs_copied)
        before = self.store.names()
        self.save_some(1)
        self.assertLessEqual(
            self.replicate().blobs_copied,
            len(set(self.store.names()) - set(before)))

    def test_the_lag_is_what_is_missing(self):
        self.save_some()
        self.replicate()
        before = self.access.head()
        self.assertEqual(replication.Lag(0, 0, None),
                         replication.lag(before, self.open_copy()))
        self.save_some(2)
        head = self.access.head()
        new = [version for version_id, version in head.versions.items()
               if version_id not in before.versions]
        found = replication.lag(head, self.open_copy())
        self.assertEqual((2, new[0].created_at),
                         (found.versions, found.oldest))
        sizes = sum(self.store.size(name)
                    for name in head.blobs() - before.blobs())
        self.assertEqual(sizes, found.bytes)

    def test_a_sealed_store_of_segments_is_copied(self):
        self.patch(record_tables, 'MOST_RECENT', 3)
        self.patch(record_tables, 'SEGMENT_RECORDS', 4)
        self.access = store_access.StoreAccess(self.store, bytes(32))
        key_ids.write(self.store, 'id')
        for _ in range(3):
            self.save_some(4)
            self.replicate()
        self.assertTrue(self.access.head().is_large)
        copy = store_access.StoreAccess(self.open_copy(), bytes(32))
        self.assertTrue(verification.verify(copy).intact)
        self.assertEqual(set(self.contents), set(copy.head().versions))
        self.assertEqual('id', key_ids.read(copy.store))

    def test_a_store_of_objects_is_copied(self):
        self.store = fixture.RemoteStore(self.directory / 'objects')
        self.access = store_access.StoreAccess(self.store)
        self.save_some(3)
        self.replicate()
        copy = store_access.StoreAccess(self.open_copy())
        self.assertTrue(verification.verify(copy).intact)
        self.assertEqual(self.access.head().digest, copy.head().digest)

    def test_damage_is_not_copied_and_the_head_stays(self):
        self.save_some()
        self.replicate()
        before = store_access.StoreAccess(self.open_copy()).head().number
        self.save_some()
        packs = list(self.access.head().packs.values())
        path = self.store.local_path(packs[-2].blob)
        data = path.read_bytes()
        path.write_bytes(data[:200] + b'damage' + data[206:])
        self.assertRaisesRegex(exceptions.IntegrityError, packs[-2].blob,
                               self.replicate)
        copy = store_access.StoreAccess(self.open_copy())
        self.assertEqual(before, copy.head().number)
        self.assertFalse(copy.store.exists(packs[-2].blob))
        self.assertTrue(copy.store.exists(packs[-1].blob))
        path.write_bytes(data)
        self.replicate()
        self.assert_same(self.open_copy(), self.store)

    def test_a_prune_meanwhile_is_followed(self):
        self.save_some(3)
        pruned = []

        def report(done, total):
            if not pruned:
                pruned.append(self.forget_oldest())

        self.replicate(report=report)
        self.assert_same(self.open_copy(), self.store)

    def test_a_rate_leaves_pauses(self):
        self.save_some()
        with mock.patch.object(threads, 'pause') as pause, \
                mock.patch('time.monotonic', return_value=100.0):
            size = self.replicate(rate=1000.0).lag.bytes
        self.assertEqual(100 + size / 1000, pause.call_args[0][0])


class TestRefusals(ReplicationTestCase):

    def assert_refused(self, reason):
        before = {name: self.open_copy().read(name)
                  for name in self.open_copy().names()}
        self.assertRaisesRegex(exceptions.Conflict, reason, self.replicate)
        self.assertEqual(before, {name: self.open_copy().read(name)
                                  for name in before})

    def test_another_store_is_not_overwritten(self):
        self.save_some()
        self.replicate()
        self.store = file.FileStore(self.directory / 'other')
        self.access = store_access.StoreAccess(self.store)
        self.save_some(9)
        self.assert_refused('of another store')

    def test_a_store_that_is_behind_its_copy_is_not_copied(self):
        self.save_some()
        shutil.copytree(self.directory / 'store', self.directory / 'earlier')
        self.save_some()
        self.replicate()
        self.store = file.FileStore(self.directory / 'earlier')
        self.access = store_access.StoreAccess(self.store)
        self.assert_refused('is ahead of the store')
        # Of the same number, but with other versions.
        self.save_some()
        self.assert_refused('is ahead of the store')

    def test_a_copy_with_versions_of_its_own_is_not_overwritten(self):
        self.save_some()
        self.replicate()
        first = self.access
        self.access = store_access.StoreAccess(self.open_copy())
        self.save_some(1)
        self.access = first
        self.save_some(3)
        self.assert_refused('by another writer')

    def test_the_first_store_is_not_taken_for_a_copy(self):
        self.save_some()
        shutil.copytree(self.directory / 'store', self.directory / 'copy')
        self.save_some()
        self.assert_refused('by another writer')

    def test_files_of_others_are_left_alone(self):
        (self.directory / 'copy').mkdir()
        (self.directory / 'copy' / 'letter').write_bytes(b'to a friend')
        self.save_some()
        self.assertRaisesRegex(exceptions.InvalidInput, 'letter',
                               self.replicate)


class TestKills(ReplicationTestCase):
    """Copying is killed before each of its changes."""

    def kill_at_each(self, states, work):
        """Kill work before each change; complete it by another attempt.

        :param states: numbers of heads that the target may have then
        """
        template = self.directory / 'copy'
        template.mkdir(exist_ok=True)
        template = template.rename(self.directory / 'template')
        for changes in itertools.count():
            shutil.rmtree(self.directory / 'copy', ignore_errors=True)
            shutil.copytree(template, self.directory / 'copy')
            try:
                work(dying(self.open_copy(), changes))
                break
            except Killed:
                pass
            copy = store_access.StoreAccess(self.open_copy())
            head = heads.load(copy.store)
            self.assertIn(head and head.number, states)
            if head:
                self.assertTrue(verification.verify(copy).intact, changes)
            yield changes
        self.assertGreater(changes, 5)

    def test_the_first_copy(self):
        self.save_some()
        states = (None, self.access.head().number)
        for _ in self.kill_at_each(states, lambda copy: replication.replicate(
                self.access, copy)):
            self.replicate()
            self.assert_same(self.open_copy(), self.store)

    def test_a_later_copy(self):
        self.save_some()
        self.replicate()
        states = [self.access.head().number]
        self.save_some(3)
        self.forget_oldest()
        states.append(self.access.head().number)
        for _ in self.kill_at_each(states, lambda copy: replication.replicate(
                self.access, copy)):
            self.replicate()
            self.assert_same(self.open_copy(), self.store)

    def test_the_store_goes_on_meanwhile(self):
        self.save_some()
        self.replicate()
        states = [self.access.head().number]
        self.save_some()
        states.append(self.access.head().number)
        later = self.directory / 'later'
        first = self.directory / 'store'
        shutil.copytree(first, later)
        for changes in self.kill_at_each(
                states, lambda copy: replication.replicate(
                    store_access.StoreAccess(file.FileStore(first)), copy)):
            if not changes:
                self.store = file.FileStore(later)
                self.access = store_access.StoreAccess(self.store)
                self.save_some(6)
                self.forget_oldest()
            # Nothing of the attempt that was killed counts.
            for more in (1, 9):
                try:
                    replication.replicate(self.access,
                                          dying(self.open_copy(), more))
                except Killed:
                    pass
            self.replicate()
            self.assert_same(self.open_copy(), self.store)

    def test_a_rebuilt_store(self):
        self.save_some(3)
        self.replicate()
        self.store = self.open_copy()
        (self.directory / 'copy').rename(self.directory / 'source')
        copy = store_access.StoreAccess(
            file.FileStore(self.directory / 'source'))
        states = (None, copy.head().number)
        for _ in self.kill_at_each(states, lambda target: replication.rebuild(
                copy, target)):
            if heads.load(self.open_copy()) is None:
                replication.rebuild(copy, self.open_copy())
            found = store_access.StoreAccess(self.open_copy())
            self.assertEqual(copy.head(), found.head())
            self.assertTrue(verification.verify(found).intact)


class TestKillsOfObjects(TestKills):
    """The copy is in a store of objects, which lists no names."""

    def open_copy(self):
        return fixture.RemoteStore(self.directory / 'copy')


class TestRebuild(ReplicationTestCase):

    def test_a_lost_store_is_rebuilt_and_copied_again(self):
        self.save_some(3)
        self.replicate()
        shutil.rmtree(self.directory / 'store')
        self.store = file.FileStore(self.directory / 'store')
        copy = store_access.StoreAccess(self.open_copy())
        replication.rebuild(copy, self.store)
        self.assert_same(self.store, copy.store)
        self.access = store_access.StoreAccess(self.store)
        self.save_some(2)
        self.replicate()
        self.assert_same(self.open_copy(), self.store)
        for version_id, content in self.contents.items():
            self.assertEqual(content, self.content(
                self.access.head().find(version_id)))

    def test_a_store_with_versions_is_not_overwritten(self):
        self.save_some(1)
        self.replicate()
        self.save_some(1)
        copy = store_access.StoreAccess(self.open_copy())
        self.assertRaisesRegex(exceptions.Conflict, 'has versions',
                               replication.rebuild, copy, self.store)
        self.assertEqual(2, len(self.access.head().versions))


class TestRepair(ReplicationTestCase):

    def test_damaged_and_missing_blobs_are_repaired(self):
        self.save_some(3)
        self.replicate()
        head = self.access.head()
        packs = list(head.packs.values())
        self.store.delete(packs[0].blob)
        path = self.store.local_path(packs[1].index)
        path.write_bytes(path.read_bytes()[:-40] + bytes(40))
        path = self.store.local_path(next(iter(head.maps.values())).blob)
        path.write_bytes(bytes(path.stat().st_size))
        damage = [each.object for each
                  in verification.verify(self.access).damage]
        self.assertEqual(3, len(damage), damage)
        self.assertEqual(sorted(damage), sorted(replication.repair(
            self.access, self.open_copy(), damage)))
        self.assertTrue(verification.verify(self.access).intact)

    def test_a_copy_is_repaired_from_its_store(self):
        self.save_some(2)
        self.replicate()
        self.forget_oldest()
        access = store_access.StoreAccess(self.open_copy())
        name = list(access.head().maps.values())[-1].blob
        access.store.local_path(name).write_bytes(b'damage')
        self.assertEqual([name], replication.repair(access, self.store,
                                                    [name]))
        self.assertTrue(verification.verify(access).intact)
        self.replicate()
        self.assert_same(self.open_copy(), self.store)

    def test_damage_of_the_copy_repairs_nothing(self):
        self.save_some(2)
        self.replicate()
        [name] = [pack.blob for number, pack
                  in self.access.head().packs.items() if number == 1]
        for store in (self.store, self.open_copy()):
            store.local_path(name).write_bytes(b'damage')
        self.assertEqual([], replication.repair(
            self.access, self.open_copy(), [name, 'latest-0', 'letter']))
        self.assertEqual(b'damage', self.store.read(name))
