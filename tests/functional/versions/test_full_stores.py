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
"""Stores of versions, and outputs, on filesystems that are full."""

import os
import random

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions import version_store
from tests import base
from tests.functional.fixtures import filesystems

_BLOCK = 4096
_DISK = 24 << 20


class FullFilesystem:
    """What holds on a full filesystem; mix in with one of these."""

    kind: type[filesystems.Ext4] | type[filesystems.Xfs]

    def setUp(self):
        super().setUp()
        self.noise = random.Random(1)
        self.small = self.useFixture(self.kind(self.directory))
        self.store = version_store.VersionStore.open(
            file.FileStore(self.small.path / 'store'))
        self.disk = self.write_file('disk', self.noise.randbytes(_DISK))

    def save(self, **options):
        disk = version_store.Disk(self.disk, 'a', without_snapshot=True)
        return self.store.save([disk], **options)[0]

    def change(self, first, count):
        with open(self.disk, 'r+b') as stream:
            stream.seek(first * _BLOCK)
            stream.write(self.noise.randbytes(count * _BLOCK))

    def assert_restored(self, version, content):
        output = self.directory / 'restored'
        self.store.restore(version.id, output, 'raw')
        self.assertEqual(content, output.read_bytes())

    def test_a_save_to_a_full_store_fails_as_such(self):
        first = self.save()
        content = self.disk.read_bytes()
        self.change(0, 1000)
        self.small.fill(1 << 20)
        error = self.assertRaises(exceptions.NoSpace, self.save)
        self.assertIn('free', str(error))
        self.assertEqual([first.id],
                         [each.id for each in self.store.versions()])
        self.assert_restored(first, content)

    def test_a_restore_to_a_full_filesystem_fails_as_such(self):
        version = self.save()
        self.small.exhaust()
        before = sorted(os.listdir(self.small.path))
        for disk_format in ('raw', 'qcow2'):
            self.assertRaises(
                exceptions.NoSpace, self.store.restore, version.id,
                self.small.path / 'restored', disk_format)
            self.assertEqual(before, sorted(os.listdir(self.small.path)))

    def test_a_rebuild_without_space_becomes_a_rollback_in_place(self):
        disk = self.small.path / 'disk'
        disk.write_bytes(self.disk.read_bytes())
        self.disk = disk
        version, content = self.save(), disk.read_bytes()
        # Enough differs for a rebuild to be the cheaper way.
        disk.write_bytes(self.noise.randbytes(_DISK))
        self.small.fill(4 << 20)
        done = self.store.roll_back_disks(
            [(version.id, version_store.Disk(disk, 'a'))])
        self.assertEqual('rollback', done.method)
        self.assertIn('New disks cannot be built', done.reason)
        self.assertEqual(content, disk.read_bytes())

    def test_versions_of_a_full_store_are_deleted(self):
        first = self.save()
        self.change(0, 2000)
        second, content = self.save(), self.disk.read_bytes()
        self.small.exhaust()
        self.store.delete([first.id])
        self.assertEqual([second.id],
                         [each.id for each in self.store.versions()])
        self.assert_restored(second, content)

    def test_a_full_store_is_pruned(self):
        versions = [self.save()]
        for place in range(3):
            self.change(place * 1500, 1500)
            versions.append(self.save())
        content = self.disk.read_bytes()
        self.small.exhaust()
        before = self.small.free()
        self.store.delete([each.id for each in versions[:-1]])
        done = self.store.prune()
        # Of the first pack a quarter is live; the others are.
        self.assertEqual((0, 1), (done.packs_removed, done.packs_rewritten))
        self.assertLess(16 << 20, done.bytes_before - done.bytes_after)
        self.assertLess(before, self.small.free())
        self.assert_restored(versions[-1], content)
        self.assertTrue(self.store.verify().intact)
        # The reserve is there again for the next time.
        self.small.exhaust()
        self.store.delete([versions[-1].id])
        self.assertEqual(4, self.store.prune().packs_removed)

    def test_a_store_beside_what_takes_all_space_stays_deletable(self):
        """A reserve that is given up whole is gone after the first time."""
        versions = [self.save()]
        for place in range(4):
            self.change(place * 100, 300)
            versions.append(self.save())
        content = self.disk.read_bytes()
        for version in versions[:-1]:
            self.small.exhaust()
            self.store.delete([version.id])
            self.small.exhaust()
            self.store.prune(rule=pruning.PruneRule(0))
        self.assert_restored(versions[-1], content)
        self.assertTrue(self.store.verify().intact)

    def test_a_save_leaves_space_for_deleting(self):
        self.save()
        self.change(0, 1000)
        # What is saved fits, but then nothing could be deleted.
        os.truncate(self.small.path / 'store' / '.reserve', 0)
        self.small.fill(5 << 20)
        self.assertRaises(exceptions.NoSpace, self.save)
        self.assertEqual(1, len(self.store.versions()))


@filesystems.NEEDED
class TestFullXfs(FullFilesystem, base.TestCase):

    kind = filesystems.Xfs


@filesystems.NEEDED
class TestFullExt4(FullFilesystem, base.TestCase):

    kind = filesystems.Ext4
