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
"""SIGTERM of a repository's agent while it works.

A process that does not end in time exits with 1.
"""

import random
import tempfile

from diffcache_openstack.common import keys
from diffcache_openstack.rpc import agent_api
from tests import base
from tests.functional.agent import test_processes
from tests.functional.fixtures import deployment

MIB = 1 << 20
# Of an image: a patch between two takes most of a minute at level 19.
SIZE = 192 * MIB


class Site(deployment.Deployment):
    """A conductor and a repository that creates patches."""

    wait = test_processes.Site.wait

    def _setUp(self):
        super()._setUp()
        self.key_file = self.directory / 'site.key'
        keys.create_key(self.key_file)
        self.agents = agent_api.AgentAPI(self.bus, self.conf)
        self.processes = {'conductor': self.start_conductor()}
        self.start_repository()

    def start_repository(self):
        self.repository = self.processes['hub'] = self.start(
            'diffcache-agent', 'hub',
            DEFAULT={'graceful_shutdown_timeout': 120},
            agent={'host': 'hub', 'site': 'edge', 'role': 'repository',
                   'state_dir': self.directory / 'hub',
                   'heartbeat_interval': 1},
            repository={'image_directories': tempfile.gettempdir(),
                        'compression_level': 0, 'patch_level': 19,
                        'scan_interval': 1},
            data_plane={'listen': '127.0.0.1:0', 'key_file': self.key_file})
        self.repository.wait_for('Agent hub serves')

    @property
    def staging(self):
        """Files of work that is under way."""
        return list((self.directory / 'hub' / 'objects' / 'staging')
                    .iterdir())


class StopsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.site = self.useFixture(Site())

    def register_pair(self):
        """Register two images, of which a third is not the same."""
        noise = random.Random(1)
        # Hexadecimal digits: to compress them takes long.
        data = bytearray(noise.randbytes(SIZE // 2).hex().encode())
        for name in ('one', 'two'):
            path = self.write_file(name, bytes(data))
            self.site.agents.register_image(
                self.site.context, 'hub', str(path), name, name)
            data[:SIZE // 3] = noise.randbytes(SIZE // 6).hex().encode()

    def test_while_a_patch_is_created(self):
        self.register_pair()
        self.site.wait(lambda: self.site.staging)
        self.assertEqual(0, self.site.repository.stop())
        self.assertNotIn('Created patch', self.site.repository.printed())
        self.assertNotIn('Could not create', self.site.repository.printed())
        # On a busy machine the end of a part is not waited for.
        left = self.site.staging
        self.site.start_repository()
        self.site.wait(lambda: set(self.site.staging) - set(left))
        self.assertEqual(set(), set(self.site.staging) & set(left))
        self.assertEqual(0, self.site.repository.stop())
