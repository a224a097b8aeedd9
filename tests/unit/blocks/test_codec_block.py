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
