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
"""Each project has a part of the store, and a key, of its own."""

import random
import shutil
import time
from unittest import mock

from castellan.common import exception as castellan_exceptions
from castellan.tests.unit.key_manager import mock_key_manager

from diffcache_openstack.agent.versions import version_stores
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.blobs import glance
from diffcache_openstack.versions.blobs import upload_ledger
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.keys import key_ids
from diffcache_openstack.versions import version_store
from tests import base
from tests.unit.agent.versions import key_files
from tests.unit.versions.store.commits import test_arbitration


class TestStores(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = opts.new_config()
        self.conf.set_override('store', f'file://{self.directory}/store',
                               'versions')
        self.disk = self.write_file('disk', bytes(range(256)) * 256)

    def save(self, project):
        return version_stores.Stores(self.conf).open(project).save(
            [version_store.Disk(self.disk, 'a')])

    def test_projects_see_nothing_of_each_other(self):
        self.save('p1')
        stores = version_stores.Stores(self.conf)
        self.assertEqual(1, len(stores.open('p1').versions()))
        self.assertRaises(exceptions.NotFound, stores.open('p2').versions)

    def test_a_store_that_is_put_back_is_noticed_after_a_restart(self):
        def stores():
            return version_stores.Stores(self.conf,
                                         memory=self.directory / 'memory')

        def save():
            stores().open('p1').save([version_store.Disk(self.disk, 'a')])

        save()
        shutil.copytree(self.directory / 'store', self.directory / 'copy')
        save()
        shutil.rmtree(self.directory / 'store')
        shutil.move(self.directory / 'copy', self.directory / 'store')
        self.assertRaises(exceptions.IntegrityError,
                          stores().open('p1').versions)
        self.assertRaises(exceptions.NotFound, stores().open('p2').versions)
        # Another store is not this one put back.
        self.conf.set_override('store', f'file://{self.directory}/other',
                               'versions')
        save()
        self.assertEqual(1, len(stores().open('p1').versions()))

    def test_strange_project_stays_below_the_directory(self):
        self.save('../../Etc')
        self.assertEqual(['disk', 'store'], sorted(
            path.name for path in self.directory.iterdir()))
        [path] = (self.directory / 'store').iterdir()
        self.assertRegex(path.name, '^[0-9a-f]{32}$')

    def test_without_a_store(self):
        self.conf.set_override('store', '', 'versions')
        error = self.assertRaises(
            exceptions.InvalidInput,
            version_stores.Stores(self.conf).open, 'p1')
        self.assertIn('[versions] store', str(error))

    def test_key_of_one_project_does_not_open_anothers(self):
        key = self.write_file('key', b'k' * 32)
        key.chmod(0o600)
        self.conf.set_override('key_file', str(key), 'versions')
        self.save('p1')
        (self.directory / 'store' / 'p1').rename(
            self.directory / 'store' / 'p2')
        stores = version_stores.Stores(self.conf)
        self.assertRaises(exceptions.InvalidInput,
                          stores.open('p2').versions)
        (self.directory / 'store' / 'p2').rename(
            self.directory / 'store' / 'p1')
        self.assertEqual(1, len(stores.open('p1').versions()))


class TestInbox(base.TestCase):
    """Hosts that only add, and one that accepts."""

    def setUp(self):
        super().setUp()
        self.disk = self.write_file('disk', bytes(range(256)) * 256)
        self.manager = KeyManager()
        self.arbiter = test_arbitration.Arbiter()
        self.host = self.stores()
        self.keeper = self.stores(maintains_store=True)

    def stores(self, memory=None, **options):
        conf = opts.new_config()
        for name, value in {
                'store': f'file://{self.directory}/store',
                'inbox': f'file://{self.directory}/inbox',
                'key_manager': True, **options}.items():
            conf.set_override(name, value, 'versions')
        return version_stores.Stores(
            conf, self.manager, memory,
            arbiter_of=lambda task, place: self.arbiter)

    def save(self):
        [version] = self.host.open_for_save('p1', 'task').save(
            [version_store.Disk(self.disk, 'a')])
        return version

    def listed(self, stores):
        return [version.id for version in stores.open('p1').versions()]

    def accept(self):
        return self.keeper.accept('p1', self.base_image, version_store.Job(),
                                  'task')

    def base_image(self, content_id):
        """No disk here has one."""
        raise AssertionError(content_id)

    def test_what_hosts_add_is_accepted(self):
        self.assertEqual((False, True), (self.host.accepts,
                                         self.keeper.accepts))
        first = self.save()
        for stores in (self.host, self.keeper):
            self.assertEqual([first.id], self.listed(stores))
        self.assertFalse((self.directory / 'store' / 'p1').exists())
        self.assertEqual([first.id], self.accept().versions)
        self.assertEqual([first.id], self.listed(self.host))
        self.assertEqual(1, len(self.manager.keys))
        self.save()
        self.accept()
        self.assertRaises(exceptions.Forbidden,
                          self.host.open('p1', 'task').delete, [first.id])
        self.keeper.open('p1', 'task').delete([first.id])
        self.assertEqual(1, len(self.host.open('p1').versions()))

    def test_what_was_decided_and_is_refused_is_void(self):
        self.patch(file.FileStore, 'exclusive', False)
        self.save()
        self.accept()
        self.disk.write_bytes(bytes(range(255, -1, -1)) * 256)
        self.save()
        [pack] = (self.directory / 'inbox' / 'p1').glob('pack-*')
        pack.write_bytes(b'junk')
        decided = self.arbiter.read()
        self.assertEqual((decided.number, decided.digest), self.accept().void)
        # Once the conductor has forgotten it, hosts save again.
        self.arbiter.head = None
        saved = self.save()
        found = self.accept()
        self.assertEqual(([saved.id], None), (found.versions, found.void))

    def test_commits_that_were_decided_are_accepted(self):
        def killed():
            self.arbiter.after = lambda: None
            raise exceptions.ServiceUnavailable('killed')

        # As on a filesystem whose locks do not reach other hosts.
        self.patch(file.FileStore, 'exclusive', False)
        first = self.save()
        self.assertEqual([first.id], self.accept().versions)
        self.arbiter.after = killed
        self.assertRaises(exceptions.ServiceUnavailable, self.save)
        self.assertEqual([first.id], self.listed(self.host))
        self.assertEqual(1, len(self.accept().versions))
        self.save()
        self.accept()
        self.keeper.open('p1', 'task').delete([first.id])
        self.assertEqual(2, len(self.listed(self.host)))

    def left(self):
        return sorted(path.name for path in (
            self.directory / 'inbox' / 'p1').glob('[!.]*'))

    def test_a_save_that_exceeds_the_limit_of_its_host_is_refused(self):
        self.disk.write_bytes(random.Random(1).randbytes(1 << 20))
        memory = self.directory / 'memory'
        self.host = self.stores(memory, inbox_host_limit=1000000)
        error = self.assertRaises(exceptions.NoSpace, self.save)
        self.assertIn('[versions] inbox_host_limit', str(error))
        # Nothing of it is left but the id of the key.
        self.assertEqual(['key-0', 'key-1'], self.left())
        self.host = self.stores(memory, inbox_host_limit=1200000)
        self.save()
        self.disk.write_bytes(random.Random(2).randbytes(1 << 20))
        self.assertRaises(exceptions.NoSpace, self.save)
        # There is room again when it is accepted.
        self.accept()
        self.save()

    def test_a_full_inbox_delays_saves_until_it_is_accepted(self):
        self.save()
        self.host = self.stores(inbox_limit=1)
        error = self.assertRaises(exceptions.Busy, self.save)
        self.assertIn('[versions] inbox_limit', str(error))
        self.accept()
        self.host = self.stores(inbox_limit=1000000)
        self.save()

    def test_no_limits(self):
        self.host = self.stores(inbox_limit=1, inbox_host_limit=1)
        self.assertRaises(exceptions.NoSpace, self.save)
        self.host = self.stores(inbox_limit=0, inbox_host_limit=0)
        self.save()

    def test_more_than_the_limit_is_not_accepted(self):
        self.save()
        self.keeper = self.stores(maintains_store=True, inbox_limit=100)
        [reason] = self.accept().reasons
        self.assertIn('[versions] inbox_limit', reason)

    def test_projects_have_inboxes_of_their_own(self):
        self.save()
        self.assertEqual([], self.keeper.accept(
            'p2', self.base_image, version_store.Job(), 'task').versions)
        self.assertEqual(1, len(self.accept().versions))


class TestKeyFiles(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = opts.new_config()
        self.conf.set_override('store', f'file://{self.directory}/store',
                               'versions')
        self.disk = self.write_file('disk', b'secret' * 20000)
        self.use('old')

    def use(self, name, *former):
        key_files.configure(self, name, *former)
        self.stores = version_stores.Stores(self.conf)

    def save(self, project):
        return self.stores.open_for_save(project).save(
            [version_store.Disk(self.disk, 'a')])

    def test_former_keys_open_stores_until_they_are_replaced(self):
        self.save('p1')
        self.use('new')
        self.assertRaises(exceptions.InvalidInput,
                          self.stores.open('p1').versions)
        self.use('new', 'old')
        self.save('p1')
        self.save('p2')
        for project, replaced in (('p1', True), ('p2', False)):
            store = self.stores.open(project)
            key, key_id = self.stores.key_to_rotate_to(
                project, self.stores.create_key(project))
            self.assertIsNone(key_id)
            self.assertEqual(replaced, not store.has_key(key))
            if replaced:
                store.rotate_key(key).rewrite_all_keys()
        self.stores.open('p1').retire_keys()
        self.use('new')
        for project, count in (('p1', 2), ('p2', 1)):
            self.assertEqual(count, len(
                self.stores.open(project).versions()))

    def test_without_keys_there_is_none_to_replace_with(self):
        self.conf.set_override('key_file', None, 'versions')
        self.conf.set_override('former_key_files', [], 'versions')
        self.assertRaises(
            exceptions.InvalidInput,
            version_stores.Stores(self.conf).key_to_rotate_to, 'p1', None)


class KeyManager(mock_key_manager.MockKeyManager):
    """Castellan's, which keeps keys in memory, and may be away."""

    away = False

    def get(self, context, key_id):
        if self.away:
            raise castellan_exceptions.KeyManagerError(reason='away')
        return super().get(context, key_id)


class TestKeyManager(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = opts.new_config()
        self.conf.set_override('store', f'file://{self.directory}/store',
                               'versions')
        self.conf.set_override('key_manager', True, 'versions')
        self.disk = self.write_file('disk', b'secret' * 20000)
        self.manager = KeyManager()
        self.stores = version_stores.Stores(self.conf, self.manager)

    def save(self, project, series='a'):
        return self.stores.open_for_save(project).save(
            [version_store.Disk(self.disk, series)])

    def part(self, project):
        return file.FileStore(self.directory / 'store' / project)

    def test_one_key_for_each_project_made_when_it_is_needed(self):
        self.assertRaises(exceptions.NotFound,
                          self.stores.open('p1').versions)
        self.assertEqual({}, self.manager.keys)
        for project in ('p1', 'p2'):
            self.save(project)
        self.save('p1', 'another')
        self.assertEqual({key_ids.read(self.part(project))
                          for project in ('p1', 'p2')},
                         set(self.manager.keys))
        self.assertEqual(2, len(self.stores.open('p1').versions()))
        for path in (self.directory / 'store').rglob('pack-*'):
            self.assertNotIn(b'secret', path.read_bytes())
        # Within a project a block is stored once.
        first, second = self.stores.open('p1').versions()
        self.assertGreater(first.blocks_stored, 0)
        self.assertEqual(0, second.blocks_stored)

    def test_who_was_faster_made_the_key(self):
        create = self.manager.create_key
        store = self.part('p1')

        def slow(context, *args, **kwargs):
            key_ids.write(store, create(context, *args, **kwargs))
            return create(context, *args, **kwargs)

        self.manager.create_key = slow
        self.save('p1')
        self.assertEqual([key_ids.read(store)],
                         list(self.manager.keys))

    def test_a_key_that_replaces_another_is_found(self):
        self.save('p1')
        [first] = self.manager.keys
        for _rotation in range(2):
            created = self.stores.create_key('p1')
            key, key_id = self.stores.key_to_rotate_to('p1', created)
            self.stores.open('p1').rotate_key(key, key_id)
            self.save('p1')
        self.stores.open('p1').rewrite_all_keys()
        self.stores.open('p1').retire_keys()
        # Former keys are needed no more.
        self.manager.keys = {created: self.manager.keys[created]}
        self.assertEqual(3, len(self.stores.open('p1').versions()))
        self.assertNotEqual(first, created)

    def test_versions_stay_readable_without_the_option(self):
        self.save('p1')
        self.conf.set_override('key_manager', False, 'versions')
        self.save('p2')
        self.assertEqual(1, len(self.stores.open('p1').versions()))
        self.assertIsNone(key_ids.read(self.part('p2')))

    def test_what_lies_in_the_clear_is_refused(self):
        self.conf.set_override('key_manager', False, 'versions')
        self.save('p1')
        self.conf.set_override('key_manager', True, 'versions')
        for opened in (self.stores.open, self.stores.open_for_save):
            error = self.assertRaises(exceptions.InvalidInput, opened, 'p1')
            self.assertIn('project p1', str(error))

    def test_key_that_is_gone_is_told_with_its_project(self):
        self.save('p1')
        self.manager.away = True
        self.assertRaises(exceptions.ServiceUnavailable, self.stores.open,
                          'p1')
        self.manager.away = False
        [key_id] = self.manager.keys
        self.manager.keys.clear()
        error = self.assertRaises(exceptions.NotFound, self.stores.open,
                                  'p1')
        self.assertIn('project p1', str(error))
        self.assertIn(key_id, str(error))

    def test_two_kinds_of_keys_are_refused(self):
        key = self.write_file('key', b'k' * 32)
        key.chmod(0o600)
        self.conf.set_override('key_file', str(key), 'versions')
        self.assertRaises(exceptions.InvalidInput, version_stores.Stores,
                          self.conf)

    def test_barbican_without_a_user_is_refused(self):
        self.stores = version_stores.Stores(self.conf)
        error = self.assertRaises(exceptions.InvalidInput, self.save, 'p1')
        self.assertIn('[barbican]', str(error))


class Killed(BaseException):
    """What a process does not survive."""


class TestLeftovers(base.TestCase):
    """A store that cannot list its blobs: glance_store's, as for S3."""

    def setUp(self):
        super().setUp()
        self.blobs = self.directory / 'blobs'
        config = self.write_file('glance.conf', (
            '[glance_store]\nfilesystem_store_datadir = '
            f'{self.blobs}\n').encode())
        self.conf = opts.new_config()
        self.conf.set_override('store', 'glance:file', 'versions')
        self.conf.set_override('store_config', [str(config)], 'versions')
        self.number = 0
        self.save()

    def open(self):
        return version_stores.Stores(
            self.conf, memory=self.directory / 'memory').open('p1')

    def save(self):
        self.number += 1
        disk = self.write_file(
            'disk', random.Random(self.number).randbytes(1 << 16))
        return self.open().save([version_store.Disk(disk, 'a')])

    def packs(self):
        return {path.name for path in self.blobs.iterdir()
                if not blob_names.is_bookkeeping(path.name[len('p1-'):])}

    def killed_while(self, name, work):
        """Have the process killed when it calls something."""
        def kill(*_arguments):
            raise Killed

        with mock.patch.object(store_access.StoreAccess, name, kill):
            self.assertRaises(Killed, work)

    def later(self, hours):
        """What clocks show some hours later."""
        now = time.time() + 3600 * hours
        return mock.patch.object(upload_ledger.time, 'time', lambda: now)

    def test_what_a_killed_save_has_put_is_removed_later(self):
        before = self.packs()
        self.killed_while('commit', self.save)
        left = self.packs() - before
        self.assertTrue(left)
        # A writer that is slow could commit it yet.
        self.save()
        self.assertEqual(left, left & self.packs())
        with self.later(2):
            self.save()
        self.assertEqual(set(), left & self.packs())
        self.assertTrue(self.open().verify().intact)

    def test_what_a_killed_prune_has_put_is_removed_later(self):
        [version] = self.save()
        self.open().delete([version.id])
        old = self.packs()
        delete = glance.GlanceStore.delete

        def kill(store, name):
            if name.startswith('pack'):
                raise Killed
            delete(store, name)

        with mock.patch.object(glance.GlanceStore, 'delete', kill):
            self.assertRaises(Killed, self.open().prune)
        # It has committed, and was to delete what is not needed any more.
        needed = {f'p1-{name}' for name in self.open()._access.head().blobs()}
        self.assertTrue(old - needed)
        with self.later(2):
            self.save()
        self.assertEqual(set(), (old - needed) & self.packs())
        self.assertTrue(self.open().verify().intact)

    def test_nothing_else_is_removed(self):
        self.save()
        before = self.packs()
        with self.later(1000):
            self.save()
        self.assertEqual(before, before & self.packs())
        self.assertTrue(self.open().verify().intact)
