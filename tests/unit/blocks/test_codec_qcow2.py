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
"""The codec ``qcow2``, on images that QEMU writes."""

import os
import pathlib
import random
import shutil
import struct
import subprocess

from diffcache_openstack.blocks import image_tools
from diffcache_openstack.blocks import manifest
from diffcache_openstack.common import exceptions
from tests import base
from tests.unit.blocks import codec_conformance

_MIB = 1 << 20

_PLAIN = ()
_ZLIB = ('-c',)
_ZSTD = ('-c', '-o', 'compression_type=zstd')
_V2 = ('-c', '-o', 'compat=0.10')
_LARGE = ('-c', '-o', 'cluster_size=2M')
_LARGE_ZSTD = ('-c', '-o', 'cluster_size=2M,compression_type=zstd')
_SMALL = ('-c', '-o', 'cluster_size=512')
_UNORDERED = ('-c', '-W')
_FORMS = (_PLAIN, _ZLIB, _ZSTD, _V2, _LARGE, _LARGE_ZSTD, _SMALL, _UNORDERED)


class Qcow2CodecTest(codec_conformance.CodecConformance, base.TestCase):
    codec_name = 'qcow2'


class Qcow2ImagesTest(base.TestCase):
    """Between real qcow2 files."""

    def setUp(self):
        super().setUp()
        if shutil.which('qemu-img') is None:
            self.skipTest('needs the program qemu-img (package qemu-utils)')
        self.codec = codec_conformance.registry.get('qcow2')

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def read(self, name: str) -> bytes:
        return pathlib.Path(self.path(name)).read_bytes()

    def convert(self, source: str, name: str, form: tuple[str, ...]) -> None:
        subprocess.run(
            ['qemu-img', 'convert', '-O', 'qcow2', *form, self.path(source),
             self.path(name)], check=True)

    def make_contents(self) -> None:
        """Two raw images: the second is the first, edited in few places."""
        words = random.Random(1)
        vocabulary = [words.randbytes(words.randrange(2, 12))
                      for _ in range(500)]
        text = b''.join(words.choice(vocabulary) for _ in range(700000))
        content = bytearray(
            text[:3 * _MIB] + bytes(3 * _MIB)
            + words.randbytes(_MIB // 2) + text[3 * _MIB:4 * _MIB])
        self.write_file('a', content)
        content[70000:70900] = words.randbytes(900)
        content[3 * _MIB + 100:3 * _MIB + 200] = words.randbytes(100)
        content[-70000:-60000] = words.randbytes(10000)
        content += words.randbytes(300)
        content += bytes(-len(content) % 512)
        self.write_file('b', content)

    def assert_round_trip(self, source: str, goal: str) -> None:
        info = self.codec.create(self.path(source), self.path(goal),
                                 self.path('patch'))
        self.codec.verify(self.path(source), self.path('patch'))
        self.codec.apply(self.path(source), self.path('patch'),
                         self.path('output'))
        self.assertEqual(self.read(goal), self.read('output'))
        return info

    def test_every_form_comes_back_bit_for_bit(self):
        self.make_contents()
        for form in _FORMS:
            self.convert('a', 'a.qcow2', form)
            self.convert('b', 'b.qcow2', form)
            info = self.assert_round_trip('a.qcow2', 'b.qcow2')
            self.assertEqual(0, info.details['clusters_stored'], form)
            self.assertEqual(0, info.details['clusters_copied'], form)
            self.assertLess(info.details['form_size'], 8192, form)
            self.assertFalse(info.details['needs_base_file'])

    def test_a_patch_is_as_small_as_between_the_raw_images(self):
        self.make_contents()
        raw = codec_conformance.registry.get('block').create(
            self.path('a'), self.path('b'), self.path('raw.patch'))
        self.convert('a', 'a.qcow2', _ZLIB)
        self.convert('b', 'b.qcow2', _ZLIB)
        info = self.assert_round_trip('a.qcow2', 'b.qcow2')
        self.assertLessEqual(info.patch_size, 1.15 * raw.patch_size)

    def test_forms_may_differ(self):
        self.make_contents()
        self.convert('a', 'a.qcow2', _ZLIB)
        self.convert('b', 'b.qcow2', _LARGE_ZSTD)
        self.assert_round_trip('a.qcow2', 'b.qcow2')
        self.assert_round_trip('a', 'b.qcow2')
        self.assert_round_trip('b.qcow2', 'a')
        self.assert_round_trip('a.qcow2', 'b')

    def test_the_base_may_come_raw(self):
        self.make_contents()
        self.convert('a', 'a.qcow2', _ZLIB)
        self.convert('b', 'b.qcow2', _ZLIB)
        self.assert_round_trip('a.qcow2', 'b.qcow2')
        self.codec.apply(self.path('a'), self.path('patch'),
                         self.path('output'))
        self.assertEqual(self.read('b.qcow2'), self.read('output'))

    def test_internal_snapshots_are_kept(self):
        self.make_contents()
        self.convert('a', 'a.qcow2', _PLAIN)
        self.convert('b', 'b.qcow2', _PLAIN)
        for command in (['qemu-img', 'snapshot', '-c', 'before'],
                        ['qemu-io', '-c', 'write -P 7 100000 300000']):
            subprocess.run([*command, self.path('b.qcow2')], check=True,
                           stdout=subprocess.DEVNULL)
        self.assert_round_trip('a.qcow2', 'b.qcow2')

    def test_an_image_with_another_compressor_comes_back(self):
        self.make_contents()
        self.convert('a', 'a.qcow2', _ZLIB)
        self.recompress_first_cluster('a.qcow2', 'c.qcow2')
        info = self.assert_round_trip('a', 'c.qcow2')
        self.assertEqual(1, info.details['clusters_stored'])

    def recompress_first_cluster(self, source: str, name: str) -> None:
        """Store the first cluster's deflate stream in another way."""
        image = bytearray(self.read(source))
        l1 = struct.unpack_from('>Q', image, 40)[0]
        l2 = struct.unpack_from('>Q', image, l1)[0] & ((1 << 56) - 512)
        entry = struct.unpack_from('>Q', image, l2)[0]
        offset = entry & ((1 << 54) - 1)
        # A stored block of no bytes in front changes no content; the rest
        # of the stream is shifted over bytes that nothing else uses.
        sectors = (entry >> 54 & 0xff) + 1
        end = (offset // 512 + sectors) * 512
        stream = bytes(image[offset:end])
        moved = -(-len(image) // 65536) * 65536
        image += bytes(moved - len(image)) + b'\0\0\0\xff\xff' + stream
        sectors = (moved + len(stream) + 4) // 512 - moved // 512
        struct.pack_into('>Q', image, l2,
                         1 << 62 | sectors << 54 | moved)
        self.write_file(name, image)

    def test_content_ids_do_not_depend_on_the_form(self):
        self.make_contents()
        expected = manifest.content_id(self.path('a'))
        for form in _FORMS:
            self.convert('a', 'a.qcow2', form)
            self.assertEqual(
                expected, manifest.guest_content_id(self.path('a.qcow2')))
        self.assertNotEqual(expected,
                            manifest.content_id(self.path('a.qcow2')))

    def test_conversion_to_raw(self):
        self.make_contents()
        self.convert('a', 'a.qcow2', _ZSTD)
        content_id = image_tools.ImageTools().to_raw(
            self.path('a.qcow2'), self.path('raw'))
        self.assertEqual(self.read('a'), self.read('raw'))
        self.assertEqual(manifest.content_id(self.path('a')), content_id)

    def test_images_that_name_files_are_refused_unopened(self):
        self.make_contents()
        self.convert('a', 'a.qcow2', _ZLIB)
        trap = self.path('trap')
        os.mkfifo(trap)  # whoever opens it waits for ever
        for arguments in (
                ['-b', trap, '-F', 'raw', '-u', self.path('bad'), '1M'],
                ['-o', f'data_file={self.path("data")},data_file_raw=on',
                 self.path('bad'), '1M']):
            subprocess.run(['qemu-img', 'create', '-q', '-f', 'qcow2',
                            *arguments], check=True)
            self.assert_refused('bad')

    def test_encrypted_images_are_refused(self):
        self.make_contents()
        self.convert('a', 'a.qcow2', _ZLIB)
        for method in (1, 2):
            image = bytearray(self.read('a.qcow2'))
            struct.pack_into('>I', image, 32, method)
            self.write_file('bad', image)
            self.assert_refused('bad')

    def assert_refused(self, name: str) -> None:
        bad = self.path(name)
        for pair in ((bad, self.path('a')), (self.path('a'), bad)):
            self.assertRaises(
                exceptions.InvalidInput, self.codec.create, *pair,
                self.path('patch'))
        self.assertRaises(exceptions.InvalidInput,
                          manifest.guest_content_id, bad)
        self.assertFalse(os.path.exists(self.path('patch')))
