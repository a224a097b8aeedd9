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
"""The site without the suite's conductor."""

from tempest.lib import decorators

from diffcache_openstack.tempest_plugin.scenario import base


class TestOutage(base.ScenarioTest):
    """Hosts deliver what they hold while other services are down."""

    @decorators.idempotent_id('4f6a2d1c-0f0e-4f5d-9d0b-1f1f4c3d7a06')
    def test_boot_with_the_conductor_down(self):
        """Boot an image of the site from a peer without a conductor."""
        host = self.hosts[-1]
        image = self.upload('derived')
        self.start(image, self.hosts[0])
        self.wait_until(lambda: self.described(host, image)['at_site'],
                        f'{host} can have image {image} from its site')
        size = self.described(host, image)['data_size']
        fallbacks = self._fallbacks(host)
        self.command('stop_conductor_command')
        self.addCleanup(self.command, 'start_conductor_command')
        before = self.wan_bytes()
        self.boot(image, host)
        self.assertLess(self.wan_bytes() - before, size / 4)
        self.assertEqual(fallbacks, self._fallbacks(host))

    def _fallbacks(self, host: str) -> dict[str, int]:
        """Count how often Nova fell back on a host."""
        return self.agent(host).status()['fallbacks'].get('nova-compute', {})
