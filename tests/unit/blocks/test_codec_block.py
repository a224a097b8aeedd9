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
"""The codec ``block``."""

import os

from diffcache_openstack.blocks.codecs import block
from diffcache_openstack.common import exceptions
from tests import base
from tests.unit.blocks import codec_conformance


class BlockCodecTest(codec_conformance.CodecConformance, base.TestCase):
    codec_name = 'block'

    def test_levels_out_of_range_are_refused(self):
        self.make_pair()
        for level in (0, 20, -1):
            self.assertRaises(
                exceptions.InvalidInput, self.codec.create,
                self.path('base'), self.path('target'), self.path('patch'),
                level)

    def test_a_base_becomes_the_target_in_place(self):
        self.make_pair()
        target = (self.directory / 'target').read_bytes()
        made = self.codec.create(self.path('base'), self.path('target'),
                                 self.path('patch'))
        before = os.stat(self.path('base')).st_ino
        info = self.codec.apply_in_place(self.path('base'),
                                         self.path('patch'))
        self.assertEqual(made.target_hash, info.target_hash)
        self.assertEqual(target, (self.directory / 'base').read_bytes())
        self.assertEqual(before, os.stat(self.path('base')).st_ino)
        self.assertFalse(os.path.exists(block.journal_of(self.path('base'))))

    def test_another_base_is_left_alone_in_place(self):
        self.make_pair()
        self.codec.create(self.path('base'), self.path('target'),
                          self.path('patch'))
        other = bytes(len((self.directory / 'base').read_bytes()))
        self.write_file('base', other)
        self.assertRaises(exceptions.BaseMismatch, self.codec.apply_in_place,
                          self.path('base'), self.path('patch'))
        self.assertEqual(other, (self.directory / 'base').read_bytes())

    def test_only_files_are_changed_in_place(self):
        self.make_pair()
        self.codec.create(self.path('base'), self.path('target'),
                          self.path('patch'))
        self.assertRaises(exceptions.InvalidInput, self.codec.apply_in_place,
                          '/dev/null', self.path('patch'))
