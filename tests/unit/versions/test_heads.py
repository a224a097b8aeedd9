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
"""Heads of stores, as this and former formats have them."""

import hashlib
import json
import zlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import heads
from tests.unit.versions import fixture

_MAGIC = b'DCVHEAD1'


class TestFormats(fixture.VersionsTestCase):

    def fields(self):
        """A head of this release, as JSON has it."""
        body = self.repo.head().encode()[len(_MAGIC):-32]
        return json.loads(zlib.decompress(body))

    def decode(self, fields):
        body = _MAGIC + zlib.compress(json.dumps(fields).encode())
        return heads.Head.decode(body + hashlib.sha256(body).digest(), 'head')

    def test_a_head_of_the_first_format_is_read(self):
        version = self.save()
        fields = self.fields() | {'format': 1}
        for each in fields['versions']:
            for name in ('frozen_ms', 'quiesced', 'token'):
                del each[name]
        found = self.decode(fields).versions[version.id]
        self.assertEqual((version.root, 0.0, False, None), (
            found.root, found.frozen_ms, found.quiesced, found.token))

    def test_a_head_of_a_later_format_is_refused(self):
        self.save()
        self.assertRaises(exceptions.FormatError, self.decode,
                          self.fields() | {'format': 3})
