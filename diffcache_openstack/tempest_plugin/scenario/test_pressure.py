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

import functools

from tempest.lib import decorators

from diffcache_openstack.common import exceptions
from diffcache_openstack.tempest_plugin.scenario import base

CONF = base.CONF


class TestPressure(base.ScenarioTest):
    """A full cache makes room, and what had to go is served nevertheless."""

    @decorators.idempotent_id('4f6a2d1c-0f0e-4f5d-9d0b-1f1f4c3d7a04')
    def test_eviction_under_pressure(self):
        """The cache stays within its capacity whatever is asked for."""
        host = self.hosts[0]
        images = [self.upload(name)
                  for name in sorted(CONF.diffcache.image_files)]
        needed = sum(self.described(host, image)['data_size']
                     for image in images)
        capacity = self.agent(host).status()['capacity']
        if needed <= capacity:
            raise self.skipException(
                f'the images need {needed} bytes, which is not more than'
                f' the {capacity} of {host}: no pressure')
        for image in [*images, images[0]]:
            self.delete(self.boot(image, host))
            self._check(host, capacity)
        held = [image for image in images
                if self.described(host, image)['cached']]
        self.assertLess(len(held), len(images))

    def _check(self, host: str, capacity: int) -> None:
        """The cache is no larger than its capacity, and all can be had."""
        status = self.agent(host).status()
        self.assertLessEqual(status['used'], capacity)

    @decorators.idempotent_id('4f6a2d1c-0f0e-4f5d-9d0b-1f1f4c3d7a05')
    def test_deleted_image_is_gone_from_every_host(self):
        """An image that was deleted is nowhere, and is not served."""
        image = self.upload('derived')
        for host in self.hosts:
            self.described(host, image)
        self.delete(self.boot(image, self.hosts[0]))
        self.os_admin.image_client_v2.delete_image(image)
        for host in self.hosts:
            self.wait_until(functools.partial(self._is_gone, host, image),
                            f'{host} has forgotten image {image}')

    def _is_gone(self, host: str, image: str) -> bool:
        try:
            found = self.agent(host).image(image)
        except exceptions.NotFound:
            return True
        return found['status'] != 'active'
