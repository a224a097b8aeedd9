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

SECTOR = 512

# What a guest of one boot sector does, in 16-bit machine code.
START = bytes.fromhex('31c0 8ed8 8ec0')  # data segments at 0
WRITE = bytes.fromhex(
    'b80103 b90200 ba8000 bb007c cd13'  # store this code in sector 2
    '7300'  # and go on where that worked; see below
)
PRINT = bytes.fromhex('ac 84c0 7406 baf803 ee ebf5')  # text at SI to COM1
HALT = bytes.fromhex('f4 ebfd')
RESET = bytes.fromhex('b0fe e664')


def boot_sector(text, *, ending=HALT, writes=False):
    """A disk whose guest may write to it, prints a text, and ends."""
    code = START
    if writes:
        # jnc over the halt, so that a failed write prints nothing.
        code += WRITE[:-1] + bytes([len(HALT)]) + HALT
    address = 0x7C00 + len(code) + 3 + len(PRINT) + len(ending)
    code += b'\xbe' + address.to_bytes(2, 'little') + PRINT + ending
    code += text.encode() + b'\0'
    return code.ljust(SECTOR - 2, b'\0') + b'\x55\xaa' + bytes(1 << 20)


@unittest.skipUnless(
    shutil.which(boot.QEMU), 'needs QEMU (package qemu-system-x86)'
)
class TestBoot(base.TestCase):
    def boot(self, disk, **options):
        self.image = self.write_file('a,disk.raw', disk)
        return boot.boot(self.image, 'GUEST-READY', **options)

    def test_marker_is_seen(self):
        result = self.boot(boot_sector('hello\r\nGUEST-READY test\r\n'))
        self.assertTrue(result.marker_seen, result)
        self.assertEqual('GUEST-READY test', result.line)
        self.assertIn('hello', result.console)
        self.assertGreater(result.seconds, 0)

    def test_guest_that_never_prints_the_marker(self):
        result = self.boot(boot_sector('something else\r\n'), timeout=2.0)
        self.assertFalse(result.marker_seen)
        self.assertEqual('', result.line)
        self.assertIn('something else', result.console)

    def test_guest_that_stops_ends_the_wait(self):
        disk = boot_sector('going down\r\n', ending=RESET)
        result = self.boot(disk, timeout=3600.0)
        self.assertFalse(result.marker_seen)
        self.assertIn('going down', result.console)

    def test_what_the_guest_writes_does_not_reach_the_image(self):
        disk = boot_sector('GUEST-READY\r\n', writes=True)
        result = self.boot(disk)
        self.assertTrue(result.marker_seen, result)
        self.assertEqual(disk, self.image.read_bytes())

    def test_read_only_image(self):
        self.image = self.write_file('disk.raw', boot_sector('GUEST-READY\n'))
        self.image.chmod(0o444)
        self.assertTrue(boot.boot(self.image, 'GUEST-READY').marker_seen)


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
