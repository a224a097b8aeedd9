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
"""Ranges of files that clients ask for."""

from diffcache_openstack.agent.local import messages
from tests import base


class RangeTest(base.TestCase):

    def test_ranges(self):
        for text, expected in (
                (None, None), ('', None), ('bytes=0-', (0, 100)),
                ('bytes=5-9', (5, 10)), ('bytes=5-999', (5, 100)),
                ('bytes=-7', (93, 100)), ('bytes=-999', (0, 100)),
                ('bytes=99-99', (99, 100))):
            self.assertEqual(expected, messages.parse_range(text, 100), text)

    def test_ranges_that_cannot_be_used(self):
        for text in ('bytes=100-', 'bytes=9-5', 'bytes=-0', 'bytes=1-2,4-5',
                     'bits=1-2', 'bytes=a-b'):
            self.assertRaises(messages.RangeError, messages.parse_range,
                              text, 100)
