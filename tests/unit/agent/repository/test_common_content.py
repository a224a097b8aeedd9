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
"""What images of a repository have in common, by their blocks."""

import random

import fixtures

from diffcache_openstack.agent.data_plane import inspector
from diffcache_openstack.agent.repository import common_content
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.blocks import file_map
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.prefetch import carry
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.sites import views
from tests import base
from tests.unit.blocks import test_file_map

BLOCK = 4096
CHUNK = profiles.CHUNK


class CommonContentTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.tools = image_tools.ImageTools()
        self.held = holdings.Holdings(
            self.directory / 'objects', None, inspector.NativeInspector(),
            lambda kind, object_id: 0)
        self.content = common_content.CommonContent(self.held, self.tools)
        self.old = random.Random(1).randbytes(4 * CHUNK) + bytes(CHUNK)

    def add(self, content):
        path = self.write_file('image', content)
        content_id = self.tools.hash_file(path)
        key = views.Key(views.IMAGES, content_id)
        path.rename(self.held.path(key))
        self.held.added(key)
        return content_id

    def test_what_moved_is_found(self):
        old = self.add(self.old)
        new = self.add(random.Random(2).randbytes(10 * BLOCK) + self.old)
        (sizes, common), _files = self.content.find(old, new, [1, 2, 4])
        # The last chunk is all zeros.
        self.assertEqual({1: 64, 2: 64}, sizes)
        self.assertEqual([carry.Common(1, 1, 54), carry.Common(2, 1, 10),
                          carry.Common(2, 2, 54), carry.Common(3, 2, 10)],
                         common)
        self.assertEqual(
            {1: (2, 10), 2: (3, 30)},
            carry.carry({1: (2, 10), 2: (3, 30)}, sizes, common))

    def test_files_are_compared_where_blocks_find_too_little(self):
        before, after = (self.add(self.image(name, seed).read_bytes())
                         for name, seed in (('before', 3), ('after', 4)))
        path = self.held.path(views.Key(views.IMAGES, before))
        found = file_map.read(str(path))
        number = next(number for number, entry in enumerate(found.entries)
                      if entry.path == '/usr/bin/program')
        chunks = sorted({extent.start // CHUNK for extent in found.extents
                         if extent.entry == number})
        rows = {chunk: (2, 10) for chunk in chunks}
        ways = self.content.find(before, after, chunks)
        blocks, files = ways
        self.assertEqual({}, carry.carry(rows, *blocks))
        self.assertNotEqual({}, carry.carry(rows, *files))
        # The program is of the same size, and at the same place.
        self.assertLessEqual(set(chunks[1:-1]),
                             set(carry.carry_in_turn(rows, ways)))
        [way] = self.content.find(before, before, chunks)
        self.assertEqual(rows, carry.carry(rows, *way))

    def image(self, name, seed):
        found = test_file_map.make_image(self.directory, {
            'usr/bin/program': random.Random(seed).randbytes(8 * CHUNK),
            'etc/name': b'some name'}, name)
        if found is None:
            self.skipTest('needs the program mke2fs (package e2fsprogs)')
        return found

    def test_files_that_cannot_be_compared(self):
        old = self.add(self.old)
        new = self.add(bytes(8 * CHUNK) + b'x')

        def fail(path, _progress):
            raise exceptions.FormatError(f'{path} is damaged')

        with fixtures.MockPatchObject(file_map, 'read_content', fail), \
                self.assertLogs(common_content.LOG, 'WARNING') as logs:
            ways = self.content.find(old, new, [1])
        self.assertEqual([({1: 64}, [])], ways)
        self.assertEqual((1, 1), (len(logs.output),
                                  self.content.without_files))

    def test_an_agent_that_stops_while_files_are_read(self):
        old = self.add(self.old)
        new = self.add(bytes(8 * CHUNK) + b'x')

        def stop(_path, progress):
            self.content.stop()
            progress(0, 1)

        with fixtures.MockPatchObject(file_map, 'read_content', stop):
            self.assertRaises(exceptions.Cancelled, self.content.find, old,
                              new, [1])
        self.assertEqual(0, self.content.without_files)

    def test_images_that_are_gone(self):
        old = self.add(self.old)
        for pair in ((old, 'f' * 64), ('f' * 64, old)):
            self.assertRaises(exceptions.ObjectMissing, self.content.find,
                              *pair, [0])
        # While it was to be compared.
        self.held.path(views.Key(views.IMAGES, old)).unlink()
        self.assertRaises(exceptions.ObjectMissing, self.content.find, old,
                          old, [0])

    def test_it_is_given_up_when_the_agent_stops(self):
        old = self.add(self.old)
        self.content.stop()
        self.assertRaises(exceptions.Cancelled, self.content.find, old, old,
                          [0])
