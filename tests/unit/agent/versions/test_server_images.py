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
"""Images of servers that are read of a version."""

import types
from unittest import mock

from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent.versions import server_images
from tests import base


class WriteTest(base.TestCase):

    def test_the_image_is_of_the_disk_that_nova_names(self):
        # Regression: it was of the disk whose name came first, such as an
        # ephemeral one at sda beside the root disk at vda.
        service = mock.Mock()
        service.guests.device_of = lambda server_id, path: {
            '/root': 'vda', '/ephemeral': 'sda'}[path]
        service.save_for_image.return_value = mock.Mock(disks=[
            types.SimpleNamespace(device=device, version=f'of {device}')
            for device in ('sda', 'vda')])
        service.base_files.bring.return_value = (None, None)
        self.patch(outputs, 'move', lambda *_, **__: None)
        images = server_images.ServerImages(service, mock.Mock(),
                                            self.directory)
        images.write(server_images.NewImage('s', 'p', '/root', '/o', 'raw'),
                     mock.Mock())
        export = service.stores.open.return_value.export
        self.assertEqual('of vda', export.call_args.args[0])
