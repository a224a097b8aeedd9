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
"""Deleting versions and pruning stores."""

from diffcache_openstack.common import exceptions
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
