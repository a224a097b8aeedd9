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
"""The family of tiny images."""

from onemachine import errors
from onemachine import guests

from tests import base


class TestFamily(base.TestCase):

    def test_each_base_is_built_before(self):
        built = set()
        for recipe in guests.FAMILY:
            self.assertTrue(recipe.base is None or recipe.base in built)
            built.add(recipe.name)
        self.assertEqual(5, len(built))

    def test_disk_has_room_for_everything(self):
        sizes = guests.Sizes(system=10, web=20, database=30, update=40)
        self.assertGreaterEqual(sizes.disk, guests._BOOT_START
                                + guests._BOOT_SIZE + 100)
        self.assertEqual(0, sizes.disk % (1 << 20))


class TestName(base.TestCase):

    def test_takes_the_sector_alone(self):
        disk = self.write_file('disk', b'x' * (1 << 16))
        for name in ('guest-with-a-long-name', 'short'):
            guests.name_guest(disk, name)
        data = disk.read_bytes()
        sector = data[64 * 512:65 * 512]
        self.assertEqual(b'short'.ljust(512, b'\0'), sector)
        self.assertEqual(b'x' * ((1 << 16) - 512),
                         data.replace(sector, b''))


class TestTake(base.TestCase):

    def test_until_the_size_is_reached(self):
        paths = [self.write_file(f'{number}', b'x' * 100)
                 for number in range(5)]
        left = iter(paths)
        self.assertEqual(paths[:3], guests._take(left, 250))
        self.assertEqual(paths[3:4], guests._take(left, 100))

    def test_links_and_empty_files_are_left_out(self):
        file = self.write_file('file', b'x' * 10)
        empty = self.write_file('empty', b'')
        link = self.directory / 'link'
        link.symlink_to(file)
        self.assertEqual([file],
                         guests._take(iter([empty, link, file]), 10))

    def test_too_few(self):
        error = self.assertRaises(errors.OpenStackError, guests._take,
                                  iter([]), 1)
        self.assertIn('/usr', str(error))
