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
"""Saving disks and restoring versions."""

import os
import subprocess
import unittest

import hypothesis
from hypothesis import stateful
from hypothesis import strategies as st

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture

BLOCK = fixture.BLOCK


class TestRaw(fixture.VersionsTestCase):

    def test_a_version_is_the_disk_that_was_saved(self):
        first = self.save()
        before = self.disk.read_bytes()
        self.write_blocks(self.disk, 3, 5, 600)
        second = self.save()
        self.assertEqual(before, self.content(first))
        self.assertEqual(self.disk.read_bytes(), self.content(second))
        self.assertEqual(first.id, second.parent)

    def test_a_disk_that_is_written_to_meanwhile_is_not_saved(self):
        def write(*_told):
            self.write_blocks(self.disk, 1)

        self.assertRaises(exceptions.Busy, saving.save, self.access,
                          save_request.SaveRequest(self.disk, 'a'), write)
        self.assertRaises(exceptions.NotFound, self.access.head)

    def test_only_what_changed_is_stored(self):
        first = self.save()
        self.write_blocks(self.disk, 3, 5, 600)
        second = self.save()
        self.assertEqual((700, 700), (first.blocks_changed,
                                      first.blocks_stored))
        self.assertEqual((3, 3), (second.blocks_changed,
                                  second.blocks_stored))
        self.assertLess(second.bytes_stored, 4 * BLOCK)

    def test_nothing_changed_stores_nothing(self):
        self.save()
        again = self.save()
        self.assertEqual((0, 0, 0), (again.blocks_changed,
                                     again.blocks_stored,
                                     again.bytes_stored))
        self.assertEqual(self.disk.read_bytes(), self.content(again))

    def test_a_disk_with_more_blocks_than_a_version_is_refused(self):
        access = store_access.StoreAccess(
            file.FileStore(self.directory / 'small'), block_size=512)
        disk = self.write_file('large', b'')
        room = 512 * 2 ** 33
        for size in (room, room + 512):
            os.truncate(disk, size)
            with open(disk, 'r+b') as stream:
                stream.seek(size - 1)
                stream.write(b'x')
            if size == room:
                saving.save(access, save_request.SaveRequest(disk, 'a'))
            else:
                self.assertRaises(exceptions.InvalidInput, saving.save, access,
                                  save_request.SaveRequest(disk, 'a'))

    def test_zeroes_and_holes_are_not_stored(self):
        disk = self.write_file('sparse', b'')
        os.truncate(disk, 100 * BLOCK)
        self.write_blocks(disk, 50)
        with open(disk, 'r+b') as stream:
            stream.write(bytes(BLOCK))
        version = self.save(disk)
        self.assertEqual(1, version.blocks_stored)
        self.assertEqual(disk.read_bytes(), self.content(version))

    def test_moved_blocks_are_not_stored_again(self):
        self.save()
        data = self.disk.read_bytes()
        self.disk.write_bytes(data[BLOCK:] + data[:BLOCK])
        moved = self.save()
        self.assertEqual((700, 0), (moved.blocks_changed,
                                    moved.blocks_stored))
        self.assertEqual(self.disk.read_bytes(), self.content(moved))

    def test_disks_grow_and_shrink(self):
        first = self.save()
        before = self.disk.read_bytes()
        with open(self.disk, 'ab') as stream:
            stream.write(self.blocks_of(40) + b'the end is no whole block')
        second = self.save()
        grown = self.disk.read_bytes()
        os.truncate(self.disk, 10 * BLOCK + 7)
        third = self.save()
        os.truncate(self.disk, 20 * BLOCK)
        fourth = self.save()
        self.assertEqual(before, self.content(first))
        self.assertEqual(grown, self.content(second))
        self.assertEqual(before[:10 * BLOCK + 7], self.content(third))
        self.assertEqual(self.disk.read_bytes(), self.content(fourth))

    def test_an_older_parent_may_be_named(self):
        first = self.save()
        self.write_blocks(self.disk, 1)
        self.save()
        self.write_blocks(self.disk, 2)
        third = self.save(parent=first.id[:8])
        self.assertEqual((first.id, 2), (third.parent, third.blocks_changed))

    def test_an_unknown_parent_is_not_found(self):
        self.assertRaises(exceptions.NotFound, self.save, parent='none')
        self.assertIsNone(heads.load(self.store))

    def test_a_disk_that_is_not_there_is_an_error_and_changes_nothing(self):
        self.assertRaises(FileNotFoundError, self.save,
                          self.directory / 'none')
        self.assertIsNone(heads.load(self.store))
        self.assertEqual([], self.store.names())

    def test_a_store_of_other_blocks(self):
        self.access = store_access.StoreAccess(self.store, block_size=16384)
        version = self.save()
        self.assertEqual(175, version.blocks_stored)
        self.write_blocks(self.disk, 8)
        self.assertEqual(1, self.save().blocks_changed)
        self.assertEqual(self.disk.read_bytes(),
                         self.content(self.access.head().of_series('a')[-1]))


class TestTogether(fixture.VersionsTestCase):
    """The CloudVS paper's multi-VM versioning."""

    blocks = 6

    def request(self, name: str, disk: bytes, **
                options) -> save_request.SaveRequest:
        return save_request.SaveRequest(
            self.write_file(name, disk), name, **options)

    def saved(self, requests, changes):
        """Save disks, change blocks of each, and save them together."""
        saving.save_disks(self.access, requests)
        for request, blocks in zip(requests, changes):
            with open(request.disk, 'r+b') as stream:
                for place, data in blocks.items():
                    stream.seek(place * BLOCK)
                    stream.write(data)
        return saving.save_disks(self.access, requests)

    def test_figure_5_seven_of_nine_chunks_are_stored(self):
        common = self.blocks_of(1)
        changes = [{2: common, 0: self.blocks_of(1), 1: self.blocks_of(1)},
                   {2: common, 4: self.blocks_of(1)},
                   {2: common, 3: self.blocks_of(1), 4: self.blocks_of(1),
                    5: self.blocks_of(1)}]
        requests = [self.request(name, self.blocks_of(6)) for name in 'abc']
        versions = self.saved(requests, changes)
        self.assertEqual(9, sum(each.blocks_changed for each in versions))
        self.assertEqual(7, sum(each.blocks_stored for each in versions))
        for request, version in zip(requests, versions):
            self.assertEqual(request.disk.read_bytes(),
                             self.content(version))

    def test_figure_6_vm_c_stores_chunks_3_and_4_together(self):
        common = self.blocks_of(1)
        requests = [self.request(name, self.blocks_of(6), group_blocks=2)
                    for name in 'abc']
        saving.save_disks(self.access, requests)
        changes = [{2: common}, {2: common},
                   {place: self.blocks_of(1) for place in (3, 4, 5)}
                   | {2: common}]
        for request, blocks in zip(requests, changes):
            with open(request.disk, 'r+b') as stream:
                for place, data in blocks.items():
                    stream.seek(place * BLOCK)
                    stream.write(data)
        requests[2] = save_request.SaveRequest(
            requests[2].disk, 'c', alpha=0.5, group_blocks=2)
        versions = saving.save_disks(self.access, requests)
        # Chunk 3 once more, beside 4, though A has it: 4 instead of 3.
        self.assertEqual([1, 0, 4],
                         [each.blocks_stored for each in versions])
        # The whole differential delta comes from the pack of version C.
        self.assertEqual({3: 2, versions[2].number: 4},
                         self.blocks_by_origin(versions[2]))
        self.assertEqual(requests[2].disk.read_bytes(),
                         self.content(versions[2]))

    def test_all_become_versions_or_none(self):
        good = self.request('a', self.blocks_of(6))
        bad = save_request.SaveRequest(self.directory / 'none', 'b')
        self.assertRaises(FileNotFoundError, saving.save_disks, self.access,
                          [good, bad])
        self.assertIsNone(heads.load(self.store))


class TestAlpha(fixture.VersionsTestCase):

    def chain(self, alpha, versions=6):
        self.save()
        for step in range(versions):
            self.write_blocks(self.disk, *range(step, 700, 7))
            last = self.save(alpha=alpha, group_blocks=50)
            self.assertEqual(self.disk.read_bytes(), self.content(last))
        return last, self.access.head()

    def owners(self, head, version):
        """The versions that stored what the oldest one does not have."""
        oldest = head.of_series('a')[0]
        return set(self.blocks_by_origin(version)) - {oldest.number}

    def test_differential_versions_lie_in_one_place(self):
        last, head = self.chain(1.0)
        self.assertEqual({last.number}, self.owners(head, last))

    def test_incremental_versions_lie_in_all(self):
        last, head = self.chain(0.0)
        self.assertEqual(6, len(self.owners(head, last)))
        self.assertEqual(100, last.blocks_stored)

    def test_between_the_extremes_lies_the_rest(self):
        stored = []
        for alpha in (0.0, 0.5, 1.0):
            self.access = store_access.StoreAccess(
                file.FileStore(self.directory / f'store-{alpha}'))
            stored.append(self.chain(alpha)[1].bytes_stored())
        self.assertEqual(sorted(stored), stored)
        self.assertLess(stored[0], stored[1])
        self.assertLess(stored[1], stored[2])

    def test_automatic_is_between_them(self):
        last, head = self.chain('auto')
        self.assertGreater(len(self.owners(head, last)), 0)

    def test_figure_4_the_first_group_is_stored_again(self):
        disk = self.write_file('six', self.blocks_of(6))
        self.save(disk, 's')
        self.write_blocks(disk, 2, 4, 5)
        self.save(disk, 's')
        self.write_blocks(disk, 4)
        with open(disk, 'ab') as stream:
            stream.write(self.blocks_of(1))
        second = self.save(disk, 's', alpha=0.5, group_blocks=2)
        # Chunks 3 and 5, and 7: the third is stored again.
        self.assertEqual((2, 3), (second.blocks_changed,
                                  second.blocks_stored))
        self.assertEqual(disk.read_bytes(), self.content(second))


class TestKey(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.access = store_access.StoreAccess(self.store, key=bytes(32))

    def test_sealed_stores_give_disks_back_and_deduplicate(self):
        first = self.save()
        again = self.save(series='b')
        self.assertEqual((700, 0), (first.blocks_stored,
                                    again.blocks_stored))
        self.assertEqual(self.disk.read_bytes(), self.content(again))

    def test_nothing_of_the_disk_is_in_the_clear(self):
        text = b'a secret that compresses not at all: '
        self.disk.write_bytes((text * 200)[:BLOCK] + self.blocks_of(9))
        self.save()
        stored = b''.join(self.store.read(name)
                          for name in self.store.names())
        self.assertNotIn(text, stored)

    def test_another_key_is_refused(self):
        self.save()
        for key in (None, b'x' * 32):
            other = store_access.StoreAccess(self.store, key=key)
            self.assertRaises(exceptions.InvalidInput, other.head)

    def test_a_short_key_is_refused(self):
        self.assertRaises(exceptions.InvalidInput, store_access.StoreAccess,
                          self.store, key=b'short')


class Together(snapshots.Snapshotter):
    """One snapshot of several disks, as a running guest's monitor takes it."""

    def __init__(self, disks):
        self._disks = [snapshots.OfflineSnapshotter(disk) for disk in disks]
        self.taken = 0

    def create(self, name):
        self.taken += 1
        for disk in self._disks:
            disk.create(name)
        return snapshots.GuestPause(pause_ms=7.0, quiesced=True)

    def delete(self, name):
        for disk in self._disks:
            disk.delete(name)


@unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
class TestQcow2(fixture.VersionsTestCase):

    size = 256 << 20

    def setUp(self):
        super().setUp()
        self.qcow2 = self.directory / 'disk.qcow2'
        fixture.make_qcow2(self.qcow2, self.size)
        fixture.qemu_io(self.qcow2, 'write -P 1 0 1M', 'write -P 2 200M 64k')

    def raw_copy(self, name: str):
        path = self.directory / name
        subprocess.run(['qemu-img', 'convert', '-O', 'raw', str(self.qcow2),
                        str(path)], check=True)
        return path

    def test_only_changed_clusters_are_read(self):
        first = self.save_qcow2(self.qcow2)
        before = self.raw_copy('before')
        fixture.qemu_io(self.qcow2, 'write -P 3 100M 4k', 'write -z 0 64k',
                        'write -P 1 64k 4k')
        second = self.save_qcow2(self.qcow2)
        # One block of three; 16 that became zero; one that did not change.
        self.assertEqual(17, second.blocks_changed)
        # Two clusters of data; tables of 64 KiB for three states.
        self.assertLess(second.bytes_read, 2 * 65536 + 3 * 2 * 65536 + 4096)
        for version, wanted in ((first, before),
                                (second, self.raw_copy('after'))):
            output = self.directory / 'out.qcow2'
            restoring.restore(self.access, version.id,
                              restoring.Output(output, 'qcow2'))
            self.assert_same_disk(wanted, output)
            subprocess.run(['qemu-img', 'check', '-q', str(output)],
                           check=True)

    def test_one_snapshot_of_several_disks_tells_of_all(self):
        disks = [self.directory / f'{name}.qcow2' for name in 'xy']
        for disk in disks:
            fixture.make_qcow2(disk, 1 << 20)
        together = Together(disks)
        for token in (None, 'a-token'):
            versions = saving.save_disks(self.access, [
                save_request.SaveRequest(disk, disk.name, snapshotter=together)
                for disk in disks], token=token)
            self.assertEqual(2 * [(7.0, True)], [
                (version.pause_ms, version.quiesced)
                for version in versions])
        self.assertEqual(2, together.taken)

    def test_one_snapshot_is_kept_in_the_disk(self):
        self.save_qcow2(self.qcow2)
        version = self.save_qcow2(self.qcow2)
        listed = subprocess.run(
            ['qemu-img', 'snapshot', '-l', str(self.qcow2)], check=True,
            capture_output=True, text=True).stdout
        self.assertEqual(1, listed.count('dc-'))
        self.assertIn(version.snapshots[0].name, listed)

    def test_a_lost_snapshot_costs_a_scan_and_nothing_else(self):
        version = self.save_qcow2(self.qcow2)
        subprocess.run(['qemu-img', 'snapshot', '-d',
                        version.snapshots[0].name, str(self.qcow2)],
                       check=True)
        fixture.qemu_io(self.qcow2, 'write -P 9 8k 4k')
        second = self.save_qcow2(self.qcow2)
        self.assertEqual(1, second.blocks_changed)
        self.assertGreater(second.bytes_read, 1 << 20)

    def test_a_foreign_snapshot_of_the_same_name_is_not_believed(self):
        version = self.save_qcow2(self.qcow2)
        name = version.snapshots[0].name
        subprocess.run(['qemu-img', 'snapshot', '-d', name, str(self.qcow2)],
                       check=True)
        fixture.qemu_io(self.qcow2, 'write -P 9 8k 4k')
        subprocess.run(['qemu-img', 'snapshot', '-c', name, str(self.qcow2)],
                       check=True)
        fixture.qemu_io(self.qcow2, 'write -P 8 16k 4k')
        second = self.save_qcow2(self.qcow2)
        self.assertEqual(2, second.blocks_changed)
        self.assertEqual(self.raw_copy('now').read_bytes(),
                         self.content(second))

    def test_a_named_snapshot_is_what_is_saved(self):
        subprocess.run(['qemu-img', 'snapshot', '-c', 'mine',
                        str(self.qcow2)], check=True)
        wanted = self.raw_copy('wanted')
        fixture.qemu_io(self.qcow2, 'write -P 9 0 64k')
        first = self.save_qcow2(self.qcow2, snapshot='mine')
        self.assertEqual(wanted.read_bytes(), self.content(first))
        # It is the parent of the next.
        second = self.save_qcow2(self.qcow2, snapshot='another')
        self.assertEqual(16, second.blocks_changed)
        self.assertLess(second.bytes_read, 1 << 20)

    def test_clusters_copied_from_the_base_are_not_stored(self):
        base_image = self.write_file('base', self.blocks_of(512))
        disk = self.directory / 'overlay.qcow2'
        fixture.make_qcow2(disk, 4 << 20, base_image)
        fixture.qemu_io(disk, 'write -P 7 128k 4k', 'write -z 256k 64k')
        version = self.save_qcow2(disk, base=base_image)
        self.assertEqual((17, 1), (version.blocks_changed,
                                   version.blocks_stored))
        output = self.directory / 'out.qcow2'
        restoring.restore(self.access, version.id,
                          restoring.Output(output, 'qcow2'), base_image)
        self.assert_same_disk(disk, output)
        self.assertRaises(exceptions.InvalidInput, restoring.restore,
                          self.access, version.id,
                          restoring.Output(output, 'qcow2'))
        other = self.write_file('other', self.blocks_of(512))
        self.assertRaises(exceptions.BaseMismatch, restoring.restore,
                          self.access, version.id,
                          restoring.Output(output, 'qcow2'), other)

    def test_disks_of_one_save_share_the_index_of_their_base(self):
        base_image = self.write_file('base', self.blocks_of(40))
        disks = [self.directory / name for name in ('one', 'two')]
        for disk in disks:
            fixture.make_qcow2(disk, 40 * BLOCK, base_image)
        versions = saving.save_disks(self.access, [
            save_request.SaveRequest(disk, disk.name, base=base_image,
                                     disk_format='qcow2') for disk in disks])
        self.assertEqual(1, len(self.access.head().bases))
        for version in versions:
            self.assertEqual(base_image.read_bytes(),
                             self.content(version, base_image))

    def test_compressed_clusters_are_read(self):
        packed = self.directory / 'packed.qcow2'
        subprocess.run(['qemu-img', 'convert', '-c', '-O', 'qcow2',
                        str(self.qcow2), str(packed)], check=True)
        version = self.save(packed, 'p')
        self.assertEqual(self.raw_copy('wanted').read_bytes(),
                         self.content(version))

    def test_damaged_tables_are_refused(self):
        damaged = bytearray(self.qcow2.read_bytes())
        damaged[40:48] = (1 << 40).to_bytes(8, 'big')
        path = self.write_file('damaged.qcow2', bytes(damaged))
        self.assertRaises(exceptions.FormatError, self.save, path)


class Machine(stateful.RuleBasedStateMachine):
    """Any order of changes, saves, deletions and prunes keeps contents."""

    def __init__(self):
        super().__init__()
        self.case = fixture.VersionsTestCase('run')
        self.case.blocks = 40
        self.case.setUp()
        self.saved: dict[str, bytes] = {}

    @stateful.rule(places=st.lists(st.integers(0, 39), max_size=8))
    def change(self, places):
        self.case.write_blocks(self.case.disk, *places)

    @stateful.rule(place=st.integers(0, 39), count=st.integers(1, 20))
    def clear(self, place, count):
        with open(self.case.disk, 'r+b') as stream:
            stream.seek(place * BLOCK)
            stream.write(bytes(min(count, 40 - place) * BLOCK))

    @stateful.rule(one=st.integers(0, 39), other=st.integers(0, 39))
    def copy(self, one, other):
        data = self.case.disk.read_bytes()
        with open(self.case.disk, 'r+b') as stream:
            stream.seek(other * BLOCK)
            stream.write(data[one * BLOCK:(one + 1) * BLOCK])

    @stateful.rule(blocks=st.integers(38, 42))
    def resize(self, blocks):
        os.truncate(self.case.disk, max(40, blocks) * BLOCK)

    @stateful.rule(alpha=st.sampled_from([0.0, 0.5, 1.0, 'auto']),
                   series=st.sampled_from('ab'))
    def save(self, alpha, series):
        version = self.case.save(series=series, alpha=alpha, group_blocks=5)
        self.saved[version.id] = self.case.disk.read_bytes()

    @stateful.precondition(lambda self: self.saved)
    @stateful.rule(data=st.data())
    def delete(self, data):
        name = data.draw(st.sampled_from(sorted(self.saved)))
        pruning.delete(self.case.access, [name])
        del self.saved[name]

    @stateful.precondition(lambda self: self.saved)
    @stateful.rule()
    def prune(self):
        pruning.prune(self.case.access, rule=pruning.PruneRule(0.1))
        assert verification.verify(self.case.access).intact

    @stateful.invariant()
    def contents_are_kept(self):
        for name, content in self.saved.items():
            output = self.case.directory / 'restored'
            restoring.restore(self.case.access, name,
                              restoring.Output(output, 'raw'))
            assert output.read_bytes() == content

    def teardown(self):
        self.case.doCleanups()


TestMachine = Machine.TestCase
TestMachine.settings = hypothesis.settings(
    max_examples=15, stateful_step_count=12, deadline=None, derandomize=True)
