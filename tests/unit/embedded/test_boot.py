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

import shutil
import unittest
from unittest import mock

from diffcache_openstack.common import exceptions
from diffcache_openstack.embedded import boot
from tests import base
from tests.unit.embedded import guests


@unittest.skipUnless(
    shutil.which(boot.QEMU), 'needs QEMU (package qemu-system-x86)'
)
class TestBoot(base.TestCase):
    def boot(self, disk, **options):
        self.image = self.write_file('a,disk.raw', disk)
        return boot.boot(self.image, 'GUEST-READY', **options)

    def test_marker_is_seen(self):
        result = self.boot(guests.boot_sector('hello\r\nGUEST-READY test\r\n'))
        self.assertTrue(result.marker_seen, result)
        self.assertEqual('GUEST-READY test', result.line)
        self.assertIn('hello', result.console)
        self.assertGreater(result.seconds, 0)

    def test_guest_that_never_prints_the_marker(self):
        disk = guests.boot_sector('something else\r\n')
        # As long as it takes to start here.
        for timeout in (2.0, 10.0, 60.0):
            result = self.boot(disk, timeout=timeout)
            self.assertFalse(result.marker_seen)
            if result.console:
                break
        self.assertEqual('', result.line)
        self.assertIn('something else', result.console)

    def test_guest_that_stops_ends_the_wait(self):
        disk = guests.boot_sector('going down\r\n', ending=guests.RESET)
        result = self.boot(disk, timeout=3600.0)
        self.assertFalse(result.marker_seen)
        self.assertIn('going down', result.console)

    def test_what_the_guest_writes_does_not_reach_the_image(self):
        disk = guests.boot_sector('GUEST-READY\r\n', writes=True)
        result = self.boot(disk)
        self.assertTrue(result.marker_seen, result)
        self.assertEqual(disk, self.image.read_bytes())

    def test_read_only_image(self):
        disk = guests.boot_sector('GUEST-READY\n')
        image = self.write_file('disk.raw', disk)
        image.chmod(0o444)
        self.assertTrue(boot.boot(image, 'GUEST-READY').marker_seen)


class TestErrors(base.TestCase):
    def test_missing_image_is_named(self):
        path = self.directory / 'no.raw'
        error = self.assertRaises(
            exceptions.NotFound, boot.boot, path, 'marker'
        )
        self.assertIn(str(path), str(error))

    def test_missing_qemu_names_the_package(self):
        image = self.write_file('disk.raw', b'')
        with mock.patch.object(boot, 'QEMU', 'qemu-that-is-not-there'):
            error = self.assertRaises(
                exceptions.NotFound, boot.boot, image, 'marker'
            )
        self.assertIn('qemu-system-x86', str(error))
