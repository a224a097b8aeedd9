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
"""The native block codec, seen from Python."""

import os
import pathlib
import random
import tempfile

from oslotest import base

from diffcache_openstack import _native

# What b3sum prints for a file without bytes.
EMPTY = 'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262'
LEAF = 65536


class NativeBlocksTest(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.dir = pathlib.Path(directory.name)
        random.seed(7)
        self.base_bytes = random.randbytes(10 * LEAF) + bytes(4 * LEAF)
        changed = bytearray(self.base_bytes + random.randbytes(5000))
        changed[3 * LEAF:3 * LEAF + 100] = random.randbytes(100)
        changed[LEAF:2 * LEAF] = self.base_bytes[5 * LEAF:6 * LEAF]
        self.target_bytes = bytes(changed)
        self.base = self._write('base', self.base_bytes)
        self.target = self._write('target', self.target_bytes)
        self.patch = str(self.dir / 'patch')

    def _write(self, name: str, content: bytes) -> str:
        path = self.dir / name
        path.write_bytes(content)
        return str(path)

    def _names(self) -> list[str]:
        return sorted(os.listdir(self.dir))

    def test_the_hash_of_a_file_is_that_of_b3sum(self):
        self.assertEqual(EMPTY, _native.hash_file(self._write('empty', b'')))

    def test_a_missing_file_is_an_os_error_with_its_name(self):
        error = self.assertRaises(FileNotFoundError, _native.hash_file,
                                  str(self.dir / 'nothing'))
        self.assertIn('nothing', str(error))

    def test_a_manifest_tells_sizes_and_finds_changes(self):
        path = str(self.dir / 'manifest')
        made = _native.manifest_create(self.base, path)
        self.assertEqual(made, _native.manifest_info(path))
        self.assertEqual(14, made['leaves'])
        self.assertEqual(4, made['zero_leaves'])
        self.assertEqual(10 * LEAF, made['data_size'])
        self.assertEqual(_native.hash_file(self.base), made['content_id'])
        _native.manifest_verify(path, self.base)
        self.assertRaises(_native.IntegrityError, _native.manifest_verify,
                          path, self.target)

    def test_a_patch_gives_the_target(self):
        made = _native.patch_create(self.base, self.target, self.patch)
        shown = _native.patch_info(self.patch)
        self.assertEqual('block', shown['codec'])
        self.assertEqual(_native.hash_file(self.base), shown['base_hash'])
        self.assertEqual(_native.hash_file(self.target),
                         shown['target_hash'])
        self.assertEqual(len(self.target_bytes), shown['target_size'])
        self.assertEqual(os.path.getsize(self.patch), shown['patch_size'])
        self.assertEqual(made['blocks_copied'], shown['blocks_copied'])
        # The changed block and the two that were appended.
        self.assertEqual(3, shown['blocks_inserted'])
        output = self.dir / 'output'
        applied = _native.patch_apply(self.base, self.patch, str(output))
        self.assertEqual(self.target_bytes, output.read_bytes())
        self.assertEqual(shown['target_hash'], applied['content_id'])
        _native.patch_verify(self.base, self.patch)

    def test_the_targets_manifest_follows_from_the_bases(self):
        _native.patch_create(self.base, self.target, self.patch)
        of_base, of_target = (str(self.dir / n) for n in ('mb', 'mt'))
        _native.manifest_create(self.base, of_base)
        _native.patch_manifest(of_base, self.patch, of_target)
        _native.manifest_verify(of_target, self.target)

    def test_a_view_reads_any_range(self):
        _native.patch_create(self.base, self.target, self.patch)
        manifest = str(self.dir / 'manifest')
        _native.manifest_create(self.target, manifest)
        size = len(self.target_bytes)
        for known in (None, manifest):
            view = _native.PatchView(self.base, self.patch, known)
            self.assertEqual(size, view.size)
            for offset, length in ((0, size), (LEAF - 3, 7), (size - 5, 99),
                                   (size, 1), (3 * LEAF + 50, LEAF)):
                self.assertEqual(self.target_bytes[offset:offset + length],
                                 view.read(offset, length))

    def test_another_base_is_refused_and_nothing_is_left(self):
        _native.patch_create(self.base, self.target, self.patch)
        other = self._write('other', b'x' + self.base_bytes[1:])
        before = self._names()
        self.assertRaises(_native.BaseMismatch, _native.patch_apply,
                          other, self.patch, str(self.dir / 'output'))
        self.assertEqual(before, self._names())

    def test_a_damaged_or_cut_patch_is_refused(self):
        _native.patch_create(self.base, self.target, self.patch)
        content = pathlib.Path(self.patch).read_bytes()
        middle = len(content) // 2
        flipped = (content[:middle] + bytes([content[middle] ^ 1])
                   + content[middle + 1:])
        for bad in (flipped, content[:-1], content[:100]):
            path = self._write('bad', bad)
            self.assertRaises(_native.IntegrityError, _native.patch_apply,
                              self.base, path, str(self.dir / 'output'))
        self.assertNotIn('output', self._names())

    def test_what_is_no_patch_is_a_format_error(self):
        path = self._write('text', b'no patch ' * 100)
        self.assertRaises(_native.FormatError, _native.patch_info, path)

    def test_progress_ends_with_all_bytes(self):
        seen = []
        _native.patch_create(self.base, self.target, self.patch)
        _native.patch_apply(self.base, self.patch, str(self.dir / 'output'),
                            lambda done, total: seen.append((done, total)))
        size = len(self.target_bytes)
        self.assertEqual((size, size), seen[-1])

    def test_an_exception_of_progress_stops_the_job(self):
        def stop(done, total):
            raise KeyError('stop')
        _native.patch_create(self.base, self.target, self.patch)
        before = self._names()
        self.assertRaises(KeyError, _native.patch_verify, self.base,
                          self.patch, stop)
        self.assertEqual(before, self._names())

    def test_levels_are_checked(self):
        self.assertRaises(ValueError, _native.patch_create, self.base,
                          self.target, self.patch, 0)
