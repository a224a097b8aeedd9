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
"""The codec ``rdiff``, against the program of that name."""

import json
import os
import pathlib
import random
import shutil
import subprocess

from diffcache_openstack.common import exceptions
from tests import base
from tests.unit.blocks import codec_conformance


class RdiffCodecTest(codec_conformance.CodecConformance, base.TestCase):
    codec_name = 'rdiff'

    def rdiff(self, *arguments: str) -> None:
        if shutil.which('rdiff') is None:
            self.skipTest('needs the program rdiff (package rdiff)')
        subprocess.run(['rdiff', *arguments], check=True)

    def read(self, name: str) -> bytes:
        return pathlib.Path(self.path(name)).read_bytes()

    def test_deltas_are_byte_for_byte_those_of_rdiff(self):
        self.make_patch()
        self.rdiff('signature', self.path('base'), self.path('signature'))
        self.rdiff('delta', self.path('signature'), self.path('target'),
                   self.path('delta'))
        self.assertEqual(self.read('delta'), self.read('patch'))

    def test_rdiff_applies_our_deltas(self):
        target = self.make_patch()
        self.rdiff('patch', self.path('base'), self.path('patch'),
                   self.path('output'))
        self.assertEqual(target, self.read('output'))

    def test_we_apply_deltas_of_rdiff(self):
        _, target = self.make_pair()
        for kind in (('-H', 'md4'), ('-b', '512'), ('-R', 'rollsum')):
            self.rdiff(*kind, 'signature', self.path('base'),
                       self.path('signature'))
            self.rdiff('delta', self.path('signature'), self.path('target'),
                       self.path('patch'))
            info = self.codec.apply(self.path('base'), self.path('patch'),
                                    self.path('output'))
            self.assertEqual(target, self.read('output'))
            self.assertIsNone(info.target_hash)
            self.assertFalse(info.details['verifiable'])
            for name in ('signature', 'patch'):
                os.unlink(self.path(name))

    def test_a_bare_delta_cannot_be_verified_and_says_so(self):
        self.make_patch()
        os.unlink(self.path('patch.json'))
        error = self.assertRaises(
            exceptions.InvalidInput, self.codec.verify, self.path('base'),
            self.path('patch'))
        self.assertIn('patch.json', str(error))

    def test_a_bare_delta_beyond_the_base_is_refused(self):
        self.make_patch()
        os.unlink(self.path('patch.json'))
        self.write_file('base', b'short')
        self.assert_apply_fails(exceptions.BaseMismatch)

    def test_hashes_of_another_delta_are_noticed(self):
        self.make_patch()
        sidecar = json.loads(self.read('patch.json'))
        sidecar['patch_hash'] = '0' * 64
        self.write_file('patch.json', json.dumps(sidecar).encode())
        self.assert_apply_fails(exceptions.IntegrityError)

    def test_damaged_hashes_are_noticed(self):
        self.make_patch()
        good = self.read('patch.json')
        for bad in (b'', b'{', b'[]', b'{}', b'\xff', b'[' * 100000,
                    good.replace(b'"', b"'"), good[:-20]):
            self.write_file('patch.json', bad)
            self.assert_apply_fails(exceptions.FormatError)

    def test_levels_are_refused(self):
        self.make_pair()
        self.assertRaises(
            exceptions.InvalidInput, self.codec.create, self.path('base'),
            self.path('target'), self.path('patch'), 3)

    def test_mutated_deltas_never_crash(self):
        self.make_patch()
        os.unlink(self.path('patch.json'))
        patch = self.read('patch')
        generator = random.Random(5)
        outcomes = set()
        for _ in range(150):
            mutated = bytearray(patch)
            for _ in range(generator.randrange(1, 4)):
                place = int(generator.random() ** 6 * len(mutated))
                mutated[place] = generator.randrange(256)
            self.write_file('patch', mutated)
            try:
                with codec_conformance.file_size_limit(1 << 20):
                    self.codec.apply(self.path('base'), self.path('patch'),
                                     self.path('output'))
                outcomes.add(None)
            except exceptions.DiffCacheError as exc:
                outcomes.add(type(exc))
        self.assertIn(exceptions.FormatError, outcomes)

    def test_the_output_is_sparse(self):
        self.write_file('base', b'x')
        self.write_file('target', b'x' * 65536 + bytes(4 << 20) + b'y')
        self.codec.create(self.path('base'), self.path('target'),
                          self.path('patch'))
        self.codec.apply(self.path('base'), self.path('patch'),
                         self.path('output'))
        self.assertEqual(self.read('target'), self.read('output'))
        blocks = os.stat(self.path('output')).st_blocks
        self.assertLess(blocks * 512, 1 << 20)
