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
"""Saves that were interrupted, and go on where they were."""

import pathlib
import shutil
from unittest import mock

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions import version_store
from tests.unit.versions import fixture

_MIB = 1 << 20
# So much is read before a save writes down how far it is.
_INTERVAL = 64 * _MIB


class GoingOnTest(fixture.VersionsTestCase):

    blocks = 100 * _MIB // fixture.BLOCK
    token = 't-1'

    def setUp(self):
        super().setUp()
        self.disks = [version_store.Disk(self.disk, 'a', format='raw')]

    def engine_of(self, store):
        return version_store.VersionStore(store_access.StoreAccess(store))

    def interrupt(self, store, is_now, alpha=0.0):
        """Begin a save, and end it at some progress."""
        def stop(done, total):
            if is_now(done, total):
                raise exceptions.Interrupted('now')

        self.assertRaises(exceptions.Interrupted,
                          self.engine_of(store).save, self.disks,
                          alpha=alpha, job=version_store.Job(stop),
                          token=self.token)

    def go_on(self, store, alpha=0.0):
        """The versions, and the bytes that were not read again."""
        with mock.patch.object(saving.LOG, 'info') as told:
            versions = self.engine_of(store).save(self.disks, alpha=alpha,
                                                  token=self.token)
        return versions, sum(
            call.args[2] for call in told.call_args_list
            if 'Resumed reading' in call.args[0])

    def packs(self, store):
        """What the packs of a store are, by their numbers."""
        return {name[:13]: store.read(name) for name
                in file.FileStore.names(store) if name.startswith('pack-')}


def late(done, _total):
    """Whether a disk of 100 MiB is nearly read."""
    return done >= 97 * _MIB


def in_the_second(_done, total):
    """Whether a disk of 64 MiB is read; all of it may be by then."""
    return total == 64 * _MIB


class TestScanning(GoingOnTest):

    def test_what_was_read_and_packed_is_not_again(self):
        whole = file.FileStore(self.directory / 'whole')
        [expected] = self.engine_of(whole).save(self.disks, token='t-0')
        self.interrupt(self.store, late)
        [version], skipped = self.go_on(self.store)
        self.assertGreaterEqual(skipped, 97 * _MIB - _INTERVAL)
        self.assertEqual(self.disk.read_bytes(), self.content(version))
        # As if nothing had happened.
        self.assertEqual(self.packs(whole), self.packs(self.store))
        self.assertEqual(
            (expected.blocks_changed, expected.blocks_stored,
             expected.bytes_stored),
            (version.blocks_changed, version.blocks_stored,
             version.bytes_stored))
        self.assertTrue(self.engine_of(self.store).verify().intact)
        self.assertEqual([], self.remains())

    def remains(self):
        return [path.name for path in self.store.works()]

    def test_a_disk_that_was_looked_at_whole_is_not_again(self):
        other = self.write_file('other', self.blocks_of(64 * 256))
        self.disks.append(version_store.Disk(other, 'b', format='raw'))
        self.interrupt(self.store, in_the_second)
        versions, skipped = self.go_on(self.store)
        self.assertGreaterEqual(skipped, 100 * _MIB)
        for disk, version in zip(self.disks, versions):
            self.assertEqual(disk.path.read_bytes(), self.content(version))

    def begin_anew(self):
        [version], skipped = self.go_on(self.store)
        self.assertEqual(0, skipped)
        self.assertEqual(self.disk.read_bytes(), self.content(version))
        self.assertTrue(self.engine_of(self.store).verify().intact)

    def test_a_disk_that_changed_is_begun_anew(self):
        self.interrupt(self.store, late)
        self.write_blocks(self.disk, 0)
        self.begin_anew()

    def test_packs_that_are_not_what_was_written_are_begun_anew(self):
        for damage in (self.tear, self.flip, pathlib.Path.unlink):
            self.store = file.FileStore(self.directory / damage.__name__)
            self.access = store_access.StoreAccess(self.store)
            self.interrupt(self.store, late)
            [work] = (self.directory / damage.__name__).glob('.writers/work-*')
            damage(next(work.glob('pack-1-*')))
            self.begin_anew()

    def tear(self, path):
        path.write_bytes(path.read_bytes()[:-5000])

    def flip(self, path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    def test_it_is_resumed_behind_the_saves_of_others(self):
        self.interrupt(self.store, late)
        small = self.write_file('small', self.blocks_of(3))
        self.engine_of(self.store).save([version_store.Disk(small, 'c')])
        [version], skipped = self.go_on(self.store)
        self.assertGreaterEqual(skipped, 97 * _MIB - _INTERVAL)
        self.assertEqual(self.disk.read_bytes(), self.content(version))
        self.assertTrue(self.engine_of(self.store).verify().intact)
        self.assertEqual([], self.remains())


class TestSpooling(GoingOnTest):
    """Saves that keep what is new until it is known what is stored with it."""

    def setUp(self):
        super().setUp()
        # Whatever is differential is so against this.
        self.engine_of(self.store).save(self.disks)
        self.disk.write_bytes(self.blocks_of(self.blocks))

    def test_what_was_read_and_spooled_is_not_again(self):
        for alpha in (1.0, 'auto'):
            self.token = f'alpha {alpha}'
            self.interrupt(self.store, late, alpha)
            [version], skipped = self.go_on(self.store, alpha)
            self.assertGreaterEqual(skipped, 97 * _MIB - _INTERVAL)
            self.assertEqual(self.disk.read_bytes(), self.content(version))
            self.assertEqual(0, self.engine_of(self.store).verify().orphans)
            self.disk.write_bytes(self.blocks_of(self.blocks))
        self.assertTrue(self.engine_of(self.store).verify().intact)

    def test_a_disk_that_was_stored_is_not_read_again(self):
        other = self.write_file('other', self.blocks_of(64 * 256))
        self.disks.append(version_store.Disk(other, 'b', format='raw'))
        self.interrupt(self.store, in_the_second, 1.0)
        versions, skipped = self.go_on(self.store, 1.0)
        self.assertGreaterEqual(skipped, 100 * _MIB)
        for disk, version in zip(self.disks, versions):
            self.assertEqual(disk.path.read_bytes(), self.content(version))

    def test_with_another_alpha_it_is_begun_anew(self):
        for first, then in ((0.0, 1.0), (1.0, 0.5)):
            self.token = f'from {first} to {then}'
            self.interrupt(self.store, late, first)
            [version], skipped = self.go_on(self.store, then)
            self.assertEqual(0, skipped)
            self.assertEqual(self.disk.read_bytes(), self.content(version))
            self.disk.write_bytes(self.blocks_of(self.blocks))

    def test_a_spool_that_is_not_what_was_written_is_begun_anew(self):
        self.interrupt(self.store, late, 1.0)
        [spool] = (self.directory / 'store').glob('.writers/work-*/*.spool')
        data = bytearray(spool.read_bytes())
        data[30 * _MIB] ^= 1
        spool.write_bytes(data)
        [version], skipped = self.go_on(self.store, 1.0)
        self.assertEqual(0, skipped)
        self.assertEqual(self.disk.read_bytes(), self.content(version))


class TestSending(GoingOnTest):

    def fail_after(self, store, count):
        """A save whose store fails when it was given this many blobs."""
        put = type(store).put_file
        given = []

        def fail(store, name, path):
            if len(given) == count:
                raise exceptions.ServiceUnavailable('the store is gone')
            given.append(name)
            put(store, name, path)

        with mock.patch.object(type(store), 'put_file', fail):
            self.assertRaises(exceptions.ServiceUnavailable,
                              self.engine_of(store).save, self.disks,
                              token='t-1')
        return given

    def test_what_a_store_of_objects_took_is_not_sent_again(self):
        store = fixture.RemoteStore(self.directory / 'remote')
        given = self.fail_after(store, 3)
        store.sent.clear()
        _, skipped = self.go_on(store)
        self.assertGreaterEqual(skipped, 100 * _MIB)
        self.assertEqual(3, len(given))
        self.assertFalse(set(given) & set(store.sent))
        self.assertTrue(self.engine_of(store).verify().intact)

    def test_what_a_store_of_files_took_is_not_read_again(self):
        self.fail_after(self.store, 3)
        [version], skipped = self.go_on(self.store)
        self.assertGreaterEqual(skipped, 100 * _MIB)
        self.assertEqual(self.disk.read_bytes(), self.content(version))
        self.assertEqual(0, self.engine_of(self.store).verify().orphans)

    def test_what_was_committed_stays_when_its_maker_was_killed(self):
        # After the commit, before its directory was removed.
        with mock.patch.object(shutil, 'rmtree'):
            first = self.engine_of(self.store).save(self.disks, token='t-1')
        [again] = self.engine_of(self.store).save(self.disks, token='t-1')
        self.assertEqual(first[0].id, again.id)
        self.assertTrue(self.engine_of(self.store).verify().intact)
        self.assertEqual(self.disk.read_bytes(), self.content(first[0]))
