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
"""Images that unpack to many times their size."""

import subprocess
import unittest

from diffcache_openstack.agent.repository import image_limits
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from tests import base
from tests.unit.versions import fixture

MIB = 1 << 20


@unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
class TestImageLimits(base.TestCase):

    def setUp(self):
        super().setUp()
        self.tools = image_tools.ImageTools()
        self.patch(image_limits, '_FREE_BYTES', MIB)

    def bomb(self):
        """8 MiB of one byte, which compress to some kilobytes."""
        raw = self.write_file('raw', b'x' * (8 * MIB))
        path = self.directory / 'bomb.qcow2'
        subprocess.run(['qemu-img', 'convert', '-c', '-f', 'raw', '-O',
                        'qcow2', str(raw), str(path)], check=True)
        self.assertLess(path.stat().st_size, MIB)
        return path

    def limits(self, **changes):
        return image_limits.ImageLimits(**{
            'disk_size': 1 << 40, 'expansion': 5.0, 'seconds': 60.0,
            **changes})

    def test_content_of_many_times_the_file_is_refused(self):
        path = self.bomb()
        self.assertEqual(8 * MIB, self.tools.data_size(path))
        error = self.assertRaises(
            exceptions.InvalidInput, self.limits().check, 'i-1', path,
            self.tools)
        self.assertIn('i-1', str(error))
        self.assertIn('max_expansion', str(error))
        self.limits(expansion=1000.0).check('i-1', path, self.tools)

    def test_little_content_is_accepted_however_small_the_file(self):
        path, limits = self.bomb(), self.limits(expansion=1.0)
        self.patch(image_limits, '_FREE_BYTES', 8 * MIB - 1)
        self.assertRaises(exceptions.InvalidInput, limits.check, 'i-1', path,
                          self.tools)
        self.patch(image_limits, '_FREE_BYTES', 8 * MIB)
        self.assertIsNone(limits.check('i-1', path, self.tools))

    def test_a_huge_disk_in_a_small_file_is_refused(self):
        path = self.directory / 'huge.qcow2'
        fixture.make_qcow2(path, 15 << 40)
        error = self.assertRaises(
            exceptions.InvalidInput, self.limits().check, 'i-1', path,
            self.tools)
        self.assertIn('largest_image', str(error))

    def test_unpacking_ends_at_its_deadline_and_leaves_nothing(self):
        output = self.directory / 'output'
        error = self.assertRaises(
            exceptions.PermanentError, self.tools.to_raw, self.bomb(),
            output, self.limits(seconds=-1.0).deadline('i-1', lambda *_: None))
        self.assertIn('unpack_timeout', str(error))
        self.assertFalse(output.exists())
