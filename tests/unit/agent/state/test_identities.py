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

from diffcache_openstack.agent.state import identities
from tests import base


class IdentityTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.directory / 'file'
        self.path.write_bytes(b'content')
        self.fd = os.open(self.path, os.O_RDWR)
        self.addCleanup(os.close, self.fd)
        self.before = identities.Identity.of(self.fd)

    def age(self):
        """Have the last change be long ago."""
        self.patch(identities.time, 'time_ns',
                   lambda: self.before.changed + 10 ** 10)

    def test_reading_leaves_it(self):
        self.path.read_bytes()
        self.assertEqual(self.before, identities.Identity.of(self.fd))

    def test_a_copy_is_another_file(self):
        copy = self.directory / 'copy'
        copy.write_bytes(b'content')
        with open(copy, 'rb') as file:
            other = identities.Identity.of(file.fileno())
        self.assertFalse(other.is_same_file(self.before))

    def test_a_longer_file_is_another_one(self):
        os.pwrite(self.fd, b'more content', 0)
        self.assertFalse(identities.Identity.of(self.fd).is_same_file(
            self.before))

    def test_a_write_that_hides_its_time_is_a_change(self):
        os.pwrite(self.fd, b'CONTENT', 0)
        os.utime(self.path, ns=(0, self.before.changed))
        self.assertNotEqual(self.before, identities.Identity.of(self.fd))

    def test_a_filesystem_without_generations(self):
        self.patch(identities.fcntl, 'ioctl', _refuse)
        self.assertEqual(0, identities.Identity.of(self.fd).generation)

    def test_what_was_just_changed_is_not_settled(self):
        self.patch(identities.time, 'time_ns', lambda: self.before.changed)
        self.assertIsNone(identities.settle(self.fd))
        self.age()
        self.assertEqual(self.before, identities.settle(self.fd))


def _refuse(*_arguments):
    raise OSError(25, 'Inappropriate ioctl for device')
