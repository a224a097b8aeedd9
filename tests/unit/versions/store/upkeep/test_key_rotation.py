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
"""Stores whose keys are replaced."""

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.restore import rollback_plan
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.upkeep import key_rotation
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture

OLD, NEW, NEWER = (bytes([each]) * 32 for each in (1, 2, 3))


class KeyRotationTest(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.access = self.opened(OLD)
        self.first = self.save()
        self.was = self.disk.read_bytes()

    def opened(self, key):
        return store_access.StoreAccess(self.store, key)

    def rotate(self, key=NEW):
        self.access = key_rotation.rotate(self.access, key)

    def state(self):
        return key_rotation.state(self.access.head())

    def rewrite_all(self, **options):
        return key_rotation.rewrite_all(
            self.access, lambda done, total: None, **options)

    def assert_intact(self):
        found = verification.verify(self.access)
        self.assertTrue(found.intact, found)
        self.assertEqual(self.was, self.content(self.first))


class TestRotation(KeyRotationTest):

    def test_old_versions_stay_readable_and_new_ones_have_the_new_key(self):
        self.rotate()
        self.assertEqual((2, [1]), (self.state().key_number,
                                    self.state().former_keys))
        self.write_blocks(self.disk, 3, 4)
        second = self.save()
        self.assertEqual({1, 2}, {pack.key for pack in
                                  self.access.head().packs.values()})
        self.assertEqual(self.disk.read_bytes(), self.content(second))
        self.assert_intact()

    def test_blocks_of_the_former_key_are_not_stored_again(self):
        self.rotate()
        self.write_blocks(self.disk, 3)
        again = self.save()
        self.assertEqual((1, 1), (again.blocks_changed, again.blocks_stored))
        # Another disk with the same blocks, at other places.
        moved = self.write_file('moved', self.was[fixture.BLOCK:])
        self.assertEqual(0, self.save(moved, 'moved').blocks_stored)
        # Stored again on purpose, it has the name of its new key.
        self.write_blocks(self.disk, 600)
        self.save(alpha=1.0)
        self.assert_intact()

    def test_differences_are_those_of_the_content(self):
        self.rotate()
        self.write_blocks(self.disk, 5)
        changed = self.save()
        with open(self.disk, 'r+b') as stream:
            stream.write(self.was)
        same = self.save()
        self.assertEqual([(5 * fixture.BLOCK, fixture.BLOCK)], restoring.diff(
            self.access, self.first.id, changed.id).ranges)
        self.assertEqual(0, restoring.diff(
            self.access, self.first.id, same.id).blocks)
        plan = rollback_plan.plan(self.access, self.first.id,
                                  save_request.SaveRequest(self.disk, 'a'))
        self.assertEqual(0, plan.bytes_differing)

    def test_bases_are_indexed_again(self):
        base = self.write_file('base', self.blocks_of(64))
        disk = self.write_file('copy', base.read_bytes() + self.blocks_of(2))
        self.save(disk, 'b', base=base)
        self.rotate()
        self.assertEqual({}, self.access.head().bases)
        self.write_blocks(disk, 65)
        self.assertEqual(1, self.save(disk, 'b', base=base).blocks_stored)
        self.assertEqual(1, len(self.access.head().bases))

    def test_the_holder_of_the_former_key_gets_a_clear_error(self):
        self.rotate()
        error = self.assertRaises(exceptions.InvalidInput,
                                  self.opened(OLD).head)
        self.assertIn('key 2', str(error))
        self.assertRaises(exceptions.InvalidInput, self.save_with, OLD)

    def save_with(self, key):
        self.access, kept = self.opened(key), self.access
        try:
            return self.save()
        finally:
            self.access = kept

    def test_what_cannot_be_replaced(self):
        self.assertRaises(exceptions.InvalidInput, self.rotate, OLD)
        self.access = self.opened(None)
        self.assertRaises(exceptions.InvalidInput, self.rotate, NEW)

    def test_keys_of_another_chain_are_noticed(self):
        self.rotate()
        head = self.access.head()
        head.former_keys = {1: b'x' * 40}
        self.access.commit(head)
        self.assertRaises(exceptions.IntegrityError, self.content, self.first)


class TestRewriting(KeyRotationTest):

    def setUp(self):
        super().setUp()
        for number in range(4):
            self.write_blocks(self.disk, *range(number * 50, number * 50 + 9))
            self.save()
        self.was_last = self.disk.read_bytes()

    def test_parts_are_resumed_after_interruptions(self):
        self.rotate()
        left = [self.state().packs_left]
        self.assertEqual(5, left[0])
        while left[-1]:
            left.append(key_rotation.rewrite(self.access, 1).packs_left)
            self.assert_intact()
        self.assertEqual([5, 4, 3, 2, 1, 0], left)
        self.assertEqual({2}, {pack.key for pack in
                               self.access.head().packs.values()})

    def test_interrupted_reports_lose_nothing(self):
        self.rotate()

        def interrupt(done, total):
            if done:
                raise exceptions.Cancelled('enough')

        self.assertRaises(exceptions.Cancelled, key_rotation.rewrite_all,
                          self.access, interrupt, 1.0)
        self.assertLess(self.state().packs_left, 5)
        self.rewrite_all()
        self.assert_intact()

    def test_a_rate_leaves_pauses_in_which_others_write(self):
        self.rotate()
        total = self.state().bytes_left
        seen = []

        def report(done, _total):
            # No lock is held.
            with self.access.writing():
                seen.append(done)

        self.rewrite_all_with(report, rate=total)
        self.assertEqual(total, seen[-1])
        self.assertEqual(0, self.state().packs_left)

    def rewrite_all_with(self, report, rate):
        key_rotation.rewrite_all(self.access, report, rate)

    def test_saves_between_parts(self):
        self.rotate()
        key_rotation.rewrite(self.access, 1)
        self.write_blocks(self.disk, 1)
        saved = self.save()
        self.rewrite_all()
        self.assertEqual(self.disk.read_bytes(), self.content(saved))
        self.assert_intact()

    def test_several_rotations_before_all_is_rewritten(self):
        self.rotate()
        key_rotation.rewrite(self.access, 1)
        self.rotate(NEWER)
        self.assertEqual([1, 2], self.state().former_keys)
        self.assert_intact()
        self.rewrite_all()
        self.assert_intact()

    def test_compacted_packs_have_the_present_key(self):
        self.rotate()
        pruning.delete(self.access, [self.first.id])
        pruning.prune(self.access, rule=pruning.PruneRule(dead_share=0.0))
        self.assertTrue(verification.verify(self.access).intact)


class TestRetiring(KeyRotationTest):

    def frames_that_open(self, key):
        """Slots that a key opens, of all packs that are in the store."""
        slots = 0
        head = heads.load(self.store)
        opened = _native.BlockStore(head.block_size, key, self.store.read,
                                    self.store.local_path)
        for number, pack in head.packs.items():
            opened.add_pack((number, pack.origin, 1),
                            (pack.blocks, pack.data_bytes), pack.blob,
                            pack.index, bytes.fromhex(pack.check))
            _reasons, bad = opened.verify_pack(
                number, self.store.size(pack.blob))
            slots += pack.blocks - len(bad)
        return slots

    def test_a_former_key_is_needed_until_all_is_rewritten(self):
        self.rotate()
        error = self.assertRaises(exceptions.Conflict, key_rotation.retire,
                                  self.access)
        self.assertIn('rewrite', str(error))
        self.rewrite_all()
        key_rotation.retire(self.access)
        self.assertEqual([], self.state().former_keys)
        self.assert_intact()
        # Again is no error.
        key_rotation.retire(self.access)

    def test_the_holder_of_a_retired_key_reads_nothing_later(self):
        self.assertEqual(700, self.frames_that_open(OLD))
        self.rotate()
        self.rewrite_all()
        key_rotation.retire(self.access)
        self.write_blocks(self.disk, *range(30))
        self.save()
        self.assertEqual(0, self.frames_that_open(OLD))
        self.assertEqual(730, self.frames_that_open(NEW))
        self.assertRaises(exceptions.InvalidInput, self.opened(OLD).head)
        # No blob has the former key, nor a pack that it opens.
        for name in self.store.names():
            if name.startswith('pack-'):
                self.assertIn(name, self.access.head().blobs())
        # Nor can it seal what the present one accepts.
        head = heads.load(self.store)
        head.versions.clear()
        self.store.replace(blob_names.of_head(head.number), head.encode(OLD))
        self.assertRaises(exceptions.IntegrityError, self.access.head)
