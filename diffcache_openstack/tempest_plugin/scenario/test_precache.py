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
"""Operators cache an image on hosts before it is requested."""

import functools
import hashlib
import pathlib

from tempest.lib.common.utils import data_utils
from tempest.lib.common.utils import test_utils
from tempest.lib import decorators

from diffcache_openstack.tempest_plugin.scenario import base

CONF = base.CONF


class TestPrecache(base.ScenarioTest):
    """Nova's pre-caching goes through the suite."""

    @classmethod
    def skip_checks(cls) -> None:
        """Skip if the path of Nova's base images is not configured."""
        super().skip_checks()
        if not CONF.diffcache.base_directories:
            raise cls.skipException('[diffcache] base_directories is not set')

    @decorators.idempotent_id('4f6a2d1c-0f0e-4f5d-9d0b-1f1f4c3d7a03')
    def test_aggregate_is_precached(self):
        """Boot a precached image on an aggregate without the WAN."""
        image = self.upload('derived')
        size = self.described(self.hosts[0], image)['data_size']
        aggregate = self._aggregate()
        before = self.wan_bytes()
        self._precache(aggregate, image)
        for host in self.hosts:
            self.wait_until(functools.partial(self._is_cached, host, image),
                            f'{host} has pre-cached image {image}')
        # Once for the site, however many hosts it has.
        self.assertLess(self.wan_bytes() - before, size * 1.5)
        before = self.wan_bytes()
        for host in self.hosts[:-1]:
            self.start(image, host)
        self.boot(image, self.hosts[-1])
        self.assertLess(self.wan_bytes() - before, size / 4)

    def _is_cached(self, host: str, image: str) -> bool:
        """Return whether Nova has the image's base, written completely."""
        name = hashlib.sha1(image.encode(), usedforsecurity=False)
        return pathlib.Path(CONF.diffcache.base_directories[host],
                            name.hexdigest()).exists()

    def _aggregate(self) -> int:
        """Create an aggregate of all hosts; return its ID."""
        client = self.os_admin.aggregates_client
        made = client.create_aggregate(
            name=data_utils.rand_name('diffcache'))['aggregate']['id']
        self.addCleanup(test_utils.call_and_ignore_notfound_exc,
                        client.delete_aggregate, made)
        for host in self.hosts:
            client.add_host(made, host=host)
            self.addCleanup(client.remove_host, made, host=host)
        return made

    def _precache(self, aggregate: int, image: str) -> None:
        """Call Nova's API to cache images, which Tempest has no method for."""
        client = self.os_admin.aggregates_client
        response, _ = client.post(
            f'os-aggregates/{aggregate}/images',
            f'{{"cache": [{{"id": "{image}"}}]}}')
        client.expected_success(202, response.status)
