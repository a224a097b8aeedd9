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
"""Reading versions at any place."""

import concurrent.futures
import os

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.restore import reading
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.upkeep import pruning
from tests.unit.versions import fixture

BLOCK = fixture.BLOCK


class TestReading(fixture.VersionsTestCase):

    def reader(self, version, base=None) -> reading.VersionReader:
        found = reading.VersionReader(self.access, version.id, base)
        self.addCleanup(found.close)
        return found

    def assert_reads(self, expected: bytes, reader) -> None:
        self.assertEqual(len(expected), reader.size)
        for offset, length in ((0, 1), (5, BLOCK), (BLOCK * 3 - 1, 70000),
                               (len(expected) - 10, 10), (0, 1 << 20)):
            self.assertEqual(expected[offset:offset + length],
                             reader.read(offset, length))

    def test_any_range(self):
        version = self.save()
        self.assert_reads(self.disk.read_bytes(), self.reader(version))

    def test_nothing_is_read_past_the_end(self):
        reader = self.reader(self.save())
        self.assertEqual(b'', reader.read(reader.size, 5))
        self.assertEqual(b'', reader.read(reader.size + 5, 5))
        self.assertEqual(3, len(reader.read(reader.size - 3, 100)))

    def test_blocks_of_a_base_image_that_is_gone_meanwhile(self):
        base = self.write_file('base', self.blocks_of(300))
        self.disk.write_bytes(base.read_bytes() + self.blocks_of(5))
        reader = self.reader(self.save(base=base), base)
        base.unlink()
        self.assert_reads(self.disk.read_bytes(), reader)

    def test_packs_that_were_rewritten_are_found_again(self):
        version = self.save()
        expected = self.disk.read_bytes()
        self.write_blocks(self.disk, *range(300))
        latest = self.save()
        reader = self.reader(latest)
        pruning.delete(self.access, [version.id])
        pruning.prune(self.access, rule=pruning.PruneRule(0.05))
        self.assertNotEqual(expected, self.disk.read_bytes())
        self.assert_reads(self.disk.read_bytes(), reader)

    def test_a_version_that_was_deleted_and_pruned_is_not_found(self):
        version = self.save()
        reader = self.reader(version)
        pruning.delete(self.access, [version.id])
        pruning.prune(self.access)
        self.assertRaises(exceptions.NotFound, reader.read, 0, BLOCK)

    def test_damage_is_reported_each_time(self):
        version = self.save()
        [pack] = self.access.head().packs.values()
        path = self.store.local_path(pack.blob)
        path.write_bytes(path.read_bytes()[:100])
        reader = self.reader(version)
        for _ in range(2):
            self.assertRaises(exceptions.IntegrityError, reader.read, 0,
                              BLOCK)

    def test_several_threads_read_a_remote_store(self):
        self.access = store_access.StoreAccess(
            fixture.RemoteStore(self.directory / 'remote'), b'k' * 32)
        version = self.save()
        expected, reader = self.disk.read_bytes(), self.reader(version)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            parts = pool.map(lambda place: reader.read(place, 65536),
                             range(0, len(expected), 65536))
            self.assertEqual(expected, b''.join(parts))

    def test_closing_leaves_nothing_open(self):
        base = self.write_file('base', self.blocks_of(300))
        version = self.save(base=base)
        before = sorted(os.listdir('/proc/self/fd'))
        reading.VersionReader(self.access, version.id, base).close()
        self.assertRaises(exceptions.NotFound, reading.VersionReader,
                          self.access, 'none-such', base)
        self.assertEqual(before, sorted(os.listdir('/proc/self/fd')))
