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
"""Patches between agents, and recipes."""

import random
import shutil
import subprocess

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


class RecipesTest(base.TestCase):
    """Files that are read through their recipes, as QEMU wrote them."""

    FORMS = ('-c',), ('-c', '-W'), ('-c', '-o', 'cluster_size=2M'), (
        '-c', '-o', 'compression_type=zstd'), ()

    def setUp(self):
        super().setUp()
        if shutil.which('qemu-img') is None:
            self.skipTest('needs the program qemu-img (package qemu-utils)')
        self.tools = image_tools.ImageTools()
        chance = random.Random(5)
        words = [chance.randbytes(40) for _ in range(400)]
        self.data = bytes(3 << 20) + b''.join(
            chance.choices(words, k=180_000)) + chance.randbytes(2 << 20)
        self.content = self.write_file('content', self.data)
        self.recipe = self.directory / 'recipe'

    def pack(self, form):
        packed = self.directory / 'packed'
        subprocess.run(['qemu-img', 'convert', '-O', 'qcow2', *form,
                        self.content, packed], check=True)
        self.tools.make_recipe(self.content, packed, self.recipe)
        return packed.read_bytes()

    def test_any_part_is_read_without_the_rest(self):
        chance = random.Random(6)
        for form in self.FORMS:
            data = self.pack(form)
            opened = self.tools.open_recipe(self.recipe, self.content)
            self.assertEqual(len(data), opened.size)
            for _ in range(5):
                at = chance.randrange(len(data))
                self.assertEqual(data[at:at + 99_999],
                                 opened.read(at, 99_999), form)
            self.assertEqual(data, opened.read(0, opened.size + 1), form)

    def test_through_base_and_patch(self):
        data = self.pack(('-c',))
        original = self.write_file('base', self.data[:9 << 20])
        patch = self.directory / 'patch'
        self.tools.make_patch(original, self.content, patch, 3)
        opened = self.tools.open_recipe(self.recipe, original, patch)
        self.assertEqual(data, opened.read(0, opened.size))

    def test_other_content_gives_no_wrong_byte(self):
        data = self.pack(('-c',))
        at = len(self.data) - 5
        changed = self.write_file('changed', self.data[:at] + b'x'
                                  + self.data[at + 1:])
        opened = self.tools.open_recipe(self.recipe, changed)
        self.assertEqual(data[:1 << 20], opened.read(0, 1 << 20))
        self.assertRaises(exceptions.DiffCacheError, opened.read, 0,
                          opened.size)
