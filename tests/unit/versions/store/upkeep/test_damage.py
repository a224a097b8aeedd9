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
"""A store that is damaged in part: what does not need it goes on."""

import pathlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.restore import rollback
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store.indexes import manifests
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture

_KINDS = ('index', 'map')


class TestDamage(fixture.VersionsTestCase):

    blocks = 40

    def setUp(self):
        super().setUp()
        self.first = self.save()
        self.files = {
            name.split('-')[0]: self.directory / 'store' / name
            for name in self.store.names()
            if name.startswith(('index-', 'map-', 'pack-'))}
        self.other = self.write_file('other', self.blocks_of(40))
        self.second = self.save(self.other, 'b')

    def flip(self, kind, place=60):
        """Damage what only the first version needs; return how it was.

        :param place: of the byte; by default where an index has its frames
        """
        path = self.files[kind]
        whole = path.read_bytes()
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        return whole

    def assert_content(self, disk, version):
        self.assertEqual(fixture.digest(disk.read_bytes()),
                         fixture.digest(self.content(version)))

    def damages(self):
        """Yield once for each way to damage a part of the first version."""
        for kind in _KINDS:
            for damage in (self.flip, lambda kind: self.files[kind].unlink()):
                whole = self.files[kind].read_bytes()
                damage(kind)
                yield kind
                self.files[kind].write_bytes(whole)

    def test_others_are_restored_and_saved(self):
        before = self.write_file('before', self.other.read_bytes())
        for _kind in self.damages():
            self.assertRaises(exceptions.IntegrityError, self.content,
                              self.first)
            self.assert_content(before, self.second)
            self.write_blocks(self.other, 3)
            self.assert_content(self.other, self.save(self.other, 'b'))
            self.assertEqual([self.first.id],
                             verification.verify(self.access).versions_damaged)

    def test_names_of_blocks_are_not_needed_to_restore_them(self):
        self.flip('index', -100)
        self.assert_content(self.disk, self.first)
        self.assertEqual([self.first.id],
                         verification.verify(self.access).versions_damaged)
        third = self.save()
        self.assertEqual(self.blocks, third.blocks_stored)
        pruning.delete(self.access, [self.first.id])
        pruning.prune(self.access)
        self.assertTrue(verification.verify(self.access).intact)
        self.assert_content(self.disk, third)

    def test_a_store_is_opened_without_its_indexes_and_maps(self):
        """What an operation does not need is not read."""
        other = [path for path in (self.directory / 'store').iterdir()
                 if path.name.startswith(('index-', 'map-'))
                 and path not in self.files.values()]
        for path in other:
            path.unlink()
        self.assert_content(self.disk, self.first)
        pruning.delete(self.access, [self.second.id])
        self.assertEqual(2, len(other))

    def test_a_save_does_not_build_on_a_version_that_cannot_be_read(self):
        for kind in _KINDS:
            self.flip(kind)
        self.write_blocks(self.disk, 5)
        third = self.save()
        self.assertEqual(self.first.id, third.parent)
        self.assertEqual(self.blocks, third.blocks_stored)
        self.assert_content(self.disk, third)
        self.assertEqual([self.first.id],
                         verification.verify(self.access).versions_damaged)
        # Alpha is computed from the oldest version that can be read.
        fourth = self.save(alpha='auto')
        self.assert_content(self.disk, fourth)

    def test_deleting_and_pruning_recover_from_it(self):
        for _kind in self.damages():
            pruning.delete(self.access, [self.first.id])
            pruning.prune(self.access)
            self.assertTrue(verification.verify(self.access).intact)
            self.assert_content(self.other, self.second)
            # For the next kind of damage.
            self.first = self.save()
            head = self.access.head()
            [pack], map_number = [
                pack for pack in head.packs.values()
                if pack.origin == self.first.number], self.first.root[1]
            directory = self.directory / 'store'
            self.files = {'index': directory / pack.index,
                          'map': directory / head.maps[map_number].blob}

    def test_a_prune_frees_nothing_that_a_damaged_version_may_need(self):
        whole = self.flip('map')
        self.write_blocks(self.other, *range(30))
        third = self.save(self.other, 'b')
        before = set(self.store.names())
        pruning.delete(self.access, [self.second.id])
        pruning.prune(self.access)
        gone = before - set(self.store.names())
        # What came after it is freed.
        self.assertTrue(gone)
        self.assertFalse(gone & {path.name for path in self.files.values()})
        self.files['map'].write_bytes(whole)
        self.assert_content(self.disk, self.first)
        self.assert_content(self.other, third)
        self.assertTrue(verification.verify(self.access).intact)

    def test_a_pack_that_is_damaged_does_not_end_a_prune(self):
        self.write_blocks(self.disk, *range(20))
        third = self.save()
        pruning.delete(self.access, [self.first.id])
        self.write_blocks(self.other, *range(20))
        self.save(self.other, 'b')
        pruning.delete(self.access, [self.second.id])
        self.flip('pack')
        pruned = pruning.prune(self.access)
        self.assertEqual(1, pruned.packs_rewritten)
        self.assertRaises(exceptions.IntegrityError, self.content, third)

    def test_a_rollback_goes_back_to_a_version_that_is_intact(self):
        for kind in _KINDS:
            self.flip(kind)
        self.write_blocks(self.other, 7)
        before = self.content(self.second)
        rollback.roll_back(self.access, self.second.id,
                           save_request.SaveRequest(self.other, 'b'))
        self.assertEqual(fixture.digest(before),
                         fixture.digest(self.other.read_bytes()))

    def test_the_index_of_a_base_image_is_created_again(self):
        image = self.write_file('image', self.blocks_of(40))
        disk = self.write_file('on-base', image.read_bytes())
        version = self.save(disk, 'c', base=image)
        [blob] = self.access.head().bases.values()
        path = self.directory / 'store' / blob.blob
        path.write_bytes(path.read_bytes()[:-1])
        self.write_blocks(disk, 3)
        later = self.save(disk, 'c', base=image)
        self.assertEqual(1, later.blocks_stored)
        self.assertNotEqual([blob], list(self.access.head().bases.values()))
        for each in (version, later):
            output = self.directory / 'restored'
            restoring.restore(self.access, each.id,
                              restoring.Output(output, 'raw'), image)
        self.assertEqual(fixture.digest(disk.read_bytes()),
                         fixture.digest(output.read_bytes()))
        self.save(disk, 'c', base=image)
        self.assertTrue(verification.verify(self.access).intact)


class TestNames(fixture.VersionsTestCase):

    blocks = 4

    def test_first_digits_of_an_id_are_enough_however_few(self):
        version = self.save()
        head = self.access.head()
        for length in (1, 3, 8, 36):
            self.assertEqual(version.id,
                             head.find(version.id[:length]).id)
        error = self.assertRaises(exceptions.NotFound, head.find, '')
        self.assertNotIn('1 versions', str(error))

    def test_a_version_that_is_named_twice_is_deleted_once(self):
        version = self.save()
        self.assertEqual([version.id], pruning.delete(
            self.access, [version.id, version.id[:8]]))

    def test_a_disk_that_another_process_writes_is_not_scanned(self):
        if not fixture.has_qemu():
            self.skipTest(fixture.NEEDS_QEMU)
        request = save_request.SaveRequest(self.disk, 'a',
                                           without_snapshot=True)
        with fixture.guest_of(self.disk):
            self.assertRaises(exceptions.Busy, saving.save, self.access,
                              request)
        saving.save(self.access, request)


class TestManifests(fixture.VersionsTestCase):

    def test_a_damaged_manifest_is_created_again(self):
        version = self.save(manifest=True)
        path = self.directory / 'manifest'
        whole = manifests.create(self.access, version.id, path)
        [blob] = self.access.head().manifests.values()
        stored = self.directory / 'store' / blob.blob
        for damage in (pathlib.Path.unlink,
                       lambda path: path.write_bytes(b'')):
            damage(stored)
            self.assertFalse(verification.verify(self.access).intact)
            self.write_blocks(self.disk, 3)
            later = self.save()
            self.assertIn(later.id, self.access.head().manifests)
            self.assertEqual(whole, manifests.create(
                self.access, version.id, path))
            manifests.keep(self.access, version.id, path)
            self.assertTrue(verification.verify(self.access).intact)
            stored = self.directory / 'store' / self.access.head().manifests[
                version.id].blob


class TestUnreadablePacks(fixture.VersionsTestCase):

    def test_a_disk_whose_blocks_cannot_be_read_is_saved_anew(self):
        """A save that stores blocks again for faster restores reads them."""
        self.save()
        self.write_blocks(self.disk, *range(200))
        version = self.save()
        stored = self.directory / 'store' / self.access.head().packs[2].blob
        stored.write_bytes(stored.read_bytes()[:5000])
        self.write_blocks(self.disk, *range(600, 700))
        later = self.save(alpha=1.0, group_blocks=20)
        self.assertEqual(self.blocks, later.blocks_stored)
        self.assertEqual(fixture.digest(self.disk.read_bytes()),
                         fixture.digest(self.content(later)))
        self.assertEqual([version.id],
                         verification.verify(self.access).versions_damaged)
