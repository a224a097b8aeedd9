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
"""Notifications of other services."""

from diffcache_openstack.common import notifications
from tests import base


class TestEndpoint(base.TestCase):

    def test_words_about_an_upload_that_failed_are_no_image(self):
        """Glance sends a text then, of the same type as for an upload."""
        handled = []
        endpoint = notifications._Endpoint('image', handled.append)
        for payload in 'Failed to upload image data', {'id': 'one'}:
            endpoint.error({}, 'image.host', 'image.upload', payload, {})
        self.assertEqual([{'id': 'one'}],
                         [each['payload'] for each in handled])
