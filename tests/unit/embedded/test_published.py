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
from unittest import mock

from diffcache_openstack.embedded import published
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from tests import base

CONTENT = bytes(range(256)) * 4096


class PublishedImagesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.raw = self.write_file('raw', CONTENT)
        self.images = published.PublishedImages(self.directory / 'published')

    def test_a_file_is_created_once(self):
        size = self.images.publish(self.raw, 'a' * 64)
        self.assertLess(size, len(CONTENT))
        path = self.images.file('a' * 64)
        created = path.stat().st_mtime_ns
        self.assertEqual(size, self.images.publish(self.raw, 'a' * 64))
        self.assertEqual(created, path.stat().st_mtime_ns)

    def test_a_download_is_converted(self):
        self.images.publish(self.raw, 'a' * 64)

        def deliver(image, packed):
            shutil.copy(self.images.file('a' * 64), packed.path)
            return objects.Request(
                id='5f0c5a1e-9a5e-4c7e-8a60-0d1ffcac4e00', image_id='a',
                host='host-1', seconds=1.0, started_at=versioned.now())

        agent = mock.Mock()
        agent.server.deliver.side_effect = deliver
        output = self.directory / 'output'
        request = published.download(agent, mock.sentinel.image, output)
        self.assertEqual(CONTENT, output.read_bytes())
        self.assertGreater(request.seconds, 1.0)
        self.assertEqual({'output', 'published', 'raw'},
                         {path.name for path in self.directory.iterdir()})
