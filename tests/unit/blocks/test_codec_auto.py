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
"""The choice of a codec by trying."""

import os
import random
import re
import shutil
import struct
import subprocess

from diffcache_openstack.blocks.codecs import auto
from diffcache_openstack.blocks.codecs import registry
from diffcache_openstack.common import exceptions
from tests import base


class AutoTest(base.TestCase):

    def setUp(self):
        super().setUp()
        words = random.Random(1)
        vocabulary = [words.randbytes(words.randrange(2, 12))
                      for _ in range(300)]
        content = b''.join(words.choice(vocabulary) for _ in range(200_000))
        content += bytes(-len(content) % 512)
        self.write_file('base', content)
        self.write_file('target', content[:400_000] + words.randbytes(8192)
                        + content[408_192:])

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def create(self, origin: str, target: str) -> auto.Choice:
        choice = auto.create(self.path(origin), self.path(target),
                             self.path('patch'))
        self.assertEqual(os.path.getsize(self.path('patch')),
                         choice.info.patch_size)
        self.assertEqual(choice.info,
                         registry.detect(self.path('patch')).info(
                             self.path('patch')))
        return choice

    def test_raw_images(self):
        choice = self.create('base', 'target')
        self.assertEqual('block', choice.info.codec)
        self.assertIn('block is the smallest of those tried', choice.reason)
        self.assertIn('qcow2 not tried: neither file is one', choice.reason)
        self.assertIn('rdiff not tried: the patch is too small',
                      choice.reason)

    def test_compressed_images(self):
        if shutil.which('qemu-img') is None:
            self.skipTest('needs the program qemu-img (package qemu-utils)')
        for name in ('base', 'target'):
            subprocess.run(
                ['qemu-img', 'convert', '-c', '-O', 'qcow2',
                 self.path(name), self.path(name + '.qcow2')], check=True)
        choice = self.create('base.qcow2', 'target.qcow2')
        self.assertEqual('qcow2', choice.info.codec)
        self.assertRegex(choice.reason, r'block \d+ bytes; qcow2 \d+ bytes')

    def test_refused_images_are_still_patched_as_bytes(self):
        header = struct.pack('>4sIQII', b'QFI\xfb', 3, 200, 11, 16)
        self.write_file('target', header + bytes(1000))
        choice = self.create('base', 'target')
        self.assertNotEqual('qcow2', choice.info.codec)
        self.assertIn('qcow2 not possible', choice.reason)
        self.assertIn('backing file', choice.reason)

    def test_rdiff_comes_with_its_hashes(self):
        noise = random.Random(2).randbytes(200_000)
        self.write_file('base', noise)
        self.write_file('target', b'odd' + noise)
        choice = self.create('base', 'target')
        self.assertEqual('rdiff', choice.info.codec)
        self.assertTrue(choice.info.details['verifiable'])

    def test_a_shifted_image_goes_to_rdiff(self):
        # Compressed, what block inserts is below a quarter of the target.
        words = random.Random(5)
        vocabulary = [words.randbytes(40) for _ in range(200)]
        content = b''.join(words.choices(vocabulary, k=80_000))
        self.write_file('base', content)
        self.write_file('target', content[:1000] + b'odd' + content[1000:])
        choice = self.create('base', 'target')
        self.assertEqual('rdiff', choice.info.codec)
        block = int(re.search(r'block (\d+) bytes', choice.reason).group(1))
        self.assertLess(block, len(content) / 4)
        self.assertGreater(block, 100 * choice.info.patch_size)

    def test_rdiff_is_not_tried_where_literals_alone_are_larger(self):
        words = random.Random(6)
        vocabulary = [words.randbytes(6) for _ in range(300)]
        self.write_file('target', b''.join(
            words.choices(vocabulary, k=500_000)))
        choice = self.create('base', 'target')
        self.assertEqual('block', choice.info.codec)
        literals = int(re.search(
            r'rdiff not tried: by a sample, .* of the target is nowhere in '
            r'the base, at least (\d+) bytes', choice.reason).group(1))
        self.assertGreater(literals, choice.info.patch_size)
        forced = registry.get('rdiff').create(
            self.path('base'), self.path('target'), self.path('forced'))
        self.assertGreaterEqual(forced.patch_size, literals)

    def test_only_the_patch_is_left(self):
        before = set(os.listdir(self.directory))
        self.create('base', 'target')
        self.assertEqual(before | {'patch'}, set(os.listdir(self.directory)))

    def test_errors_leave_nothing(self):
        before = set(os.listdir(self.directory))
        self.assertRaises(exceptions.NotFound, auto.create,
                          self.path('missing'), self.path('target'),
                          self.path('patch'))
        self.assertRaises(exceptions.InvalidInput, auto.create,
                          self.path('base'), self.path('target'),
                          self.path('patch'), 99)
        self.assertRaises(exceptions.NotFound, auto.create,
                          self.path('base'), self.path('target'),
                          self.path('no/patch'))
        self.assertEqual(before, set(os.listdir(self.directory)))


class RegistryTest(base.TestCase):

    def test_the_codecs_are_installed(self):
        self.assertLessEqual({'block', 'qcow2', 'rdiff'},
                             set(registry.names()))
        for name in registry.names():
            self.assertEqual(name, registry.get(name).name)

    def test_an_unknown_codec_is_named(self):
        error = self.assertRaises(exceptions.InvalidInput, registry.get,
                                  'xdelta')
        self.assertIn('xdelta', str(error))
        self.assertIn('block', str(error))

    def test_files_that_are_no_patch_are_refused(self):
        for content in (b'', b'\0' * 100, b'QFI\xfb' + bytes(100)):
            path = str(self.write_file('file', content))
            self.assertRaises(exceptions.FormatError, registry.detect, path)
