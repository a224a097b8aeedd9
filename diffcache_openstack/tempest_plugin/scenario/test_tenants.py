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
"""Private images stay private, wherever they are kept."""

import requests
from tempest.lib import decorators
from tempest.lib import exceptions

from diffcache_openstack.tempest_plugin.scenario import base

CONF = base.CONF


class TestTenants(base.ScenarioTest):
    """Two tenants with private images at one site."""

    @decorators.idempotent_id('4f6a2d1c-0f0e-4f5d-9d0b-1f1f4c3d7a07')
    def test_private_image_is_its_owners(self):
        """Refuse to boot an image held for another tenant."""
        image = self.upload('derived', self.os_primary, 'private')
        self.start(image, manager=self.os_primary)
        self.assertRaises(exceptions.BadRequest, self.create, image,
                          manager=self.os_alt)

    @decorators.idempotent_id('4f6a2d1c-0f0e-4f5d-9d0b-1f1f4c3d7a08')
    def test_private_image_is_not_downloaded(self):
        """Serve a private image to its owner alone."""
        if not CONF.diffcache.site_image_url:
            raise self.skipException('[diffcache] site_image_url is not set')
        image = self.upload('derived', self.os_primary, 'private')
        self.assertEqual(200, self._download(image, self.os_primary))
        self.assertEqual(404, self._download(image, self.os_alt))
        self.assertEqual(404, self._download(image, self.os_alt,
                                             Range='bytes=0-1023'))

    def _download(self, image, manager, **headers: str) -> int:
        """Ask for the file; returns the status."""
        headers['X-Auth-Token'] = manager.auth_provider.get_token()
        with requests.get(
                f'{CONF.diffcache.site_image_url}/v2/images/{image}/file',
                headers=headers, stream=True,
                timeout=CONF.diffcache.timeout) as answer:
            for _ in answer.iter_content(1 << 20):
                pass
            return answer.status_code
