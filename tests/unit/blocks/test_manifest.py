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
"""Content ids and manifests."""

import random

from diffcache_openstack import _native
from diffcache_openstack.blocks import manifest
from diffcache_openstack.common import exceptions
from tests import base

# BLAKE3 of nothing, from the algorithm's own test vectors.
_EMPTY = 'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262'


class ManifestTest(base.TestCase):

    def setUp(self):
        super().setUp()
        content = random.Random(1).randbytes(200_000) + bytes(200_000)
        self.image = str(self.write_file('image', content))
        self.manifest = str(self.directory / 'manifest')

    def test_the_content_id_is_blake3(self):
        empty = str(self.write_file('empty', b''))
        self.assertEqual(_EMPTY, manifest.content_id(empty))

    def test_a_manifest_describes_and_verifies_its_image(self):
        made = manifest.create(self.image, self.manifest)
        self.assertEqual(made, manifest.read(self.manifest))
        self.assertEqual(manifest.content_id(self.image), made.content_id)
        self.assertEqual(400_000, made.size)
        self.assertEqual(7, made.leaves)
        self.assertEqual(3, made.zero_leaves)
        _native.manifest_verify(self.manifest, self.image)

    def test_a_changed_image_is_noticed(self):
        manifest.create(self.image, self.manifest)
        with open(self.image, 'r+b') as stream:
            stream.seek(100_000)
            stream.write(b'changed')
        self.assertRaises(_native.IntegrityError, _native.manifest_verify,
                          self.manifest, self.image)

    def test_a_damaged_manifest_is_noticed(self):
        manifest.create(self.image, self.manifest)
        with open(self.manifest, 'r+b') as stream:
            stream.truncate(100)
        self.assertRaises(exceptions.FormatError, manifest.read,
                          self.manifest)

    def test_missing_files_are_named(self):
        for call, arguments in (
                (manifest.content_id, ('/no/image',)),
                (manifest.guest_content_id, ('/no/image',)),
                (manifest.create, ('/no/image', self.manifest)),
                (manifest.read, ('/no/image',))):
            error = self.assertRaises(exceptions.NotFound, call, *arguments)
            self.assertIn('/no/image', str(error))
