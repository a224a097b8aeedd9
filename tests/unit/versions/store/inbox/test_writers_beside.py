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
"""Writers of one store that come between the steps of another."""

import contextlib
import os
import shutil
import signal
import threading
import time

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.blobs import layered
from diffcache_openstack.versions.blobs import upload_ledger
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store.access import orphans
from diffcache_openstack.versions.store.access import reserve
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.catalogue import record_tables
from diffcache_openstack.versions.store.commits import reservations
from diffcache_openstack.versions.store.copies import replication
from diffcache_openstack.versions.store.inbox import acceptance
from diffcache_openstack.versions.store.indexes import manifests
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture
from tests.unit.versions.store.catalogue import test_large_stores
from tests.unit.versions.store.commits import test_arbitration

# More than writers are given to end.
LATE = 4000.0


class ObjectStore(test_arbitration.RacyStore):
    """As a store of objects: it has no lock, and lists no names."""

    listed = False

    def __init__(self, directory):
        super().__init__(directory)
        self.ledger = upload_ledger.UploadLedger(
            directory.with_suffix('.json'), blob_names.is_bookkeeping)

    def traces(self):
        return self.ledger.names()

    def age(self, name):
        return self.ledger.age(name)

    def is_abandoned(self, work):
        return False

    def create(self, name, data):
        self.ledger.note(name)
        super().create(name, data)

    def replace(self, name, data):
        self.ledger.note(name)
        super().replace(name, data)

    def delete(self, name):
        super().delete(name)
        self.ledger.forget(name)

    def local_path(self, name):
        return None

    def put_file(self, name, path):
        copy = path.with_name('copy')
        copy.write_bytes(path.read_bytes())
        self.ledger.note(name)
        super().put_file(name, copy)


@contextlib.contextmanager
def no_image(_image_id):
    yield None


def once(access, work):
    """Have something done before the next commit of a writer."""
    commit = access.commit

    def after(*arguments, **options):
        access.commit = commit
        work()
        return commit(*arguments, **options)

    access.commit = after


def save(access, disk, series, **options):
    return saving.save_disks(
        access, [save_request.SaveRequest(disk, series)], **options)[0]


class TestAcceptances(fixture.VersionsTestCase):
    """Two tasks that accept what hosts have put into the inbox."""

    blocks = 30

    def place(self, name):
        return ObjectStore(self.directory / name)

    def keeper(self):
        return store_access.StoreAccess(self.place('main'),
                                        arbiter=self.arbiter)

    def setUp(self):
        super().setUp()
        self.arbiter = test_arbitration.Arbiter()
        self.rules = acceptance.Rules(no_image)

    def accept(self):
        return acceptance.accept(self.keeper(), self.place('inbox'),
                                 self.rules)

    def test_one_accepts_what_the_other_is_accepting(self):
        for series in 'ab':
            save(store_access.StoreAccess(
                layered.LayeredStore(self.place('main'), self.place('inbox')),
                arbiter=self.arbiter), self.write_file(
                    series, self.blocks_of(30)), series)
            if series == 'a':
                self.accept()
        real, left = acceptance._Acceptance._copy, [1]

        def copy(one, name, size, staging):
            if left:
                left.clear()
                self.accept()
            return real(one, name, size, staging)

        self.patch(acceptance._Acceptance, '_copy', copy)
        with contextlib.suppress(exceptions.DiffCacheError):
            self.accept()
        found = verification.verify(
            store_access.StoreAccess(self.place('main')))
        self.assertEqual(0, len(found.versions_damaged))


class TestObjectStores(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.arbiter = test_arbitration.Arbiter()
        self.clock = 0.0
        now = time.time
        self.patch(upload_ledger.time, 'time', lambda: now() + self.clock)
        save(self.writer(), self.write_file('f', self.blocks_of(5)), 'f')

    def writer(self):
        return store_access.StoreAccess(
            ObjectStore(self.directory / 'objects'), arbiter=self.arbiter)

    def late(self, between):
        """Save while something happens after a long upload."""
        access = self.writer()
        kept = reserve.keep

        def keep(store, head):
            self.clock += LATE
            access._held.begun = -1e9
            self.patch(reserve, 'keep', kept)
            between()
            kept(store, head)

        self.patch(reserve, 'keep', keep)
        return save(access, self.write_file('big', self.blocks_of(700)), 'b',
                    token='b')

    def small(self, access=None):
        save(access or self.writer(),
             self.write_file('small', self.blocks_of(5)), 's', token='s')

    def test_a_save_whose_upload_takes_long_keeps_its_blobs(self):
        self.late(self.small)
        self.assertEqual([], verification.verify(self.writer()).damage)

    def test_also_while_another_looks_for_what_to_remove(self):
        other = self.writer()
        find = orphans.find
        found, go_on = threading.Event(), threading.Event()

        def find_slowly(store, head):
            names = find(store, head)
            if store is other.store:
                found.set()
                go_on.wait(60)
            return names

        self.patch(orphans, 'find', find_slowly)
        thread = threading.Thread(target=self.small, args=[other])

        def begin():
            thread.start()
            found.wait(60)

        self.late(begin)
        go_on.set()
        thread.join()
        self.assertEqual([], verification.verify(self.writer()).damage)


class TestNumbers(fixture.VersionsTestCase):

    def test_a_save_that_was_committed_begins_with_others_again(self):
        for kind in (file.FileStore, fixture.RemoteStore):
            def writer(kind=kind):
                return store_access.StoreAccess(
                    kind(self.directory / kind.__name__))

            disk = self.write_file('disk', self.blocks_of(60))
            # It is killed after its commit, with its directory there.
            with self.patched(base.shutil, 'rmtree'):
                one = save(writer(), disk, 't', token='t')
            other = self.write_file('other', disk.read_bytes())
            two = save(writer(), other, 'o')
            pruning.delete(writer(), [one.id])
            self.write_blocks(disk, *range(60))
            save(writer(), disk, 't', token='t')
            out = self.directory / f'out-{kind.__name__}'
            restoring.restore(writer(), two.id, restoring.Output(out, 'raw'))
            self.assertEqual(other.read_bytes(), out.read_bytes())
            self.assertEqual([], verification.verify(writer()).damage)

    @contextlib.contextmanager
    def patched(self, owner, name):
        real = getattr(owner, name)
        setattr(owner, name, lambda *_args, **_options: None)
        try:
            yield
        finally:
            setattr(owner, name, real)

    def test_a_save_that_only_reads_shows_that_it_is_alive(self):
        """The disk, and then the version for its manifest."""
        self.patch(saving, '_TOUCH_SECONDS', -1.0)
        compute, phases = manifests.compute, [[]]

        def forget():
            [work] = self.store.works()
            touched = work.stat().st_mtime
            os.utime(work, (0, 0))
            return touched

        def progress(_done, _total):
            phases[-1].append(forget())

        def begin_next(*arguments):
            phases.append([])
            forget()
            return compute(*arguments)

        self.patch(manifests, 'compute', begin_next)
        saving.save(self.access, save_request.SaveRequest(
            self.disk, 'a', manifest=True), progress)
        self.assertEqual(2, len(phases))
        for touched in phases:
            self.assertTrue(touched and all(touched), phases)

    def test_stores_of_two_block_sizes_are_not_one(self):
        path = self.directory / 'new'
        one, two = (store_access.StoreAccess(file.FileStore(path),
                                             block_size=size)
                    for size in (4096, 8192))
        once(two, lambda: save(one, self.disk, 'a'))
        self.assertRaises(exceptions.Busy, save, two, self.write_file(
            'b', self.blocks_of(100)), 'b')
        self.assertEqual([], verification.verify(one).damage)


class TestArbiters(test_arbitration.ArbitrationTest):

    def test_one_that_has_forgotten_numbers(self):
        self.arbiter.take_numbers = lambda least, count: least
        one, two = self.writer(), self.writer()
        once(two, lambda: save(one, self.write_file(
            'x', self.blocks_of(20)), 'x', token='x'))
        disk = self.write_file('y', self.blocks_of(20))
        for _attempt in range(2):
            try:
                save(two, disk, 'y', token='y')
            except exceptions.Busy:
                continue
            break
        else:
            self.fail('No attempt saved it.')
        self.assertEqual([], verification.verify(one).damage)

    def test_one_that_gives_numbers_that_no_catalogue_can_have(self):
        for numbers in ((1 << 40, 5, 5), (5, 1 << 40, 5), (5, 5, 1 << 40)):
            self.arbiter.take_numbers = (
                lambda least, count, numbers=numbers: reservations.Numbers(
                    *numbers))
            with contextlib.suppress(exceptions.DiffCacheError):
                self.save_as(self.writer(), f'{numbers}')
            self.writer().head_or_new()

    def test_one_whose_answer_is_lost(self):
        self.patch(record_tables, 'MOST_RECENT', 3)
        self.patch(record_tables, 'SEGMENT_RECORDS', 4)
        move, lost = self.arbiter.move, [False]

        def move_twice(before, new):
            if lost.pop():
                lost.append(False)
                move(before, new)
                self.save_as(self.writer(), 'other')
            else:
                lost.append(False)
            move(before, new)

        self.arbiter.move = move_twice
        for number in range(6):
            lost[:] = [True]
            self.save_as(self.access, f'x{number}')
            self.assertEqual([], verification.verify(self.writer()).damage)


class TestSegments(test_large_stores.LargeStoresTest):

    def writer(self):
        return store_access.StoreAccess(
            file.FileStore(self.directory / 'store'))

    def test_saves_that_are_overtaken_while_segments_are_replaced(self):
        self.save_some(14)
        disk = self.write_file('mine', self.blocks_of(3))
        for others in (1, 3, 5, 2, 4):
            access = self.writer()

            def overtake(others=others):
                for number in range(others):
                    name = f'{others}-{number}'
                    save(self.writer(), self.write_file(
                        name, self.blocks_of(3)), name)

            once(access, overtake)
            save(access, disk, f'mine-{others}')
        self.assertEqual([], verification.verify(self.writer()).damage)


class TestHostile(fixture.VersionsTestCase):

    blocks = 20

    def test_pipes_among_what_hosts_note_in_an_inbox(self):
        self.save()
        inbox = file.FileStore(self.directory / 'inbox')
        work = self.directory / 'inbox' / '.writers' / 'work-evil'
        work.mkdir(parents=True)
        os.mkfifo(work / 'puts')
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(
            signal.SIGALRM, lambda *_: self.fail('It waits for the pipe.')))
        signal.alarm(60)
        self.addCleanup(signal.alarm, 0)
        rules = acceptance.Rules(no_image)
        acceptance.accept(self.access, inbox, rules)
        for content in ('[1, 2]', 'none', '{"a": "b"}'):
            (work / 'puts').unlink()
            (work / 'puts').write_text(content)
            acceptance.accept(self.access, inbox, rules)


class TestCopies(fixture.VersionsTestCase):

    blocks = 40

    def test_a_store_that_was_put_back_and_saved_to_since(self):
        path = self.directory / 'store'
        copy = file.FileStore(self.directory / 'copy')

        def save_some(first, count):
            for number in range(first, first + count):
                self.write_blocks(self.disk, number)
                self.save()

        def access():
            return store_access.StoreAccess(file.FileStore(path))

        save_some(0, 3)
        shutil.copytree(path, self.directory / 'backup')
        save_some(3, 3)
        replication.replicate(access(), copy)
        before = set(store_access.StoreAccess(copy).head().versions)
        shutil.rmtree(path)
        shutil.copytree(self.directory / 'backup', path)
        save_some(10, 4)
        error = self.assertRaises(exceptions.Conflict, replication.replicate,
                                  access(), copy)
        self.assertIn('put back', str(error))
        self.assertEqual(before, set(
            store_access.StoreAccess(copy).head().versions))
