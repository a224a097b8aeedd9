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
"""Stores that hosts only add to."""

import contextlib
import dataclasses
import math
import os
import shutil
import traceback
import unittest
from unittest import mock

import fixtures

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import checksums
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.blobs import layered
from diffcache_openstack.versions.store.access import reserve
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.commits import head_memory
from diffcache_openstack.versions.store.inbox import acceptance
from diffcache_openstack.versions.store.indexes import base_images
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture

_KEY = bytes(range(32))
_NOBODY = 65534


class AcceptanceTest(fixture.VersionsTestCase):

    key: bytes | None = _KEY
    most_bytes = math.inf

    def setUp(self):
        super().setUp()
        self.main = self.store
        self.keeper = store_access.StoreAccess(self.main, self.key)
        self.inbox = self.make_inbox()
        self.access = self.host()
        # Base images by content id.
        self.images = {}

    def make_inbox(self):
        return file.FileStore(self.directory / 'inbox')

    def host(self):
        return store_access.StoreAccess(layered.LayeredStore(
            file.FileStore.existing(self.directory / 'store'),
            self.make_inbox()), self.key)

    def accept(self):
        return acceptance.accept(
            self.keeper, self.inbox,
            acceptance.Rules(self.base_image, self.most_bytes))

    @contextlib.contextmanager
    def base_image(self, content_id):
        """Give a base image that the catalogue of images has."""
        yield self.images.get(content_id)

    def kept(self):
        """Ids of the versions in the main store."""
        return list(self.keeper.head_or_new().versions)

    def assert_intact(self, *versions):
        self.assertEqual([version.id for version in versions], self.kept())
        self.assertTrue(verification.verify(self.keeper).intact)
        for version in versions:
            output = self.directory / 'out'
            self.access, host = self.keeper, self.access
            self.content(version)
            self.access = host
            output.unlink(missing_ok=True)

    def left(self):
        return sorted(self.inbox.names())


class TestAcceptance(AcceptanceTest):

    def test_what_hosts_add_is_copied_and_removed_from_the_inbox(self):
        first = self.save()
        self.write_blocks(self.disk, 1)
        second = self.save()
        # Hosts read it before, and the main store has nothing yet.
        self.assertEqual(self.disk.read_bytes(), self.content(second))
        self.assertEqual([], self.kept())
        result = self.accept()
        self.assertEqual((2, [], []), (len(result.versions), result.refused,
                                       result.reasons))
        self.assertEqual([], self.left())
        self.assert_intact(first, second)
        self.assertEqual(self.disk.read_bytes(), self.content(second))
        # Hosts continue what was accepted.
        self.write_blocks(self.disk, 2)
        third = self.save()
        self.assertEqual(1, third.blocks_stored)
        self.accept()
        self.assert_intact(first, second, third)
        self.assertEqual([], self.accept().versions)

    def meanwhile(self, action):
        """Have others act between a save's uploads and its commit."""
        keep, actions = reserve.keep, [action]
        self.patch(reserve, 'keep', lambda store, head: (
            [act() for act in actions[:1] if actions.pop()],
            keep(store, head)))

    def save_of_other_host(self):
        own, self.access = self.access, self.host()
        self.saved = self.save(self.write_file('other', self.blocks_of(9)),
                               'b')
        self.access = own

    def test_hosts_add_side_by_side(self):
        first = self.save()
        self.write_blocks(self.disk, 1)
        self.meanwhile(self.save_of_other_host)
        second = self.save()
        self.assertEqual(([], []), (self.accept().refused, self.left()))
        self.assert_intact(first, second, self.saved)

    def test_what_is_added_while_others_are_accepted(self):
        first = self.save()
        self.write_blocks(self.disk, 1)
        self.meanwhile(self.accept)
        second = self.save()
        self.assertEqual(([], []), (self.accept().refused, self.left()))
        self.assert_intact(first, second)

    def test_a_save_behind_what_is_refused_meanwhile_is_not_lost(self):
        self.save()
        for name in self.left():
            if name.startswith('pack-'):
                path = self.directory / 'inbox' / name
                path.write_bytes(path.read_bytes()[:-9])
        self.write_blocks(self.disk, 1)
        self.meanwhile(lambda: self.assertEqual(1, len(
            self.accept().refused)))
        second = self.save()
        self.assertEqual([second.id], self.accept().versions)
        self.assert_intact(second)
        self.assertEqual(self.disk.read_bytes(), self.content(second))

    def test_a_blob_that_grows_while_it_is_accepted(self):
        self.save()
        self.most_bytes = 4 << 20
        grown, put = [], []
        put_file, delete = self.main.put_file, self.main.delete

        def grow(name):
            """Do it between the check and the copy, which deletes first."""
            delete(name)
            if name.startswith('pack-') and not grown:
                grown.append(name)
                with open(self.directory / 'inbox' / name, 'ab') as stream:
                    stream.write(bytes(8 << 20))

        def look(name, path):
            put.append(path.stat().st_size)
            put_file(name, path)

        with mock.patch.object(self.main, 'delete', grow), \
                mock.patch.object(self.main, 'put_file', look):
            self.accept()
        self.assertTrue(grown)
        self.assertLess(sum(put), self.most_bytes)

    def test_hosts_delete_and_prune_nothing(self):
        first = self.save()
        self.accept()
        for work in (lambda: pruning.delete(self.access, [first.id]),
                     lambda: pruning.prune(self.access)):
            error = self.assertRaises(exceptions.Forbidden, work)
            self.assertIn('only add', str(error))
        pruning.delete(self.keeper, [first.id])
        pruning.prune(self.keeper)
        self.assertEqual([], self.kept())

    def test_an_interrupted_acceptance_is_continued(self):
        saved = self.save()
        steps = ('create', 'put_file', 'replace')
        for step in steps:
            real = getattr(self.main, step)

            def fail(*args, step=step):
                raise exceptions.ServiceUnavailable(step)

            setattr(self.main, step, fail)
            self.assertRaises(exceptions.ServiceUnavailable, self.accept)
            setattr(self.main, step, real)
            self.assertNotEqual([], self.left())
        self.accept()
        self.assert_intact(saved)
        self.assertEqual([], self.left())


class TestBaseIndexes(AcceptanceTest):
    """Indexes of base images that hosts add."""

    def setUp(self):
        super().setUp()
        self.base = self.write_file('base', self.blocks_of(600))
        self.base_id = base_images.identify(self.base).id
        self.images[self.base_id] = self.base
        # A disk that changed a block of its base, and zeroed others.
        self.disk.write_bytes(self.base.read_bytes())
        self.write_blocks(self.disk, 1)
        with open(self.disk, 'r+b') as stream:
            stream.seek(5 * fixture.BLOCK)
            stream.write(bytes(10 * fixture.BLOCK))

    def save(self, image=None, **options):
        return super().save(base=image or self.base, base_id=self.base_id,
                            **options)

    def save_as_compromised(self):
        """Save with an index of other content under the base image's id.

        By it, the base has zeroes in all blocks: what guests zeroed would
        become the base's content again.
        """
        return self.save(self.write_file('zeroes', bytes(600 * fixture.BLOCK)),
                         series='evil')

    def test_an_index_that_is_that_of_the_image_is_accepted(self):
        saved = self.save()
        result = self.accept()
        self.assertEqual([saved.id], result.versions)
        self.assertEqual((1, 0, 0), (
            result.indexes_checked, result.indexes_refused,
            result.indexes_unchecked))
        self.access = self.keeper
        self.assertEqual(self.disk.read_bytes(),
                         self.content(saved, self.base))
        # It is checked once.
        self.access = self.host()
        self.write_blocks(self.disk, 7)
        self.save()
        self.assertEqual(0, self.accept().indexes_checked)

    def test_an_index_of_other_content_is_refused(self):
        self.save_as_compromised()
        saved = self.save(series='b')
        result = self.accept()
        self.assertEqual(([], 1, 0), (result.versions, result.indexes_refused,
                                      result.indexes_checked))
        [reason] = result.reasons
        self.assertIn(self.base_id, reason)
        self.assertIn(saved.id, result.refused)
        self.assertEqual([], self.left())
        # The next save is right, and accepted.
        saved = self.save(series='b')
        self.assertEqual([saved.id], self.accept().versions)
        self.access = self.keeper
        self.assertEqual(self.disk.read_bytes(),
                         self.content(saved, self.base))

    def test_one_wrong_name_is_enough_to_refuse_an_index(self):
        with open(self.base, 'rb') as stream:
            data = bytearray(stream.read())
        data[-1] ^= 1
        self.save(self.write_file('other', bytes(data)))
        self.assertEqual(1, self.accept().indexes_refused)

    def test_an_index_whose_image_is_nowhere_is_counted(self):
        self.images.clear()
        saved = self.save()
        result = self.accept()
        self.assertEqual(([saved.id], 1, 0), (
            result.versions, result.indexes_unchecked,
            result.indexes_checked))

    def test_an_index_accepted_without_its_image_is_compared_before_use(self):
        self.images.clear()
        self.save_as_compromised()
        self.assertEqual(1, self.accept().indexes_unchecked)
        self.access = self.remembering_host()
        log = self.useFixture(fixtures.FakeLogger())
        saved = self.save(series='b')
        self.assertIn('Not using the index', log.output)
        self.assertEqual([saved.id], self.accept().versions)
        self.access = self.keeper
        self.assertEqual(self.disk.read_bytes(),
                         self.content(saved, self.base))

    def remembering_host(self):
        """Access of a host that remembers what it has compared."""
        return store_access.StoreAccess(
            self.host().store, self.key, memory=head_memory.HeadMemory(
                self.directory / 'memory' / 'store.json'))

    def test_a_host_uses_no_index_that_it_has_not_compared(self):
        """Nobody could compare it when it was accepted."""
        self.images.clear()
        self.save_as_compromised()
        self.accept()
        self.access = self.remembering_host()
        log = self.useFixture(fixtures.FakeLogger())
        saved = [self.save(series='b'), self.save(series='b')]
        self.accept()
        self.access = self.keeper
        for version in saved:
            self.assertEqual(self.disk.read_bytes(),
                             self.content(version, self.base))
        self.assertIn(self.base_id, log.output)

    def test_an_index_that_was_compared_is_used(self):
        self.save()
        self.accept()
        self.access = self.remembering_host()
        log = self.useFixture(fixtures.FakeLogger())
        created = mock.patch.object(
            base_images.BaseIndexes, '_create', autospec=True,
            side_effect=base_images.BaseIndexes._create)
        with created as create:
            saved = [self.save(series='b'), self.save(series='c')]
        self.assertEqual(1, create.call_count)
        # Blocks of the base are not stored.
        self.assertEqual([0, 0], [each.blocks_stored for each in saved])
        self.assertEqual('', log.output)

    def test_an_image_that_cannot_be_read_refuses_nothing(self):
        saved = self.save()
        here = self.images.pop(self.base_id)

        @contextlib.contextmanager
        def fail(_content_id):
            raise exceptions.ServiceUnavailable('no source')
            yield

        with mock.patch.object(self, 'base_image', fail):
            self.assertRaises(exceptions.ServiceUnavailable, self.accept)
        self.images[self.base_id] = here
        self.assertEqual([saved.id], self.accept().versions)

    def test_an_index_that_no_version_needs_is_refused(self):
        """Each makes the image be read."""
        saved = self.save()
        self.accept()
        head = self.access.head()
        head.bases['f' * 64] = head.bases[self.base_id]
        head.number += 1
        self.inbox.replace(blob_names.of_head(head.number),
                           head.encode(self.key))
        [reason] = self.accept().reasons
        self.assertIn('f' * 64, reason)
        self.assertEqual([saved.id], self.kept())


class TestHostileHosts(AcceptanceTest):
    """A host with the key of the project proposes what it likes."""

    def setUp(self):
        super().setUp()
        self.first = self.save()
        self.write_blocks(self.disk, 1)
        self.second = self.save()
        self.accept()

    def propose(self, change):
        """Propose the head with a change; return what comes of it."""
        head = self.access.head()
        change(head)
        head.number = self.keeper.head().number + 1
        self.inbox.replace(blob_names.of_head(head.number),
                           head.encode(self.key))
        result = self.accept()
        self.assertEqual(([], 1), (result.versions, len(result.reasons)))
        self.assert_intact(self.first, self.second)
        # Hosts save again.
        self.assertEqual(2, len(self.access.head().versions))
        self.assertEqual([], [name for name in self.left()
                              if name.startswith('head-')])
        return result.reasons[0]

    def test_nothing_is_dropped_or_changed(self):
        def swap(head):
            one, other = head.versions.values()
            head.versions[one.id] = dataclasses.replace(one, root=other.root)

        def rename(head):
            number, pack = next(iter(head.packs.items()))
            head.packs[number] = dataclasses.replace(pack, blob='pack-x')

        def rekey(head):
            head.former_keys, head.key_number = {1: b'x'}, 2

        for change, reason in (
                (lambda head: head.versions.clear(), 'drops version'),
                (lambda head: head.packs.clear(), 'drops pack'),
                (lambda head: head.maps.clear(), 'drops map'),
                (swap, 'changes version'), (rename, 'changes pack'),
                (lambda head: setattr(head, 'next_pack', 1), 'next_pack'),
                (lambda head: setattr(head, 'next_map', 1 << 31), 'few'),
                (lambda head: setattr(head, 'store_id', 'x'), 'another'),
                (rekey, 'another key')):
            self.assertIn(reason, self.propose(change))

    def add_version(self, head, **fields):
        version = dataclasses.replace(
            self.second, id='00000000-0000-4000-8000-000000000009',
            number=head.next_version, **fields)
        head.versions[version.id] = version
        head.next_version += 1

    def test_versions_without_their_data_are_refused(self):
        self.assertIn('missing', self.propose(
            lambda head: self.add_version(head, root=(2, 77, 0))))

        def absent(head):
            head.packs[head.next_pack] = dataclasses.replace(
                next(iter(head.packs.values())),
                blob='pack-00000009-00000000', index='index-00000009-00000000')
            head.next_pack += 1

        self.assertIn('no blob', self.propose(absent).lower())

    def test_blobs_have_names_of_blobs(self):
        for name in ('latest-0', 'head-0000000001', 'store-id', '../x'):
            def add(head, name=name):
                head.maps[head.next_map] = entries.Blob(name, 1, '0' * 64)
                head.next_map += 1

            self.assertIn('names the blob', self.propose(add))

    def put_manifest(self, name, data):
        self.inbox.replace(name, data)
        return entries.Blob(name, len(data), data[-32:].hex())

    def test_manifests_of_accepted_versions_are_refused(self):
        """By one, hosts would take other content for that of the version."""
        blob = self.put_manifest('manifest-00000001-00000000',
                                 checksums.append(b'of other content'))
        for version_id in (self.first.id, 'of-none'):
            def add(head, version_id=version_id):
                head.manifests[version_id] = blob

            self.assertIn(f'manifest of version {version_id}',
                          self.propose(add))
        self.assertEqual({}, self.keeper.head().manifests)

    def test_damaged_manifests_are_refused(self):
        blob = self.put_manifest('manifest-00000003-00000000', b'x' * 100)

        def add(head):
            self.add_version(head)
            head.manifests[list(head.versions)[-1]] = blob

        self.assertIn('damaged', self.propose(add))

    def test_endless_proposals_and_key_ids_are_not_read_whole(self):
        name = blob_names.of_head(self.keeper.head().number + 1)
        self.patch(acceptance, '_MOST_PROPOSAL_BYTES', 1 << 20)
        for blob in (name, 'key-0'):
            with open(self.directory / 'inbox' / blob, 'wb') as stream:
                os.truncate(stream.fileno(), 1 << 42)
        self.assertIn('damaged', self.accept().reasons[0])
        self.assertNotIn('key-0', self.main.names())
        self.assert_intact(self.first, self.second)
        self.assertEqual([], self.left())

    def test_damaged_packs_are_refused(self):
        self.write_blocks(self.disk, 5)
        lost = self.save()
        [pack] = [name for name in self.left() if name.startswith('pack-')]
        path = self.directory / 'inbox' / pack
        data = bytearray(path.read_bytes())
        data[-9] ^= 1
        path.write_bytes(data)
        # What was saved on top of it is lost, too.
        self.write_blocks(self.disk, 6)
        later = self.save()
        result = self.accept()
        self.assertEqual({lost.id, later.id}, set(result.refused))
        self.assert_intact(self.first, self.second)
        self.assertEqual([], self.left())
        self.save()
        self.assertEqual(1, len(self.accept().versions))

    def test_a_proposal_that_is_too_large_is_not_copied(self):
        self.most_bytes = 1 << 30
        self.write_blocks(self.disk, 5)
        lost = self.save()
        [pack] = [name for name in self.left() if name.startswith('pack-')]
        os.truncate(self.directory / 'inbox' / pack, 1 << 42)
        result = self.accept()
        self.assertEqual([lost.id], result.refused)
        self.assertIn('inbox_limit', result.reasons[0])
        self.assert_intact(self.first, self.second)
        self.assertEqual([], self.left())

    def test_what_fills_an_inbox_and_no_version_needs_is_removed(self):
        """Also where it could be of a save that is putting it now."""
        self.patch(file.FileStore, 'exclusive', False)
        self.inbox.create('pack-00000009-00000000', b'x' * 100)
        self.accept()
        self.assertEqual(['pack-00000009-00000000'], self.left())
        self.most_bytes = 99
        self.accept()
        self.assertEqual([], self.left())
        self.assert_intact(self.first, self.second)

    def test_junk_is_removed(self):
        number = self.keeper.head().number + 1
        for data in (b'', b'junk', self.keeper.head().encode(b'x' * 32)):
            self.inbox.replace(blob_names.of_head(number), data)
            self.assertEqual(1, len(self.accept().reasons))
            self.assert_intact(self.first, self.second)

    def test_pointers_of_hosts_count_for_nothing(self):
        head = self.keeper.head()
        head.versions.clear()
        for name in ('latest-0', 'latest-1', blob_names.of_head(head.number)):
            self.inbox.replace(name, b'x' if 'latest' in name
                               else head.encode(self.key))
        self.assertEqual(2, len(self.access.head().versions))
        self.accept()
        self.assert_intact(self.first, self.second)
        self.assertEqual([], self.left())


@unittest.skipUnless(os.geteuid() == 0, 'needs to become another user')
class TestAnotherUser(AcceptanceTest):
    """The agent of a host, whose user may read the store and no more."""

    def setUp(self):
        super().setUp()
        for path in (self.directory, *self.directory.parents):
            if path.owner() == 'root' and path.stat().st_mode & 0o7 == 0:
                path.chmod(path.stat().st_mode | 0o55)
        for name, mode in (('store', 0o2750), ('inbox', 0o2770)):
            shutil.rmtree(self.directory / name)
            (self.directory / name).mkdir()
            os.chown(self.directory / name, -1, _NOBODY)
            (self.directory / name).chmod(mode)
        self.main = file.FileStore(self.directory / 'store')
        self.keeper = store_access.StoreAccess(self.main, self.key)
        self.inbox, self.access = self.make_inbox(), self.host()
        self.disk.chmod(0o644)

    def as_host(self, work):
        """Perform work as the host's user."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setgroups([])
                os.setgid(_NOBODY)
                os.setuid(_NOBODY)
                work()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        self.assertEqual(0, os.waitpid(child, 0)[1])

    def destroy(self):
        """Try all that a user can do to what is in the store."""
        store = self.directory / 'store'
        done = []
        for path in [store, *sorted(store.iterdir())]:
            for attempt in (
                    lambda path: path.unlink(),
                    lambda path: path.rename(path.with_suffix('.x')),
                    lambda path: path.rename(self.directory / 'inbox' / 'x'),
                    lambda path: path.write_bytes(b'x'),
                    lambda path: os.truncate(path, 0),
                    lambda path: path.chmod(0o777),
                    lambda path: os.utime(path, (0, 0)),
                    lambda path: (store / 'head-0000000099').write_bytes(b''),
                    lambda path: os.link(self.disk, store / 'latest-9'),
                    lambda path: shutil.rmtree(store)):
                try:
                    attempt(path)
                except OSError:
                    continue
                done.append(path)
        assert not done, done

    def test_a_compromised_host_destroys_no_history(self):
        self.as_host(self.save)
        self.accept()
        [first] = self.keeper.head().versions.values()
        self.as_host(self.destroy)
        self.assert_intact(first)
        # It can do to the inbox what it wants.
        self.as_host(self.save)
        self.as_host(lambda: shutil.rmtree(self.directory / 'inbox',
                                           ignore_errors=True))
        self.accept()
        self.assert_intact(first)
        self.as_host(self.save)
        self.assertEqual(1, len(self.accept().versions))
        self.as_host(self.destroy)
