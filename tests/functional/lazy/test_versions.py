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
"""``diffcache lazy serve`` of versions, with a real mount."""

import errno
import os
import pathlib
import random
import signal
import subprocess

from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions import version_store
from tests.functional.lazy import serving

BLOCK = 4096


class LazyVersionsTest(serving.ServingTest):

    def setUp(self):
        super().setUp()
        self.numbers = random.Random(1)
        self.base = self.folder / 'base'
        self.base.write_bytes(self.numbers.randbytes(900 * BLOCK)
                              + bytes(500 * BLOCK))
        self.disk = self.folder / 'disk'
        self.disk.write_bytes(self.base.read_bytes())
        self.key_file = self.folder / 'key'
        self.key_file.touch(0o600)
        self.key_file.write_text('4a' * 32)
        self.store = self._open(bytes([0x4a]) * 32)

    def _open(self, key):
        return version_store.VersionStore.open(
            file.FileStore(self.folder / 'store'), key)

    def _change(self, *places):
        with open(self.disk, 'r+b') as stream:
            for place in places:
                stream.seek(place * BLOCK)
                stream.write(self.numbers.randbytes(BLOCK))

    def _save(self, *places):
        self._change(*places)
        [version] = self.store.save([version_store.Disk(
            self.disk, 's', self.base, format='raw')])
        return version

    def _keep(self, version):
        manifest = self.folder / 'manifest'
        self.store.create_manifest(version.id, manifest, self.base)
        self.store.keep_manifest(version.id, manifest)

    def _options(self):
        return ('--store', f'file://{self.folder}/store', '--key-file',
                self.key_file)

    def _serve(self, version, *words):
        return self.start(version.id, *self._options(), '--base', self.base,
                          *words)

    def _refused(self, version, *words):
        """Return what is printed when a version cannot be served."""
        done = subprocess.run(
            self.words(version.id, *self._options(), *words),
            capture_output=True, text=True)
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        return done.stderr

    def test_a_version_on_a_base_image_is_served_as_it_was(self):
        self._keep(self._save(3, 700, 1000))
        version = self._save(4, 1001)
        expected = self.disk.read_bytes()
        self._save(5)
        process = self._serve(version)
        self.assertEqual(expected[BLOCK:5000 + BLOCK],
                         self._read_once(BLOCK, 5000))
        self.assertLess(self._read_status()['present'],
                        self._read_status()['data_chunks'])
        self.assertEqual(expected, pathlib.Path(self.path).read_bytes())
        status = self._read_status()
        self.assertTrue(status['complete'])
        self.assertEqual((0, 0), (status['errors'], status['corrupt']))
        [source] = status['sources']
        self.assertEqual((f'version {version.id}', 0),
                         (source['url'], source['failures']))
        self.assertEqual(0, self._stop(process))

    def test_it_is_served_to_the_end_though_it_is_pruned(self):
        version = self._save(*range(0, 900, 7))
        self._keep(version)
        expected = self.disk.read_bytes()
        self._serve(version)
        self._read_once(0, BLOCK)
        self.store.delete([version.id])
        self.store.prune()
        # The next worker opens nothing that is not open already.
        os.kill(self.ready['worker_pid'], signal.SIGKILL)
        self.assertEqual(expected, pathlib.Path(self.path).read_bytes())
        self.assertEqual(1, self._read_status()['worker_restarts'])

    def test_packs_of_a_former_key_are_read(self):
        version = self._save(*range(50))
        self._keep(version)
        expected = self.disk.read_bytes()
        self.store = self.store.rotate_key(bytes([0x5b]) * 32)
        self.key_file.write_text('5b' * 32)
        self._serve(version, '--hydrate', 'idle')
        self.assertEqual(expected, pathlib.Path(self.path).read_bytes())

    def test_no_byte_of_a_damaged_pack_is_served(self):
        version = self._save(*range(100))
        self._keep(version)
        expected = self.disk.read_bytes()
        [pack] = (self.folder / 'store').glob('pack-*')
        data = bytearray(pack.read_bytes())
        data[len(data) // 2] ^= 1
        pack.write_bytes(data)
        self._serve(version, '--wait', '0', '--no-prefetch')
        error = self.assertRaises(OSError, self._read_once, 0, 100 * BLOCK)
        self.assertEqual(errno.EIO, error.errno)
        self.assertLess(0, self._read_status()['corrupt'])
        # What is the base's is not concerned.
        self.assertEqual(expected[800 * BLOCK:801 * BLOCK],
                         self._read_once(800 * BLOCK, BLOCK))

    def test_what_is_missing_is_named_with_the_next_step(self):
        version = self._save(1)
        self.assertIn('diffcache version manifest --keep',
                      self._refused(version, '--base', self.base))
        self._keep(version)
        self.assertIn('name it with --base', self._refused(version))
        self.assertIn('is not the base image',
                      self._refused(version, '--base', self.disk))
        self.key_file.write_text('00' * 32)
        self.assertIn('The key does not match',
                      self._refused(version, '--base', self.base))
