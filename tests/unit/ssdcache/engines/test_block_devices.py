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
import hypothesis
from hypothesis import strategies

from diffcache_openstack.ssdcache.engines import base as engines
from diffcache_openstack.ssdcache.engines import block_devices
from diffcache_openstack.ssdcache.engines import commands
from tests import base

# Of util-linux 2.38.1.
RECORDED = '''{
   "blockdevices": [
      {
         "maj:min": "7:0",
         "size": 67108864,
         "ro": false
      }
   ]
}
'''


class TestParse(base.TestCase):

    def test_a_recorded_answer(self):
        self.assertEqual(block_devices.Device('7:0', 67108864),
                         block_devices.parse('/dev/loop0', RECORDED))

    def test_a_device_that_is_read_only(self):
        for value in ('true', '"1"'):
            self.assertRaises(
                engines.VolumeRefused, block_devices.parse, '/dev/loop0',
                RECORDED.replace('false', value))

    def test_what_is_unknown(self):
        for old, new in (('7:0', '7:x'), ('67108864', '"many"'),
                         ('false', '2'), ('"ro"', '"rw"'),
                         ('blockdevices', 'devices')):
            error = self.assertRaises(
                commands.UnknownOutput, block_devices.parse, '/dev/loop0',
                RECORDED.replace(old, new))
            self.assertIn('lsblk', str(error))

    @hypothesis.given(strategies.text())
    def test_any_text(self, text):
        self.assertRaises(commands.UnknownOutput, block_devices.parse,
                          '/dev/loop0', text)


class TestFind(base.TestCase):

    def test_lsblk_itself(self):
        # Each host has one that says what is no device.
        path = self.write_file('a', b'x')
        self.assertRaises(engines.VolumeRefused, block_devices.find,
                          commands.run, str(path))
