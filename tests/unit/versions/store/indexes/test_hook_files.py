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
"""Files of hooks, by which saves find copies."""

import dataclasses

from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.blobs import layered
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.inbox import acceptance
from diffcache_openstack.versions.store.indexes import hook_files
from diffcache_openstack.versions.store.upkeep import key_rotation
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture

_KEY = bytes(range(32))
# Of the store, so that a store of some MiB is not searched whole.
_BLOCK = 512


class _CountedStore(fixture.RemoteStore):
    """A store of objects that notes what is read of it."""

    def __init__(self, directory):
        super().__init__(directory)
        self.seen = []

    def read(self, name, offset=0, length=None):
        self.seen.append(name)
        return super().read(name, offset, length)


class HookFilesTest(fixture.VersionsTestCase):

    # Of 4096 bytes.
    blocks = 3000

    def setUp(self):
        super().setUp()
        self.use(None)

    def use(self, key):
        self.access = store_access.StoreAccess(self.store, key, _BLOCK)

    def hooks(self) -> dict[int, entries.Blob]:
        return self.access.head().hooks

    def stored_of_copy(self, first: int, count: int = 25) -> int:
        """Save a copy of a part of the disk; return the blocks stored."""
        start = first * fixture.BLOCK
        content = self.disk.read_bytes()[start:start + count * fixture.BLOCK]
        # Its end has no copy.
        copy = self.write_file('copy', content + self.blocks_of(1))
        version = self.save(copy, f'copy-{first}')
        self.assertEqual(copy.read_bytes(), self.content(version))
        return version.blocks_stored - fixture.BLOCK // _BLOCK

    def test_copies_are_found_in_a_large_store(self):
        self.save()
        self.assertEqual(0, self.stored_of_copy(1000))

    def test_a_small_save_reads_no_other_index(self):
        for number in range(20):
            self.disk.write_bytes(self.blocks_of(150))
            self.save(series=str(number))
        counted = _CountedStore(self.directory / 'store')
        self.access = store_access.StoreAccess(counted, None, _BLOCK)
        self.write_blocks(self.disk, 7)
        self.save(series='19')
        indexes = {name for name in counted.seen if name.startswith('index-')}
        self.assertEqual(1, len(indexes), indexes)

    def test_damage_costs_no_version_and_is_mended(self):
        version = self.save()
        blob, = self.hooks().values()
        path = self.store.local_path(blob.blob)
        for place, damage in ((1000, path.unlink),
                              (2000, lambda: path.write_bytes(b'x'))):
            damage()
            self.assertEqual(200, self.stored_of_copy(place))
            found = verification.verify(self.access)
            self.assertEqual([blob.blob],
                             [each.object for each in found.damage])
            self.assertEqual([], found.versions_damaged)
            self.assertEqual(self.disk.read_bytes(), self.content(version))
            pruning.delete(self.access, [
                other.id for other in self.access.head().versions.values()
                if other.id != version.id])
            pruning.prune(self.access)
            self.assertTrue(verification.verify(self.access).intact)
            self.assertEqual(0, self.stored_of_copy(place + 500))
            blob, = self.hooks().values()
            path = self.store.local_path(blob.blob)

    def test_there_are_few_files_after_many_saves(self):
        self.save()
        for place in range(60):
            self.write_blocks(self.disk, *range(place * 20, place * 20 + 20))
            self.save()
        blobs = [blob.blob for blob in self.hooks().values()]
        self.assertLess(len(blobs), 4)
        self.assertEqual(sorted(blobs), sorted(
            name for name in self.store.names()
            if name.startswith('hooks-')))
        self.assertEqual(0, self.stored_of_copy(2000))
        self.assertEqual(0, self.stored_of_copy(600))

    def test_a_save_without_hooks_changes_no_file(self):
        self.save()
        before = self.hooks()
        self.write_file('small', b'no hook')
        self.save(self.directory / 'small', 'small')
        self.assertEqual(before, self.hooks())

    def test_hooks_lead_to_what_a_compacted_pack_keeps(self):
        first = self.save()
        self.write_blocks(self.disk, *range(0, 900))
        self.save()
        pruning.delete(self.access, [first.id])
        pruned = pruning.prune(self.access)
        self.assertEqual(1, pruned.packs_rewritten)
        self.assertEqual(0, self.stored_of_copy(1000))

    def test_hooks_of_packs_that_are_gone_are_dropped(self):
        first = self.save()
        self.disk.write_bytes(self.blocks_of(3000))
        self.save()
        size = sum(blob.bytes for blob in self.hooks().values())
        pruning.delete(self.access, [first.id])
        pruning.prune(self.access)
        left = sum(blob.bytes for blob in self.hooks().values())
        self.assertLess(left, size * 0.6)
        self.assertEqual(0, self.stored_of_copy(1000))

    def test_a_pack_sealed_again_has_its_new_names_found(self):
        self.use(_KEY)
        self.save()
        self.access = key_rotation.rotate(self.access, _KEY[::-1])
        self.assertEqual(0, self.stored_of_copy(1000))
        key_rotation.rewrite(self.access)
        key_rotation.retire(self.access)
        self.assertEqual(0, self.stored_of_copy(2000))
        self.assertTrue(verification.verify(self.access).intact)

    def test_a_host_that_adds_changes_no_file(self):
        self.save()
        before = self.hooks()
        keeper = self.access
        inbox = file.FileStore(self.directory / 'inbox')
        self.access = store_access.StoreAccess(
            layered.LayeredStore(self.store, inbox), None, _BLOCK)
        self.write_blocks(self.disk, *range(200))
        self.save()
        self.access = keeper
        done = acceptance.accept(keeper, inbox,
                                 acceptance.Rules(lambda _: None))
        self.assertEqual([], done.reasons)
        self.assertEqual(1, len(done.versions))
        self.assertEqual(before.items(), before.items() & self.hooks().items())
        self.assertEqual(len(before) + 1, len(self.hooks()))
        pruning.prune(keeper)
        self.assertEqual(1, len(self.hooks()))
        self.assertEqual(0, self.stored_of_copy(100))

    def test_a_proposal_that_drops_or_damages_hooks_is_refused(self):
        self.save()
        inbox = file.FileStore(self.directory / 'inbox')
        for change in (lambda hooks: hooks.clear(),
                       lambda hooks: hooks.update({1: dataclasses.replace(
                           hooks[1], bytes=5)})):
            head = self.access.head()
            change(head.hooks)
            head.number += 1
            inbox.create(f'head-{head.number:010d}', head.encode(None))
            done = acceptance.accept(self.access, inbox,
                                     acceptance.Rules(lambda _: None))
            self.assertIn('hook', done.reasons[0])

    def test_sizes_of_files_to_merge_are_alike(self):
        head = catalogue.Catalogue(1, 'x', 512, None)
        sizes = {1: 10 << 20, 2: 5 << 20, 3: 20000, 4: 300, 5: 90000}
        head.hooks = {number: entries.Blob('hooks', size, '00' * 32)
                      for number, size in sizes.items()}
        self.assertEqual([4, 3], hook_files._to_merge(head, 100))
        self.assertEqual([4, 3, 5], hook_files._to_merge(head, 16 << 10))
        self.assertEqual([4, 3, 5, 2], hook_files._to_merge(head, 2 << 20))
