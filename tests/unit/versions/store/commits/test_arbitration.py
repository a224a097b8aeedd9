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
"""Writers of stores whose locks exclude no other, and their arbiter."""

import contextlib
import dataclasses

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.catalogue import record_tables
from diffcache_openstack.versions.store.commits import arbitration
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.commits import reservations
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture


class Killed(BaseException):
    """The process of a writer ends."""


class Arbiter:
    """Decides in memory, as the conductor does in its database."""

    head = None
    numbers = reservations.Numbers(1, 1, 1)

    def __init__(self):
        self.before = self.after = lambda: None

    def read(self):
        return self.head

    def take_numbers(self, least, count):
        first = reservations.Numbers(
            *map(max, dataclasses.astuple(least),
                 dataclasses.astuple(self.numbers)))
        self.numbers = first.plus(count)
        return first

    def move(self, base, new):
        self.before()
        if self.head not in (None, base, new) and not (
                base and self.head.number < base.number):
            raise exceptions.Busy('Another writer moved the head.')
        self.head = new
        self.after()


class RacyStore(file.FileStore):
    """Like an object store: nothing is locked, and the last put wins."""

    exclusive = False
    listed = True

    def __init__(self, directory):
        super().__init__(directory)
        # Called before each change: with the name of a blob that is put, or
        # what is done to another.
        self.watch = lambda name: None

    @contextlib.contextmanager
    def lock(self, purpose=''):
        yield

    def create(self, name, data):
        self.watch(name)
        if self.exists(name):
            super().replace(name, data)
        else:
            super().create(name, data)

    def replace(self, name, data):
        self.watch(name)
        super().replace(name, data)

    def put_file(self, name, path):
        self.watch(name)
        super().put_file(name, path)

    def delete(self, name):
        self.watch(f'delete {name}')
        super().delete(name)

    def names(self):
        return super().names() if self.listed else None


class ArbitrationTest(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.arbiter = Arbiter()
        self.access = self.writer()
        self.store = self.access.store
        self.first = self.save()

    def writer(self):
        """A writer of another host."""
        return store_access.StoreAccess(
            RacyStore(self.directory / 'store'), arbiter=self.arbiter)

    def save_as(self, access, series='b'):
        disk = self.write_file(f'disk-{series}', self.blocks_of(20))
        return saving.save(access, save_request.SaveRequest(disk, series))

    def series(self):
        return sorted(version.series for version
                      in self.writer().head().versions.values())

    def assert_intact(self):
        found = verification.verify(self.writer())
        self.assertTrue(found.intact, found)


class TestNumbers(ArbitrationTest):
    """An arbiter gives no number twice, used or not."""

    def setUp(self):
        super().setUp()
        self.patch(saving, '_PACK_BYTES', fixture.BLOCK)

    def test_a_save_of_few_blocks_takes_few_numbers(self):
        before = self.arbiter.numbers.pack
        self.write_blocks(self.disk, 3)
        self.save()
        self.assertEqual(saving._FEW_PACKS, self.arbiter.numbers.pack - before)
        self.assert_intact()

    def save_of_many(self, meanwhile=lambda: None):
        """Save; return how often, and how many numbers of packs that took."""
        self.patch(saving, '_FEW_PACKS', 0)
        self.write_blocks(self.disk, 3)
        before, taken = self.arbiter.numbers.pack, []

        def take(least, count, real=self.arbiter.take_numbers):
            taken.append(count)
            if count.pack:
                meanwhile()
            return real(least, count)

        self.arbiter.take_numbers = take
        version = self.save()
        self.assertEqual(self.disk.read_bytes(), self.content(version))
        self.assert_intact()
        return (sum(count.version for count in taken),
                self.arbiter.numbers.pack - before)

    def test_one_of_many_blocks_takes_more_when_it_has_them(self):
        self.assertEqual((1, 1), self.save_of_many())
        self.assertEqual(['a', 'a'], self.series())

    def test_one_whose_next_numbers_others_have_is_made_again(self):
        def other():
            self.arbiter.numbers = self.arbiter.numbers.plus(
                reservations.Numbers(1, 0, 0))

        saves, numbers = self.save_of_many(other)
        self.assertEqual(2, saves)
        self.assertLess(self.blocks, numbers)
        self.assertEqual(['a', 'a'], self.series())


class TestTwoWriters(ArbitrationTest):

    def overtaken(self, work):
        """Perform work, which another writer's save overtakes at its end."""
        def watch(name):
            if name.startswith(('next-', 'head-')):
                self.access.store.watch = lambda name: None
                self.save_as(self.writer())

        self.access.store.watch = watch
        work()

    def test_a_save_that_is_overtaken_commits_behind_the_other(self):
        self.overtaken(lambda: self.save_as(self.access, 'c'))
        self.assertEqual(['a', 'b', 'c'], self.series())
        self.assert_intact()

    def test_a_delete_that_is_overtaken_leaves_what_was_saved(self):
        self.save_as(self.writer(), 'x')
        gone = self.access.head().find(self.first.id)
        self.overtaken(lambda: pruning.delete(self.access, [gone.id]))
        self.assertEqual(['b', 'x'], self.series())
        self.assert_intact()

    def test_both_first_saves_of_two_count(self):
        self.arbiter = Arbiter()
        self.access = store_access.StoreAccess(
            RacyStore(self.directory / 'new'), arbiter=self.arbiter)
        other = store_access.StoreAccess(
            RacyStore(self.directory / 'new'), arbiter=self.arbiter)

        def watch(name):
            if name.startswith('next-'):
                self.access.store.watch = lambda name: None
                self.save_as(other)

        self.access.store.watch = watch
        self.save()
        self.assertEqual([1, 2], sorted(
            version.number for version in other.head().versions.values()))

    def test_a_writer_without_an_arbiter_is_followed(self):
        for _ in range(2):
            self.save_as(store_access.StoreAccess(self.store), 'old')
        self.save_as(self.access, 'new')
        self.assertEqual(['a', 'new', 'old', 'old'], self.series())

    def test_a_store_that_is_put_back_is_noticed(self):
        copy = {name: self.store.read(name) for name in self.store.names()}
        self.save_as(self.access)
        for name in self.store.names():
            self.store.delete(name)
        for name, data in copy.items():
            self.store.create(name, data)
        # By a host that saw nothing of it before, too.
        error = self.assertRaises(exceptions.IntegrityError, self.save_as,
                                  self.writer())
        self.assertIn('is back at catalogue 1', str(error))
        self.assertIn('version-store reset', str(error))
        self.arbiter.head = None
        self.save_as(self.writer())

    def test_another_catalogue_of_the_same_number_is_noticed(self):
        head = self.access.head()
        self.store.replace(blob_names.of_head(head.number),
                           head.encode(b'k' * 32))
        error = self.assertRaises(exceptions.IntegrityError, self.save_as,
                                  self.access)
        self.assertIn('another catalogue', str(error))

    def test_a_decision_whose_answer_is_lost_is_completed(self):
        def lose():
            self.arbiter.after = lambda: None
            raise exceptions.ServiceUnavailable('no answer')

        self.arbiter.after = lose
        self.assertRaises(exceptions.ServiceUnavailable, self.save_as,
                          self.access)
        # Readers see the old state until the next writer.
        self.assertEqual(['a'], self.series())
        self.save_as(self.writer(), 'c')
        self.assertEqual(['a', 'b', 'c'], self.series())

    def lose_answer(self, others):
        """Have the next decision's answer be lost, until others went on."""
        def lose():
            self.arbiter.after = lambda: None
            for _ in range(heads.KEPT):
                self.save_as(self.writer(), 'other')
            others()
            raise exceptions.Busy('Another writer moved the head.')

        self.arbiter.after = lose

    def test_a_decision_that_is_told_late_keeps_its_records(self):
        self.patch(record_tables, 'MOST_RECENT', 1)
        self.patch(record_tables, 'SEGMENT_RECORDS', 1)
        self.lose_answer(lambda: None)
        self.save_as(self.access)
        self.assertEqual(['a', 'b', *['other'] * heads.KEPT], self.series())
        self.assert_intact()

    def test_a_decision_that_is_told_late_keeps_its_blobs(self):
        """Nothing can be committed behind a prune of the same packs."""
        for token in (None, 'token'):
            self.lose_answer(lambda: pruning.prune(
                self.writer(), rule=pruning.PruneRule(level=9)))
            disk = self.write_file('lost', self.blocks_of(20))
            [saved] = saving.save_disks(
                self.access, [save_request.SaveRequest(disk, 'lost')],
                token=token)
            self.assertIn(saved.id, self.writer().head().versions)
            self.assert_intact()
        # By its token it is found, and not saved again.
        self.assertEqual(1, len(self.writer().head().of_token('token')))

    def test_local_filesystems_need_no_arbiter(self):
        def no_answer():
            raise exceptions.ServiceUnavailable('no conductor')

        self.arbiter.before = self.arbiter.read = no_answer
        access = store_access.StoreAccess(
            file.FileStore(self.directory / 'local'), arbiter=self.arbiter)
        self.save_as(access)


class TestKilledWriters(ArbitrationTest):
    """A writer is killed before each of its changes in turn."""

    listed = True

    def killed_at(self, step):
        """Save, and be killed before a step; return what was changed.

        The steps are changes of the store, and before and after the decision.
        """
        access, steps = self.writer(), []

        def change(name):
            if len(steps) >= step:
                raise Killed
            steps.append(name)

        access.store.watch = change
        self.arbiter.before = lambda: change('decision')
        self.arbiter.after = lambda: change('decided')
        try:
            self.save_as(access, f's{step}')
        except Killed:
            return steps
        finally:
            self.arbiter.before = self.arbiter.after = lambda: None
        return None

    def recovering(self):
        access = self.writer()
        access.store.listed = self.listed
        with access.writing():
            pass
        return access

    def test_the_next_writer_finds_the_old_state_or_the_new(self):
        before, seen = ['a'], set()
        for step in range(40):
            steps = self.killed_at(step)
            if steps is None:
                break
            seen |= {name.split('-')[0] for name in steps}
            self.recovering()
            after = sorted([*before, f's{step}'])
            found = self.series()
            # The decision is what counts.
            self.assertEqual(after if 'decision' in steps else before, found)
            before = found
            self.assert_intact()
            with self.access.maintaining():
                pass
            self.assertFalse(self.store.exists(
                arbitration.candidate_name(self.arbiter.head)))
        self.assertLess(step, 39)
        self.assertLessEqual({'pack', 'index', 'map', 'next', 'decision',
                              'decided', 'head', 'latest'}, seen)
        self.save_as(self.writer(), 'z')
        self.assert_intact()


class TestKilledWritersOfObjectStores(TestKilledWriters):

    listed = False
