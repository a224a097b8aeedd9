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
"""Disks of any size: what a guest read is there after each way.

Sizes are those from 0 to two clusters of qcow2, also those that are no
multiples of a sector, a block or a cluster. QEMU reads what is restored.
"""

import pathlib
import subprocess
import unittest

import hypothesis
from hypothesis import strategies as st

from diffcache_openstack.blocks import image_tools
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions import version_store
from tests import base
from tests.unit.versions import fixture

_CLUSTER, _SECTOR = 1 << 16, 512
_EDGES = (0, _SECTOR, 4096, 1 << 16, (1 << 16) + 4096, 2 << 16)
SIZES = st.one_of(
    st.integers(0, 2 * _CLUSTER),
    st.builds(lambda edge, by: min(max(0, edge + by), 2 * _CLUSTER),
              st.sampled_from(_EDGES), st.integers(-513, 513)))


def _padded(content: bytes) -> bytes:
    """Return what a guest reads: whole sectors."""
    return content + bytes(-len(content) % _SECTOR)


def _as_qemu_reads(path: pathlib.Path, disk_format: str) -> bytes:
    raw = path.with_name(f'{path.name}.raw')
    subprocess.run(['qemu-img', 'convert', '-f', disk_format, '-O', 'raw',
                    str(path), str(raw)], check=True)
    return raw.read_bytes()


@unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
class TestSizes(base.TestCase):

    def new(self, seed):
        """Begin an example in a directory of its own."""
        self._directory = None
        self.noise = fixture.random.Random(seed)
        self.store = version_store.VersionStore.open(
            file.FileStore(self.directory / 'store'))

    def content(self, size):
        """Return data with zeroes in between, and often at its end."""
        data = bytearray(self.noise.randbytes(size))
        for _ in range(self.noise.randrange(3)):
            start = self.noise.randrange(size + 1)
            end = self.noise.choice((size, self.noise.randrange(size + 1)))
            data[start:end] = bytes(max(0, end - start))
        return bytes(data[:size])

    def assert_restored(self, version, content, image=None):
        for disk_format in ('raw', 'qcow2'):
            output = self.directory / f'restored.{disk_format}'
            self.store.restore(version.id, output, disk_format, image)
            found = (output.read_bytes() if disk_format == 'raw'
                     else _as_qemu_reads(output, 'qcow2'))
            self.assertTrue(found == content if disk_format == 'raw'
                            else found == _padded(content), disk_format)
        subprocess.run(['qemu-img', 'check', '-q', str(output)], check=True)
        whole = self.write_file('whole', content)
        manifest = self.store.create_manifest(
            version.id, self.directory / 'manifest', image)
        self.assertEqual(image_tools.ImageTools().hash_file(whole),
                         manifest['content_id'])

    def assert_rolls_back(self, version, disk, content):
        for method in ('rollback', 'rebuild'):
            self.scribble(disk)
            self.store.roll_back_disks([(version.id, disk)], method)
            found = (disk.path.read_bytes() if disk.format == 'raw'
                     else _as_qemu_reads(disk.path, 'qcow2'))
            self.assertTrue(found == content, method)

    def scribble(self, disk):
        if disk.format == 'raw':
            disk.path.write_bytes(self.content(disk.path.stat().st_size))
            return
        fixture.qemu_io(disk.path, 'write -P 9 0 512')

    @hypothesis.settings(max_examples=10)
    @hypothesis.given(SIZES, st.integers(0, 99))
    def test_raw_disks(self, size, seed):
        self.new(seed)
        content = self.content(size)
        disk = version_store.Disk(self.write_file('disk', content), 'a',
                                  format='raw')
        [version] = self.store.save([disk])
        self.assert_restored(version, content)
        self.assert_rolls_back(version, disk, content)

    @hypothesis.settings(max_examples=10)
    @hypothesis.given(SIZES, SIZES, st.integers(0, 99))
    def test_disks_on_a_base_image(self, size, base_size, seed):
        self.new(seed)
        image = self.write_file('image', self.content(base_size))
        path = self.directory / 'disk.qcow2'
        # QEMU takes whole sectors.
        size = max(_SECTOR, size // _SECTOR * _SECTOR)
        fixture.make_qcow2(path, size, image)
        disk = version_store.Disk(path, 'a', image, format='qcow2',
                                  manifest=seed % 2 == 0)
        self.store.save([disk])
        fixture.qemu_io(path, f'write -P 5 {(size - 1) // 512 * 512} 512')
        [version] = self.store.save([disk])
        content = _as_qemu_reads(path, 'qcow2')
        self.assertEqual(size, len(content))
        self.assert_restored(version, content, image)
        self.assert_rolls_back(version, disk, content)

    def test_zeroes_in_the_last_cluster_of_a_base_image(self):
        """Regression: what was behind them was restored a cluster before.

        They hide what the base has, and share a cluster with what is
        behind its end: it is one with data, all of which are zeroes.
        """
        self.new(1)
        self.store = version_store.VersionStore(store_access.StoreAccess(
            file.FileStore(self.directory / 'small'), None, 512))
        image = self.write_file('image', self.noise.randbytes(26255))
        content = bytearray(12 << 20)
        content[:26255] = image.read_bytes()
        path = self.write_file('disk', bytes(content))
        disk = version_store.Disk(path, 'a', image, format='raw')
        self.store.save([disk])
        content[:26624] = bytes(26624)
        content[8 << 20:9 << 20] = self.noise.randbytes(1 << 20)
        path.write_bytes(content)
        [version] = self.store.save([disk])
        self.assert_restored(version, bytes(content), image)

    @hypothesis.settings(max_examples=10)
    @hypothesis.given(SIZES, SIZES, st.integers(0, 99))
    def test_raw_disks_on_a_base_image(self, size, base_size, seed):
        self.new(seed)
        image = self.write_file('image', self.content(base_size))
        content = bytearray(image.read_bytes()[:size])
        content += self.content(size - len(content))
        if size:
            content[self.noise.randrange(size)] ^= 1
        disk = version_store.Disk(
            self.write_file('disk', bytes(content)), 'a', image, format='raw')
        [version] = self.store.save([disk])
        self.assert_restored(version, bytes(content), image)
        self.assert_rolls_back(version, disk, bytes(content))


class TestPatches(base.TestCase):

    @hypothesis.settings(max_examples=40)
    @hypothesis.given(SIZES, SIZES, st.integers(0, 99))
    def test_patches_of_raw_images(self, size, base_size, seed):
        self._directory = None
        noise, tools = fixture.random.Random(seed), image_tools.ImageTools()
        one = noise.randbytes(base_size)
        other = bytearray(one[:size] + noise.randbytes(
            max(0, size - base_size)))
        if size:
            other[noise.randrange(size)] ^= 1
        image = self.write_file('base', one)
        target = self.write_file('target', bytes(other))
        patch, output = self.directory / 'patch', self.directory / 'output'
        tools.make_patch(image, target, patch, 3)
        tools.apply_patch(image, patch, output)
        self.assertEqual(fixture.digest(bytes(other)),
                         fixture.digest(output.read_bytes()))
