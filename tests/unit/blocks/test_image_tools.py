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
"""Patches between agents."""

import random

from diffcache_openstack.blocks.codecs import registry
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.blocks import manifest
from diffcache_openstack.common import exceptions
from tests import base


class PatchesBetweenAgentsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.tools = image_tools.ImageTools()
        # The delta of rdiff is far smaller, but has no random access.
        self.content = random.Random(1).randbytes(300_000)
        self.base = self.write_file('base', self.content)
        self.target = self.write_file('target', b'odd' + self.content)
        self.patch = self.directory / 'patch'

    def test_a_patch_has_random_access(self):
        ends = self.tools.make_patch(self.base, self.target, self.patch, 3)
        self.assertTrue(registry.detect(str(self.patch)).random_access)
        self.assertEqual(ends, self.tools.patch_ends(self.patch))
        self.assertEqual(ends, tuple(
            self.tools.hash_file(image) for image in (self.base,
                                                      self.target)))
        made = self.directory / 'made'
        manifest.create(str(self.target), str(made))
        view = self.tools.open_view(self.base, self.patch, made)
        self.assertEqual(self.content[97:1097], view.read(100, 1000))
        self.assertEqual({self.base, self.target, self.patch, made},
                         set(self.directory.iterdir()))

    def test_a_delta_without_random_access_is_refused(self):
        registry.get('rdiff').create(str(self.base), str(self.target),
                                     str(self.patch))
        output = self.directory / 'output'
        for call in (lambda: self.tools.patch_ends(self.patch),
                     lambda: self.tools.open_view(self.base, self.patch,
                                                  output),
                     lambda: self.tools.apply_patch(self.base, self.patch,
                                                    output)):
            error = self.assertRaises(exceptions.FormatError, call)
            self.assertIn('random access; between hosts, use one of block',
                          str(error))
        self.assertFalse(output.exists())
