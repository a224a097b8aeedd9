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
"""Deleting, pruning and scrubbing."""

import contextlib
import dataclasses
import struct

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import retention
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture

BLOCK = fixture.BLOCK


class TestPrune(fixture.VersionsTestCase):

    def chain(self):
        versions, contents = [], []
        for step in range(4):
            self.write_blocks(self.disk, *range(step * 100, step * 100 + 60))
            versions.append(self.save())
            contents.append(self.disk.read_bytes())
        return versions, contents

    def test_the_first_version_goes_without_a_new_full(self):
        versions, contents = self.chain()
        pruning.delete(self.access, [versions[0].id])
        before = self.access.head().bytes_stored()
        done = pruning.prune(self.access, rule=pruning.PruneRule(0.05))
        self.assertEqual((before, 1), (done.bytes_before,
                                       done.packs_rewritten))
        # Of the first pack, what the second version overwrote.
        self.assertLess(done.bytes_after, before - 59 * BLOCK)
        for version, content in zip(versions[1:], contents[1:]):
            self.assertEqual(content, self.content(version))
        self.assertTrue(verification.verify(self.access).intact)

    def test_what_is_deleted_is_not_found(self):
        versions, _ = self.chain()
        pruning.delete(self.access, [versions[1].id])
        self.assertRaises(exceptions.NotFound, self.access.head().find,
                          versions[1].id)

    def test_nothing_is_deleted_if_one_is_unknown(self):
        versions, _ = self.chain()
        self.assertRaises(exceptions.NotFound, pruning.delete, self.access,
                          [versions[0].id, 'none'])
        self.assertEqual(4, len(self.access.head().versions))

    def test_all_gone_leaves_an_empty_store(self):
        versions, _ = self.chain()
        pruning.delete(self.access, [version.id for version in versions])
        done = pruning.prune(self.access)
        self.assertEqual(0, done.bytes_after)
        self.assertEqual([], [name for name in self.store.names()
                              if not blob_names.is_bookkeeping(name)])
        self.assertEqual(self.disk.read_bytes(), self.content(self.save()))

    def test_policies_are_by_series(self):
        versions, _ = self.chain()
        other = self.save(series='b')
        done = pruning.prune(self.access, {'a': retention.Policy(last=1)})
        self.assertEqual([each.id for each in versions[:3]],
                         done.versions_deleted)
        self.assertEqual({versions[3].id, other.id},
                         set(self.access.head().versions))

    def test_a_dry_run_changes_nothing(self):
        self.chain()
        names = sorted(self.store.names())
        done = pruning.prune(self.access, {None: retention.Policy(last=1)},
                             dry_run=True)
        self.assertEqual(3, len(done.versions_deleted))
        self.assertLess(done.bytes_after, done.bytes_before)
        self.assertEqual(names, sorted(self.store.names()))

    def test_a_lost_pack_that_was_compacted_hits_versions(self):
        self.disk.write_bytes(self.noise.randbytes(64 * BLOCK))
        first = self.save()
        with self.disk.open('r+b') as disk:
            disk.write(self.noise.randbytes(48 * BLOCK))
        second = self.save()
        [number] = [number for number, pack
                    in self.access.head().packs.items()
                    if pack.blocks == 64]
        pruning.delete(self.access, [first.id])
        pruning.prune(self.access, rule=pruning.PruneRule(0.0))
        # It keeps its last slots.
        compacted = self.access.head().packs[number]
        self.assertEqual(16, compacted.blocks)
        self.store.delete(compacted.blob)
        self.assertEqual([second.id],
                         verification.verify(self.access).versions_damaged)

    def test_packs_are_compressed_again_once(self):
        # Text, of which a higher level makes less.
        words = [bytes(self.noise.choices(range(97, 123), k=3 + at % 7))
                 for at in range(2000)]
        for step in range(3):
            text = b' '.join(self.noise.choices(
                words, [1 / at for at in range(1, 2001)], k=100000))
            self.disk.write_bytes(text)
            self.save()
        contents = {version.id: self.content(version)
                    for version in self.access.head().versions.values()}
        before = self.access.head().bytes_stored()
        rule = pruning.PruneRule(level=15)
        foreseen = pruning.prune(self.access, rule=rule, dry_run=True)
        done = pruning.prune(self.access, rule=rule)
        self.assertEqual((3, 3), (foreseen.packs_rewritten,
                                  done.packs_rewritten))
        self.assertLess(done.bytes_after, 0.97 * before)
        self.assertEqual(0, pruning.prune(self.access,
                                          rule=rule).packs_rewritten)
        # A later prune that compacts them keeps the level.
        newest = self.access.head().of_series('a')[-1]
        pruning.delete(self.access, [newest.id])
        pruning.prune(self.access, rule=pruning.PruneRule(0.0))
        self.assertTrue(verification.verify(self.access).intact)
        head = self.access.head()
        self.assertEqual({15}, {pack.level for pack in head.packs.values()})
        for version in head.versions.values():
            self.assertEqual(contents[version.id], self.content(version))

    def test_no_more_is_compressed_again_at_a_time_than_may_be(self):
        for _step in range(3):
            self.disk.write_bytes(self.noise.randbytes(64 << 10))
            self.save()
        rule = pruning.PruneRule(level=9, most_bytes=1)
        for left in (2, 1, 0, 0):
            pruning.prune(self.access, rule=rule)
            levels = [pack.level for pack
                      in self.access.head().packs.values()]
            self.assertEqual(left, len([level for level in levels
                                        if level < 9]), levels)

    def test_deleted_blocks_are_stored_again_when_they_come_back(self):
        versions, contents = self.chain()
        pruning.delete(self.access, [versions[0].id])
        pruning.prune(self.access, rule=pruning.PruneRule(0.0))
        self.disk.write_bytes(contents[0])
        again = self.save()
        self.assertEqual(contents[0], self.content(again))
        self.assertGreater(again.blocks_stored, 0)


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


class TestHeads(fixture.VersionsTestCase):

    blocks = 3

    def test_the_last_head_counts_though_pointers_lag(self):
        first = self.save()
        for name in ('latest-0', 'latest-1'):
            self.store.delete(name)
        self.write_blocks(self.disk, 1)
        second = self.save()
        self.assertEqual([first.id, second.id],
                         list(self.access.head().versions))

    def test_a_torn_head_that_no_pointer_names_does_not_count(self):
        first = self.save()
        self.store.create(blob_names.of_head(2), b'half a head')
        self.assertEqual([first.id], list(self.access.head().versions))

    def test_two_writers_do_not_both_win(self):
        self.save()
        one, other = self.access.head(), self.access.head()
        self.access.commit(one)
        self.assertRaises(exceptions.Busy, self.access.commit, other)

    def test_what_killed_writers_left_goes_with_the_next(self):
        self.save()
        self.store.create('pack-00000009-dead', b'orphan')
        self.assertEqual(1, verification.verify(self.access).orphans)
        pruning.prune(self.access)
        self.assertFalse(self.store.exists('pack-00000009-dead'))

    def test_what_killed_saves_left_goes_with_the_next(self):
        self.save()
        dead = self.write_file('store/.writers/staging-x/puts',
                               b'{"pack-00000009-dead": "x"}').parent
        self.store.create('pack-00000009-dead', b'orphan')
        with self.store.staging() as live:
            (live / 'puts').write_text('{"pack-00000010-live": "x"}')
            self.store.create('pack-00000010-live', b'uncommitted')
            self.save()
            pruning.prune(self.access)
            self.assertTrue(self.store.exists('pack-00000010-live'))
        self.assertFalse(self.store.exists('pack-00000009-dead'))
        self.assertFalse(dead.exists())

    def test_an_empty_store_says_so(self):
        empty = store_access.StoreAccess(self.store)
        self.assertRaises(exceptions.NotFound, empty.head)
