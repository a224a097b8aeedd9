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
"""Verifying stores, and what is read while they are pruned."""

import contextlib
import dataclasses
import struct

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture

BLOCK = fixture.BLOCK


class TestVerify(fixture.VersionsTestCase):

    blocks = 12

    def setUp(self):
        super().setUp()
        self.first = self.save()
        self.write_blocks(self.disk, 3)
        self.second = self.save()

    def flip(self, name: str, byte: int) -> None:
        path = self.store.local_path(name)
        data = bytearray(path.read_bytes())
        data[byte] ^= 1 << (byte % 8)
        path.write_bytes(data)

    def test_an_intact_store_is_intact(self):
        result = verification.verify(self.access)
        self.assertEqual(([], [], 2), (result.damage,
                                       result.versions_damaged,
                                       result.packs_checked))
        self.assertGreater(result.bytes_checked, 13 * BLOCK)

    def test_a_flipped_bit_anywhere_is_found(self):
        for name in self.store.names():
            size = self.store.size(name)
            for byte in {0, 9, 20, size // 2, size - 33, size - 1}:
                if not 0 <= byte < size:
                    continue
                self.flip(name, byte)
                with self.subTest(blob=name, byte=byte):
                    self.assert_found(name)
                self.flip(name, byte)
        self.assertTrue(verification.verify(self.access).intact)

    def assert_found(self, name: str) -> None:
        try:
            result = verification.verify(self.access)
        except exceptions.IntegrityError as exc:
            self.assertIn(name, str(exc))
            return
        self.assertIn(name, [damage.object for damage in result.damage])

    def hit_by(self, prefix: str, number: int) -> list[str]:
        name = sorted(each for each in self.store.names()
                      if each.startswith(prefix))[number]
        self.flip(name, self.store.size(name) // 2)
        return verification.verify(self.access).versions_damaged

    def test_damage_of_the_first_pack_hits_both(self):
        self.assertEqual([self.first.id, self.second.id],
                         self.hit_by('pack-', 0))

    def test_damage_of_the_second_pack_hits_the_second(self):
        self.assertEqual([self.second.id], self.hit_by('pack-', 1))

    def test_a_damaged_map_hits_its_versions(self):
        self.assertEqual([self.second.id], self.hit_by('map-', 1))

    def test_a_damaged_index_hits_its_versions(self):
        self.assertEqual([self.second.id], self.hit_by('index-', 1))

    def forge_frame(self, longer: int) -> None:
        """Let an index say that its one frame is this much longer.

        In a store without a key a catalogue can be forged to match.
        """
        head = self.access.head()
        path = self.store.local_path(head.packs[2].index)
        data = bytearray(path.read_bytes()[:-32])
        names = len(data) - 24 * head.packs[2].blocks
        # Bytes of the pack, and of its first frame.
        for kind, place in (('<Q', 40), ('<I', 64)):
            length, = struct.unpack_from(kind, data, place)
            struct.pack_into(kind, data, place, length + longer)
        path.write_bytes(data[:names])
        check = _native.hash_file(path)
        path.write_bytes(data + bytes.fromhex(check))
        head.packs[2] = dataclasses.replace(head.packs[2], check=check)
        self.store.replace(blob_names.of_head(head.number), head.encode())

    def test_a_frame_that_is_longer_than_its_blocks_is_refused(self):
        self.forge_frame(0)
        self.assertEqual(12 * BLOCK, len(self.content(self.second)))
        self.forge_frame(4 * BLOCK)
        error = self.assertRaises(exceptions.IntegrityError, self.content,
                                  self.second)
        self.assertIn('impossible', str(error))

    def test_a_missing_pack_is_named(self):
        name = self.access.head().packs[2].blob
        self.store.delete(name)
        result = verification.verify(self.access)
        self.assertEqual([name], [each.object for each in result.damage])
        self.assertEqual([self.second.id], result.versions_damaged)

    def test_restoring_from_a_damaged_pack_fails_and_leaves_no_output(self):
        self.hit_by('pack-', 1)
        self.assertRaises(exceptions.IntegrityError, self.content,
                          self.second)
        self.assertFalse((self.directory / 'restored').exists())
        self.assertEqual(12 * BLOCK, len(self.content(self.first)))


class TestPrunedMeanwhile(fixture.VersionsTestCase):
    """Who reads while a prune takes away what the last head had."""

    def setUp(self):
        super().setUp()
        self.first = self.save()
        self.write_blocks(self.disk, *range(0, 600))
        self.second = self.save()
        self.expected = self.disk.read_bytes()
        pruning.delete(self.access, [self.first.id])

    def pruned(self, *gone):
        """A store that is pruned once its head was read."""
        other = store_access.StoreAccess(self.store)
        reads = []

        class Pruned(store_access.StoreAccess):
            def head(self):
                found = super().head()
                if not reads:
                    reads.append(found)
                    pruning.delete(other, gone)
                    pruning.prune(other)
                return found

        return Pruned(self.store)

    def test_a_restore_begins_again(self):
        output = self.directory / 'restored'
        restoring.restore(self.pruned(), self.second.id,
                          restoring.Output(output, 'raw'))
        self.assertEqual(self.expected, output.read_bytes())

    def test_a_restore_that_has_begun_begins_again(self):
        for store in (self.store, fixture.RemoteStore(
                self.directory / 'store')):
            other = store_access.StoreAccess(self.store)
            reads = []

            class Pruned(store_access.StoreAccess):
                @contextlib.contextmanager
                def lenient(self, head, whole=True):
                    with super().lenient(head, whole) as found:
                        if not reads:
                            reads.append(head.number)
                            pruning.prune(other, rule=pruning.PruneRule(-1))
                        yield found

            output = self.directory / 'restored'
            restoring.restore(Pruned(store), self.second.id,
                              restoring.Output(output, 'raw'))
            self.assertEqual(self.expected, output.read_bytes())

    def test_a_restore_of_what_went_says_so(self):
        self.assertRaises(
            exceptions.NotFound, restoring.restore,
            self.pruned(self.second.id), self.second.id,
            restoring.Output(self.directory / 'restored', 'raw'))

    def test_verifying_finds_no_damage(self):
        result = verification.verify(self.pruned())
        self.assertEqual(([], []), (result.damage, result.versions_damaged))

    def test_others_are_told_to_try_again(self):
        self.write_blocks(self.disk, 620)
        third = self.save()
        self.assertRaises(exceptions.Busy, restoring.diff, self.pruned(),
                          self.second.id, third.id)

    def test_damage_is_told_all_the_same(self):
        for name in self.store.names():
            if name.startswith('pack-'):
                data = bytearray(self.store.read(name))
                data[len(data) // 2] ^= 1
                self.store.replace(name, bytes(data))
        self.assertRaises(exceptions.IntegrityError, self.content,
                          self.second)
