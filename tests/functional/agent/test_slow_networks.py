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
"""Sites whose hosts are on a slow network of their own."""

import random

from diffcache_openstack.agent.images import building
from diffcache_openstack.embedded import sites
from tests.functional.agent import test_embedded

MIB = test_embedded.MIB


def text(size: int, seed: int) -> bytes:
    """Return bytes of which a third is left when they are compressed."""
    chance = random.Random(seed)
    return bytes(chance.choices(b'abcd', k=1 << 16)) * (size >> 16)


class SlowNetworkTest(test_embedded.EmbeddedTestCase):
    """Peers send 160 Mbit/s to each other."""

    links = sites.LinkSpec(8000, 160, 8000)

    def image_contents(self):
        system = text(12 * MIB, 1)
        return {'system': system, 'other': text(10 * MIB, 2),
                'next': system[:5 * MIB] + text(MIB, 3) + system[5 * MIB:]}

    def test_images_cross_compressed_once_that_was_measured(self):
        self.hold(host_1=[self.image('system'), self.image('other')])
        first = self.get('host-2', 'system')
        self.assertEqual(('peer', 12 * MIB), (first.way, first.lan_bytes))
        second = self.get('host-2', 'other')
        self.assertEqual('peer', second.way)
        self.assertLess(second.lan_bytes, 5 * MIB)
        # Read where it is stored, on the fly.
        third = self.get('host-2', 'next', building.ON_THE_FLY)
        self.assertEqual('build', third.way)
        # Where no processor of the peer is free, a part comes as it is.
        self.assertLess(third.lan_bytes, 12 * MIB)
        self.assertEqual(0, third.fallbacks)

    def test_none_on_a_faster_network(self):
        for agent in self.site.hosts.values():
            agent.plane.set_rate(None)
        self.hold(host_1=[self.image('system'), self.image('other')])
        for name, size in (('system', 12 * MIB), ('other', 10 * MIB)):
            request = self.get('host-2', name)
            self.assertEqual(('peer', size), (request.way, request.lan_bytes))
