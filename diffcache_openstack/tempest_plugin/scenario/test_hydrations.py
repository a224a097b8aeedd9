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
"""A tenant's server boots lazily, and the tenant says when its image comes."""

import typing

from tempest.common import waiters
from tempest import config
from tempest.lib import decorators
from tempest.lib import exceptions

from diffcache_openstack.tempest_plugin.scenario import base
from diffcache_openstack.tempest_plugin.services import diffcache_client

CONF = config.CONF
# Bytes per second, at which the image takes hours.
_RATE = 1000
_IMAGE_BYTES = 64 << 20


class TestHydrations(base.ScenarioTest):
    """What a tenant sees and changes of an image that arrives."""

    def setUp(self) -> None:
        """Talk to the API as two tenants."""
        super().setUp()
        self.client = self.api(self.os_primary)
        self.other = self.api(self.os_alt)

    @staticmethod
    def api(manager: typing.Any) -> diffcache_client.DiffCacheClient:
        """Return a tenant's client."""
        return diffcache_client.DiffCacheClient(
            manager.auth_provider, diffcache_client.SERVICE,
            CONF.identity.region)

    @decorators.idempotent_id('4f6a2d1c-0f0e-4f5d-9d0b-1f1f4c3d7a41')
    def test_paused_resumed_and_whole(self) -> None:
        """Pause and resume; remove the limit, and wait for the end.

        The image is like no other: where hosts have a base of it, a fill of
        the plan makes it whole at any time.
        """
        server = self.lazy_server(self.upload_noise(_IMAGE_BYTES))
        path = f'hydrations/{server}'
        seen = self.seen(path, state='arriving', rate=_RATE)
        self.assertEqual(self.os_primary.credentials.project_id,
                         seen['project_id'])
        self.assertRaises(exceptions.NotFound, self.other.fetch, path)
        paused = self.change(path, paused=True)
        self.assertTrue(paused['paused'])
        resumed = self.change(path, paused=False)
        self.assertEqual((False, seen['mode']), (resumed['paused'],
                                                 resumed['mode']))
        self.change(path, rate=None, deadline=5)
        self.seen(path, state='complete', percent=100.0)

    def lazy_server(self, image: str) -> str:
        """Create a server that boots lazily; skip where none does."""
        server = self.create(image, None, self.os_primary, {
            'diffcache:boot_mode': 'lazy',
            'diffcache:hydrate_rate': str(_RATE)})
        waiters.wait_for_server_status(self.os_primary.servers_client,
                                       server, 'ACTIVE')
        agent = self.agent(self.host_of(server))
        if not any(server in each['servers'] for each in agent.lazy()):
            raise self.skipException('images are delivered whole here')
        return server

    def seen(self, path: str, **wanted: typing.Any) -> dict[str, typing.Any]:
        """Wait until the tenant sees some values; returns all."""
        found: dict[str, typing.Any] = {}

        def is_so() -> bool:
            try:
                found.update(self.client.fetch(path)['hydration'])
            except exceptions.NotFound:
                return False  # It has not been reported yet.
            return wanted.items() <= found.items()

        self.wait_until(is_so, f'{path} has {wanted}')
        return found

    def change(self, path: str, **settings: typing.Any
               ) -> dict[str, typing.Any]:
        """Change settings as they are seen now; returns what they are."""
        generation = self.client.fetch(path)['hydration']['generation']
        return self.client.change(path, {'hydration': {
            'generation': generation, **settings}})['hydration']
