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

import io
from unittest import mock

from diffcache_openstack.agent.local import local_images
from diffcache_openstack.common import exceptions
from tests import base

IMAGE = 'c1b1a3f2-0000-4000-8000-000000000001'


class TestGivenFile(base.TestCase):

    def test_content_is_not_left_behind_if_nothing_can_be_noted(self):
        """A full disk was left with one image more each time."""
        raw = self.write_file('raw', b'content')
        parts = mock.Mock()
        parts.files.take.return_value = raw
        parts.usage.admit.side_effect = exceptions.NoSpace('full')
        images = local_images.LocalImages(
            parts.site_map, parts.contents, parts.costs, parts.files,
            parts.usage, parts.throttle, parts.new, None)
        images.give_file(IMAGE, io.BytesIO(b'file'), 4)
        self.assertFalse(raw.exists())
