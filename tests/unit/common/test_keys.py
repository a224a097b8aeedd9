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
import os

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from tests import base


class TestKeys(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.directory / 'site.key'

    def test_created_key_is_read(self):
        keys.create_key(self.path)
        self.assertEqual(0o600, self.path.stat().st_mode & 0o777)
        key = keys.read_key(self.path)
        self.assertEqual(32, len(key))
        self.assertEqual(key.hex() + '\n', self.path.read_text())

    def test_created_key_is_random(self):
        keys.create_key(self.path)
        other = self.directory / 'other.key'
        keys.create_key(other)
        self.assertNotEqual(keys.read_key(self.path), keys.read_key(other))

    def test_existing_file_is_kept(self):
        keys.create_key(self.path)
        before = self.path.read_bytes()
        self.assertRaises(exceptions.Conflict, keys.create_key, self.path)
        self.assertEqual(before, self.path.read_bytes())

    def test_file_that_others_may_read_is_refused(self):
        keys.create_key(self.path)
        for mode in (0o640, 0o604, 0o620):
            os.chmod(self.path, mode)
            error = self.assertRaises(exceptions.InvalidInput, keys.read_key,
                                      self.path)
            self.assertIn('chmod 600', str(error))

    def test_missing_file_tells_how_to_make_one(self):
        error = self.assertRaises(exceptions.InvalidInput, keys.read_key,
                                  self.path)
        self.assertIn('diffcache-manage key create', str(error))

    def test_content_of_a_wrong_file_is_not_told(self):
        for content in (b'hunter2', b'\xff\xfe', b'0' * 63, b'0' * 65, b''):
            self.path.write_bytes(content)
            self.path.chmod(0o600)
            error = self.assertRaises(exceptions.InvalidInput, keys.read_key,
                                      self.path)
            self.assertNotIn('hunter2', str(error))

    def test_directory_that_is_missing(self):
        self.assertRaises(exceptions.InvalidInput, keys.create_key,
                          self.directory / 'none' / 'site.key')
