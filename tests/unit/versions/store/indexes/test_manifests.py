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
"""Manifests of versions, from their blocks and from other manifests."""

import contextlib
import pathlib

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.blobs import layered
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.inbox import acceptance
from diffcache_openstack.versions.store.indexes import manifests
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture

BLOCK = fixture.BLOCK
LEAF = 65536


class ManifestsTestCase(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.output = self.directory / 'manifest'

    def created(self, version, base: pathlib.Path | None = None) -> bytes:
        manifests.create(self.access, version.id, self.output, base)
        return self.output.read_bytes()

    def expected(self, content: bytes) -> bytes:
        """Return the manifest of a disk that has some content."""
        path = self.write_file('expected', content)
        output = self.directory / 'expected-manifest'
        _native.manifest_create(path, output)
        return output.read_bytes()

    def keep(self, version, base: pathlib.Path | None = None) -> None:
        self.created(version, base)
        manifests.keep(self.access, version.id, self.output)

    def resize(self, size: int) -> None:
        with open(self.disk, 'r+b') as stream:
            stream.truncate(size)


class TestCreate(ManifestsTestCase):

    def test_it_is_that_of_the_content(self):
        version = self.save()
        self.assertEqual(self.expected(self.disk.read_bytes()),
                         self.created(version))

    def test_sizes_that_are_no_multiples(self):
        for size in (0, 1, 5000, LEAF - 1, LEAF, LEAF + 1, 3 * LEAF + 4097):
            self.disk.write_bytes(self.blocks_of(100)[:size])
            version = self.save(series=f's{size}')
            self.assertEqual(self.expected(self.disk.read_bytes()),
                             self.created(version), size)

    def test_of_a_base_image_and_what_lies_on_it(self):
        base = self.write_file('base', self.blocks_of(200) + bytes(5 * LEAF))
        self.disk.write_bytes(base.read_bytes())
        self.write_blocks(self.disk, 3, 150, 230)
        version = self.save(base=base)
        self.assertEqual(self.expected(self.disk.read_bytes()),
                         self.created(version, base))

    def test_a_base_image_is_needed(self):
        base = self.write_file('base', self.blocks_of(200))
        version = self.save(base=base)
        self.assertRaises(exceptions.InvalidInput, self.created, version)
        other = self.write_file('other', self.blocks_of(200))
        self.assertRaises(exceptions.BaseMismatch, self.created, version,
                          other)

    def test_a_damaged_pack_is_found(self):
        version = self.save()
        [pack] = self.access.head().packs.values()
        path = self.store.local_path(pack.blob)
        data = bytearray(path.read_bytes())
        data[1000] ^= 1
        path.write_bytes(data)
        self.assertRaises(exceptions.IntegrityError, self.created, version)
        self.assertFalse(self.output.exists())


class TestCarry(ManifestsTestCase):

    def test_a_save_carries_the_manifest_of_its_parent_on(self):
        self.keep(self.save())
        sizes = [self.blocks * BLOCK, self.blocks * BLOCK + 3 * LEAF + 100,
                 50 * BLOCK, 9 * LEAF + 1, 20 * LEAF]
        for step, size in enumerate(sizes):
            self.resize(size)
            blocks = size // BLOCK
            places = {self.noise.randrange(blocks) for _ in range(step * 5)}
            self.write_blocks(self.disk, *places)
            if step % 2:
                with open(self.disk, 'r+b') as stream:
                    stream.seek(2 * LEAF)
                    stream.write(bytes(LEAF + BLOCK))
            version = self.save()
            self.assertIn(version.id, self.access.head().manifests)
            self.assertEqual(self.expected(self.disk.read_bytes()),
                             self.created(version), step)

    def test_with_a_base_image(self):
        base = self.write_file('base', self.blocks_of(300))
        self.disk.write_bytes(base.read_bytes() + self.blocks_of(40))
        self.keep(self.save(base=base), base)
        self.write_blocks(self.disk, 1, 299, 310)
        version = self.save(base=base)
        self.assertIn(version.id, self.access.head().manifests)
        self.assertEqual(self.expected(self.disk.read_bytes()),
                         self.created(version))

    def test_only_what_changed_is_read(self):
        first = self.save()
        self.keep(first)
        [pack] = self.access.head().packs.values()
        # All of the first version but for the leaf that changes.
        path = self.store.local_path(pack.blob)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        self.write_blocks(self.disk, *range(16))
        version = self.save()
        self.assertEqual(self.expected(self.disk.read_bytes()),
                         self.created(version))

    def test_without_a_kept_manifest_saves_create_none(self):
        self.save()
        self.assertEqual({}, self.access.head().manifests)

    def test_a_missing_base_image_does_not_keep_a_save_from_succeeding(self):
        base = self.write_file('base', self.blocks_of(300))
        self.disk.write_bytes(base.read_bytes())
        self.keep(self.save(base=base), base)
        self.write_blocks(self.disk, 5)
        # The base is known by the parent's record, and nobody names a file.
        version = self.save()
        self.assertNotIn(version.id, self.access.head().manifests)

    def test_of_the_ancestors_the_nearest_counts(self):
        versions = [self.save()]
        for place in range(3):
            self.write_blocks(self.disk, place)
            versions.append(self.save())
        self.keep(versions[0])
        self.keep(versions[1])
        head = self.access.head()
        self.assertEqual(versions[1].id,
                         manifests.known(head, versions[3]).id)
        # A link of the chain is gone.
        del head.versions[versions[2].id]
        self.assertEqual(versions[1].id,
                         manifests.known(head, versions[3]).id)

    def test_those_of_another_base_image_do_not_count(self):
        base = self.write_file('base', self.blocks_of(self.blocks))
        self.keep(self.save())
        version = self.save(base=base)
        self.assertNotIn(version.id, self.access.head().manifests)
        self.assertEqual(self.expected(self.disk.read_bytes()),
                         self.created(version, base))


class TestKept(ManifestsTestCase):

    def test_it_is_read_from_the_store(self):
        version = self.save()
        self.keep(version)
        before = self.output.read_bytes()
        for pack in self.access.head().packs.values():
            self.store.delete(pack.blob)
        self.assertEqual(before, self.created(version))

    def test_to_keep_it_again_changes_nothing(self):
        version = self.save()
        self.keep(version)
        number = self.access.head().number
        self.keep(version)
        self.assertEqual(number, self.access.head().number)

    def test_a_prune_removes_those_of_deleted_versions(self):
        first = self.save()
        self.keep(first)
        self.write_blocks(self.disk, 1)
        second = self.save()
        blob = self.access.head().manifests[first.id].blob
        pruning.delete(self.access, [first.id])
        self.assertTrue(self.store.exists(blob))
        pruning.prune(self.access)
        self.assertEqual([second.id], list(self.access.head().manifests))
        self.assertFalse(self.store.exists(blob))

    def test_a_verification_finds_damage(self):
        self.keep(self.save())
        self.assertTrue(verification.verify(self.access).intact)
        [blob] = self.access.head().manifests.values()
        path = self.store.local_path(blob.blob)
        intact = path.read_bytes()
        for data in (intact[:-1], b'x' + intact[1:], b''):
            path.write_bytes(data)
            [damage] = verification.verify(self.access).damage
            self.assertEqual(blob.blob, damage.object)
        path.unlink()
        self.assertFalse(verification.verify(self.access).intact)

    def test_one_that_another_writer_put_in_its_place_is_not_used(self):
        version = self.save()
        self.keep(version)
        [blob] = self.access.head().manifests.values()
        forged = self.expected(self.blocks_of(self.blocks))
        self.store.delete(blob.blob)
        path = self.write_file('forged', forged)
        other = catalogue.Catalogue(1, 'x', BLOCK, None)
        manifests.add(other, version, path, 'aa')
        self.store.put_file(blob.blob, path)
        self.assertRaises(
            exceptions.IntegrityError, manifests.load, self.access,
            self.access.head(), version, self.directory / 'loaded')
        self.assertEqual(self.expected(self.disk.read_bytes()),
                         self.created(version))

    def test_a_host_that_may_only_add_adds_manifests(self):
        self.keep(self.save())
        inbox = file.FileStore(self.directory / 'inbox')
        host = store_access.StoreAccess(
            layered.LayeredStore(self.store, inbox))
        self.write_blocks(self.disk, 7)
        main, self.access = self.access, host
        version = self.save()
        accepted = acceptance.accept(
            main, inbox, acceptance.Rules(contextlib.nullcontext))
        self.assertEqual(([version.id], []),
                         (accepted.versions, accepted.reasons))
        self.access = main
        self.assertIn(version.id, main.head().manifests)
        self.assertEqual(self.expected(self.disk.read_bytes()),
                         self.created(version))

    def test_a_host_may_not_drop_one(self):
        version = self.save()
        self.keep(version)
        inbox = file.FileStore(self.directory / 'inbox')
        host = store_access.StoreAccess(
            layered.LayeredStore(self.store, inbox))
        head = host.head()
        head.manifests.clear()
        host.commit(head)
        [reason] = acceptance.accept(
            self.access, inbox,
            acceptance.Rules(contextlib.nullcontext)).reasons
        self.assertIn('drops manifest', reason)
