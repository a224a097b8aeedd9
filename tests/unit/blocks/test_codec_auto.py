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
from unittest import mock
import zlib

from diffcache_openstack.blocks.codecs import auto
from diffcache_openstack.blocks.codecs import librsync
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
        fresh = b''.join(words.choices(vocabulary, k=1500))[:8192]
        self.write_file('target', content[:400_000] + fresh
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

    def test_a_patch_that_is_next_to_nothing_has_no_image_read_again(self):
        for name in ('sparse', 'same'):
            with open(self.path(name), 'wb') as image:
                image.truncate(256 << 20)
        choice = self.create('sparse', 'same')
        self.assertEqual('block', choice.info.codec)
        self.assertIn('rdiff not tried: the smallest patch has',
                      choice.reason)

    def test_raw_images(self):
        choice = self.create('base', 'target')
        self.assertEqual('block', choice.info.codec)
        self.assertIn('block is the smallest of those tried', choice.reason)
        self.assertEqual(
            [('block', choice.info.patch_size), ('qcow2', None),
             ('rdiff', None)],
            [(attempt.codec, attempt.size) for attempt in choice.attempts])
        self.assertIn('qcow2 not tried: neither file is a qcow2 image',
                      choice.reason)

    def test_rdiff_is_given_up_once_it_is_too_large(self):
        noise = random.Random(3)
        content = noise.randbytes(400_000)
        self.write_file('base', content)
        # Pieces that the base has, but shorter than librsync's blocks.
        starts = (noise.randrange(399_000) for _ in range(500))
        self.write_file('target', b''.join(
            content[start:start + 400] for start in starts))
        choice = self.create('base', 'target')
        self.assertEqual('block', choice.info.codec)
        limit = int(re.search(r'rdiff given up at (\d+) bytes',
                              choice.reason).group(1))
        self.assertLess(1.02 * (limit - 1), choice.info.patch_size)
        self.assertLessEqual(choice.info.patch_size, 1.02 * limit)

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

    def write_moved_part(self) -> None:
        """Write images of which a part moved, by a number of bytes.

        Nearly all their bytes are zero: for block little says where it was.
        """
        chance = random.Random(2)
        content = bytearray(4 << 20)
        for place in chance.sample(range(len(content)), len(content) // 20):
            content[place] = chance.randrange(1, 256)
        start, end = 1 << 20, 3 << 20
        self.write_file('base', content)
        self.write_file('target', content[:start] + chance.randbytes(1000)
                        + content[start:end - 1000] + content[end:])

    def test_rdiff_comes_with_its_hashes(self):
        self.write_moved_part()
        choice = self.create('base', 'target')
        self.assertEqual('rdiff', choice.info.codec)
        self.assertTrue(choice.info.details['verifiable'])

    def test_a_moved_part_goes_to_rdiff(self):
        self.write_moved_part()
        choice = self.create('base', 'target')
        self.assertEqual('rdiff', choice.info.codec)
        block = int(re.search(r'block (\d+) bytes', choice.reason).group(1))
        self.assertGreater(block, 1.5 * choice.info.patch_size)

    def test_block_finds_what_is_shifted_by_some_bytes(self):
        content = random.Random(5).randbytes(2 << 20)
        self.write_file('base', content)
        self.write_file('target', content[:1000] + b'odd' + content[1000:])
        choice = self.create('base', 'target')
        block = int(re.search(r'block (\d+) bytes', choice.reason).group(1))
        self.assertLess(block, len(content) / 500)

    def assert_smallest(self, base: bytes, target: bytes) -> auto.Choice:
        """What auto chose is at most 1.02 times any codec's patch."""
        self.write_file('base', base)
        self.write_file('target', target)
        choice = self.create('base', 'target')
        for name in ('block', 'rdiff'):
            single = registry.get(name).create(
                self.path('base'), self.path('target'), self.path(name))
            self.assertLessEqual(choice.info.patch_size,
                                 1.02 * single.patch_size, choice.reason)
        return choice

    def test_tiny_images(self):
        noise = random.Random(7).randbytes(9000)
        for old, new in (
                (b'', b''), (b'', b'a'), (b'a', b''), (b'a', b'b'),
                (noise[:100], noise[:100]), (noise, noise),
                (noise, noise[:8000]), (noise, noise[:4500] + noise[4499:]),
                (noise[:300], noise[:200]), (noise[:4096], noise),
                (bytes(9000), bytes(5000))):
            self.assert_smallest(old, new)

    def test_few_changes_in_a_large_image(self):
        content = bytearray(random.Random(8).randbytes(8 << 20))
        base = bytes(content)
        # Of 32 blocks little changed: rdiff sends less of them.
        for block in range(0, 2048, 64):
            content[4096 * block + 100] ^= 1
        choice = self.assert_smallest(base, bytes(content))
        self.assertEqual('rdiff', choice.attempts[-1].codec)

    def test_images_shifted_by_a_sector(self):
        noise = random.Random(9)
        words = [noise.randbytes(noise.randrange(2, 12)) for _ in range(300)]
        text = b''.join(noise.choices(words, k=300_000))
        for content in (noise.randbytes(2 << 20), text):
            for shift in (1, 512, 4096):
                self.assert_smallest(content, noise.randbytes(shift)
                                     + content)
                self.assert_smallest(content, content[shift:])

    def test_bytes_inserted_between_matches(self):
        words = random.Random(10)
        vocabulary = [words.randbytes(6) for _ in range(3)]
        content = b''.join(words.choices(vocabulary, k=350_000))
        # One byte in front of each of librsync's blocks: nearly all windows
        # of a sample differ, and rdiff's literals are few.
        block = 1408
        target = b''.join(
            words.randbytes(1) + content[start:start + block]
            for start in range(0, len(content), block))
        self.assert_smallest(content, target)

    def test_compressed_files(self):
        noise = random.Random(11)
        words = [noise.randbytes(noise.randrange(2, 12)) for _ in range(300)]
        parts = [b''.join(noise.choices(words, k=20_000)) for _ in range(12)]
        edited = [*parts[:5], parts[5][:-9], *parts[6:]]
        self.assert_smallest(*(
            b''.join(zlib.compress(part) for part in content)
            for content in (parts, edited)))

    def test_rdiff_may_be_missing(self):
        self.write_moved_part()
        with mock.patch.object(
                librsync, '_library', side_effect=exceptions.PermanentError(
                    'The rdiff codec needs librsync.so.2')):
            choice = auto.create(self.path('base'), self.path('target'),
                                 self.path('patch'))
        self.assertEqual('block', choice.info.codec)
        self.assertIn('rdiff not possible: The rdiff codec needs librsync',
                      choice.reason)

    def test_a_choice_among_some_codecs(self):
        noise = random.Random(2).randbytes(200_000)
        self.write_file('base', noise)
        self.write_file('target', b'odd' + noise)
        choice = auto.create(self.path('base'), self.path('target'),
                             self.path('patch'), codecs=['block'])
        self.assertEqual(['block'],
                         [attempt.codec for attempt in choice.attempts])

    def test_rdiff_is_not_tried_where_literals_alone_are_larger(self):
        words = random.Random(6)
        vocabulary = [words.randbytes(6) for _ in range(300)]
        self.write_file('target', b''.join(
            words.choices(vocabulary, k=500_000)))
        choice = self.create('base', 'target')
        self.assertEqual('block', choice.info.codec)
        literals = int(re.search(
            r'rdiff not tried: by a sample, .* of what changed is nowhere '
            r'in the base, and its delta has at least (\d+) bytes',
            choice.reason).group(1))
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
