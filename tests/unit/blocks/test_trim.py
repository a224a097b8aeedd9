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
"""Trimmed images, of a real filesystem."""

import os
import pathlib
import shutil
import subprocess

from diffcache_openstack.blocks import trim
from diffcache_openstack.common import exceptions
from tests import base

_MIB = 1 << 20


class TrimTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.mke2fs = shutil.which('mke2fs', path='/sbin:/usr/sbin:/bin')
        if self.mke2fs is None:
            self.skipTest('needs the program mke2fs (package e2fsprogs)')
        content = self.directory / 'content'
        content.mkdir()
        (content / 'kept').write_bytes(b'kept' * 100_000)
        self.image = self.path('image')
        # Something else lies where the filesystem will be, and stays where
        # it leaves room.
        pathlib.Path(self.image).write_bytes(b'gone' * (2 * _MIB))
        subprocess.run(
            [self.mke2fs, '-q', '-F', '-t', 'ext4', '-E',
             'nodiscard,lazy_itable_init=0',
             '-d', str(content), self.image],
            check=True, stdout=subprocess.DEVNULL)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def read(self, name: str) -> bytes:
        return pathlib.Path(self.path(name)).read_bytes()

    def convert(self, source: str, name: str, *options: str) -> None:
        if shutil.which('qemu-img') is None:
            self.skipTest('needs the program qemu-img (package qemu-utils)')
        subprocess.run(['qemu-img', 'convert', *options, self.path(source),
                        self.path(name)], check=True)

    def test_stale_blocks_are_zero_and_the_others_as_they_were(self):
        before = self.read('image')
        done = trim.trim(self.image, self.path('output'))
        after = self.read('output')
        self.assertEqual(len(before), len(after))
        self.assertLess(after.count(b'gone' * 256),
                        before.count(b'gone' * 256) // 10)
        self.assertEqual(before.count(b'kept'), after.count(b'kept'))
        self.assertEqual('raw', done.output_format)
        self.assertGreater(done.data_before, done.data_after + 4 * _MIB)
        self.assertGreater(done.file_before, done.file_after)
        [found] = done.filesystems
        self.assertEqual('ext4', found['kind'])
        self.assertIsNone(found['reason'])
        self.assertEqual(before, self.read('image'))
        checked = subprocess.run(
            [os.path.join(os.path.dirname(self.mke2fs), 'e2fsck'), '-fn',
             self.path('output')], capture_output=True)
        self.assertEqual(0, checked.returncode, checked.stdout)

    def test_a_trimmed_image_needs_no_trimming(self):
        trim.trim(self.image, self.path('once'))
        done = trim.trim(self.path('once'), self.path('twice'))
        self.assertEqual(done.data_before, done.data_after)
        self.assertEqual(self.read('once'), self.read('twice'))

    def test_qcow2_images_stay_qcow2(self):
        self.convert('image', 'image.qcow2', '-c', '-O', 'qcow2')
        trim.trim(self.image, self.path('raw'))
        done = trim.trim(self.path('image.qcow2'), self.path('output'))
        self.assertEqual('qcow2', done.output_format)
        self.convert('output', 'again', '-f', 'qcow2', '-O', 'raw')
        self.assertEqual(self.read('raw'), self.read('again'))
        self.assertEqual(
            {'content', 'image', 'image.qcow2', 'raw', 'output', 'again'},
            set(os.listdir(self.directory)))

    def test_the_format_of_the_output_can_be_chosen(self):
        self.convert('image', 'image.qcow2', '-O', 'qcow2')
        trim.trim(self.image, self.path('raw'))
        trim.trim(self.path('image.qcow2'), self.path('output'), trim.RAW)
        self.assertEqual(self.read('raw'), self.read('output'))

    def test_an_image_without_filesystem_is_refused(self):
        self.write_file('noise', os.urandom(_MIB))
        self.assertRaises(exceptions.FormatError, trim.trim,
                          self.path('noise'), self.path('output'))
        self.assertFalse(os.path.exists(self.path('output')))

    def test_a_missing_image_is_told(self):
        self.assertRaises(exceptions.NotFound, trim.trim,
                          self.path('missing'), self.path('output'))

    def test_an_output_that_cannot_be_written_is_told(self):
        self.assertRaises(exceptions.NotFound, trim.trim, self.image,
                          self.path('missing/output'))
