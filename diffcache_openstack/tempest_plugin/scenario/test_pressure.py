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
"""More images than a host's cache has room for."""

import contextlib
import functools

from tempest.lib import decorators
from tempest.lib import exceptions as tempest_exceptions

from diffcache_openstack.common import exceptions
from diffcache_openstack.tempest_plugin.scenario import base

CONF = base.CONF


class TestPressure(base.ScenarioTest):
    """A full cache makes room, and what had to go is served nevertheless."""

    @decorators.idempotent_id('4f6a2d1c-0f0e-4f5d-9d0b-1f1f4c3d7a04')
    def test_eviction_under_pressure(self):
        """Keep a cache within its capacity under many requests.

        What had to go can be had nevertheless.
        """
        host = self.hosts[0]
        capacity = self.agent(host).status()['capacity']
        images = self._more_than(capacity)
        for image in images:
            self.delete(self.start(image, host))
            self.assertLessEqual(self.agent(host).status()['used'], capacity)
        gone = [image for image in images if 'images' not in self.held(
            host, self.described(host, image)['content_id'])]
        self.assertNotEqual([], gone)
        # On another host if there is one: Nova has bases of its own.
        self.boot(gone[0], self.hosts[-1])

    def _more_than(self, capacity: int) -> list[str]:
        """Return images that need more room together than there is."""
        images, needed = [], 0
        for name in sorted(CONF.diffcache.image_files):
            images.append(self.upload(name))
            needed += self.described(self.hosts[0], images[-1])['data_size']
            if needed > capacity:
                return images
        raise self.skipException(
            f'all images need {needed} bytes, which is not more than the'
            f' {capacity} of {self.hosts[0]}: no pressure')

    @decorators.idempotent_id('4f6a2d1c-0f0e-4f5d-9d0b-1f1f4c3d7a05')
    def test_deleted_image_is_gone_from_every_host(self):
        """Remove a deleted image everywhere, and serve it no more."""
        image = self.upload_new('derived')
        content = self.described(self.hosts[0], image)['content_id']
        self.start(image, self.hosts[0])
        self.wait_until(lambda: bool(self.held(self.hosts[0], content)),
                        f'{self.hosts[0]} holds image {image}')
        self.os_admin.image_client_v2.delete_image(image)
        for host in self.hosts:
            self.wait_until(
                functools.partial(self._is_gone, host, image, content),
                f'{host} has forgotten image {image}')
        self.assertRaises(tempest_exceptions.BadRequest, self.create, image)

    def _is_gone(self, host: str, image: str, content: str) -> bool:
        with contextlib.suppress(exceptions.NotFound):
            self.agent(host).image(image)
            return False
        return not self.held(host, content)
