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
"""A site without a link gets its images on a disk."""

import json
import subprocess
import sys
import tempfile

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.sites import views
from tests import base
from tests.functional.agent import family
from tests.functional.fixtures import deployment
from tests import waiting

HUB, HOST = 'hub', 'ship-1'
NOWHERE = {'DEFAULT': {'transport_url': 'rabbit://nobody@127.0.0.1:1/'}}


class TestBundles(base.TestCase):

    def setUp(self):
        super().setUp()
        self.site = self.useFixture(deployment.Deployment())
        self.key_file = self.site.directory / 'shared.key'
        keys.create_key(self.key_file)
        self.disk = self.directory / 'disk'
        self.images = family.write(self.directory)

    def options(self, name, site, **agent):
        return {
            'agent': {'host': name, 'site': site, 'heartbeat_interval': 1,
                      'state_dir': self.site.directory / name,
                      'output_directories': tempfile.gettempdir(), **agent},
            'repository': {'image_directories': tempfile.gettempdir()},
            'data_plane': {'listen': '127.0.0.1:0',
                           'key_file': self.key_file}}

    def start(self, name, options):
        started = self.site.start('diffcache-agent', name, **options)
        started.wait_for(f'Agent {name} serves')
        return started

    def manage(self, options, *words):
        """Run a command with a host's configuration; return what it lists."""
        config = self.site.configuration('manage', **options)
        done = subprocess.run(
            [sys.executable, '-c',
             'import sys; from diffcache_openstack.cmd.manage import app;'
             ' sys.exit(app.main())', '--config-file', str(config), *words,
             '-f', 'json'], capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stderr)
        return json.loads(done.stdout)

    def carry(self):
        """Register images at the hub, and write a bundle for the ship."""
        options = self.options(HUB, 'centre', role='repository')
        conductor = self.site.start_conductor()
        hub = self.start(HUB, options)
        agents = agent_api.AgentAPI(self.site.bus, self.site.conf)
        for name, path in self.images.items():
            waiting.until(
                lambda name=name, path=path: agents.register_image(
                    self.site.context, HUB, str(path), name, name),
                name, exceptions.ServiceUnavailable, seen=self.site.printed)
        compressed = self.site.directory / HUB / 'objects' / 'compressed'
        waiting.until(lambda: len(list(compressed.glob('[0-9a-f]*'))) == len(
            self.images), 'compressed forms', seen=self.site.printed)
        found = self.manage(options, 'bundle', 'create', '--site', 'ship',
                            '--output', str(self.disk), '--new-site')
        self.assertEqual(['packed'] * len(self.images),
                         [row['State'] for row in found])
        hub.stop()
        conductor.stop()

    def test_what_is_carried_is_served_and_reported_later(self):
        self.carry()
        sizes = sum(path.stat().st_size for path in self.disk.iterdir())
        # Holes of images are not carried.
        self.assertLess(sizes, 34 * family.MIB)
        socket = self.site.directory / HOST / 'agent.sock'
        ship = self.options(HOST, 'ship', socket=socket)
        found = self.manage(ship | NOWHERE, 'bundle', 'apply', str(self.disk))
        self.assertEqual({'taken'}, {row['State'] for row in found})
        agent = self.start(HOST, ship | NOWHERE)
        for name, path in self.images.items():
            output = self.directory / 'out'
            local_client.LocalClient(str(socket)).content(
                name, str(output), stall_timeout=waiting.SECONDS)
            self.assertEqual(family.sha256(path), family.sha256(output))
            output.unlink()
        agent.stop()
        self.site.start_conductor('again')
        self.start(HOST, ship)
        waiting.until(self.is_reported, 'the report', seen=self.site.printed)

    def is_reported(self):
        try:
            found = self.site.conductor.update_site_map(self.site.context,
                                                        'ship')
        except exceptions.ServiceUnavailable:
            return False
        held = [holding for host in found.hosts if host.name == HOST
                for holding in host.holdings]
        return len([each for each in held if each.kind == views.IMAGES]
                   ) == len(self.images)
