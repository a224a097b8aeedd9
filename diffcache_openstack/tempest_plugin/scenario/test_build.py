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
"""An image that never crossed the WAN."""

from tempest.lib import decorators

from diffcache_openstack.tempest_plugin.scenario import base


class TestBuild(base.ScenarioTest):
    """Images are built at the site from what it has and a patch."""

    @decorators.idempotent_id('4f6a2d1c-0f0e-4f5d-9d0b-1f1f4c3d7a01')
    def test_derived_image_crosses_as_a_patch(self):
        """Boot the derived image from a patch on a host with the base.

        What crosses the link for it, headers and all, is a fraction of the
        image: the image itself never crosses.
        """
        host = self.hosts[0]
        original = self.upload('base')
        self.start(original, host)
        derived = self.upload('derived')

        def is_a_patch_away() -> bool:
            found = self.described(host, derived)
            return found['wan_bytes'] < found['data_size'] / 4

        self.wait_until(is_a_patch_away,
                        f'image {derived} is a patch away from {host}')
        size = self.described(host, derived)['data_size']
        before = self.wan_bytes()
        self.boot(derived, host)
        self.assertLess(self.wan_bytes() - before, size / 4)

    @decorators.idempotent_id('4f6a2d1c-0f0e-4f5d-9d0b-1f1f4c3d7a02')
    def test_second_host_reads_from_the_first(self):
        """Fetch from the first host of a site, not from the centre."""
        if len(self.hosts) < 2:
            raise self.skipException('one host only')
        image = self.upload('derived')
        size = self.described(self.hosts[0], image)['data_size']
        self.start(image, self.hosts[0])
        self.wait_until(
            lambda: self.described(self.hosts[1], image)['at_site'],
            f'{self.hosts[1]} can have image {image} from its site')
        before = self.wan_bytes()
        self.boot(image, self.hosts[1])
        self.assertLess(self.wan_bytes() - before, size / 4)
