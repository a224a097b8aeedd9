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
"""What crosses the WAN when many servers are wanted at once."""

import concurrent.futures

from tests.functional.openstack import nova_hosts

SERVERS = 8
MIB = 1 << 20
# Megabytes of the image that nobody has.
NEW = 32
# Manifests, and heartbeats of agents.
BESIDES = MIB


class TestAtOnce(nova_hosts.NovaTest):

    def setUp(self):
        super().setUp()
        self.hosts = self.trial.hosts[:2]

    def test_eight_servers_from_one_image_that_no_host_has(self):
        image = self.upload(self.new_content('base', NEW))
        self.wait_until_quiet()
        # All of the content, or a patch if there is a base at the site.
        cost = self.known(self.hosts[0], image)['wan_bytes']
        before = self.trial.wan_bytes()
        with (self.assert_delivers(self.hosts[0]),
              self.assert_delivers(self.hosts[1])):
            servers = self.start_all(image, self.hosts * (SERVERS // 2))
        moved = self.trial.wan_bytes() - before
        self.assertGreater(moved, NEW * MIB)
        self.assertLess(moved, 1.05 * cost + BESIDES)
        for server in servers:
            self.guest(server, boot=1)

    def start_all(self, image, hosts):
        """Ask for a server on each host at once; all become active."""
        with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
            servers = list(pool.map(
                lambda host: self.trial.create(image, host), hosts))
        self.addCleanup(self.trial.delete, *servers)
        for server in servers:
            self.trial.wait_active(server)
        return servers
