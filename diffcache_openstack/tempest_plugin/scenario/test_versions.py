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
"""A tenant's server is saved, changed, and put back."""

import re
import typing

from tempest.common import waiters
from tempest import config
from tempest.lib import decorators

from diffcache_openstack.tempest_plugin.scenario import base
from diffcache_openstack.tempest_plugin.services import diffcache_client

CONF = config.CONF
# Guests count on their disk how often they came up, and say so.
_BOOT = re.compile(r'boot=(\d+)')


class TestVersions(base.ScenarioTest):
    """States are identified by what a guest finds on its disk."""

    def setUp(self) -> None:
        """Talk to the API as a tenant."""
        super().setUp()
        self.client = diffcache_client.DiffCacheClient(
            self.os_primary.auth_provider, diffcache_client.SERVICE,
            CONF.identity.region)
        self.servers = self.os_primary.servers_client

    @decorators.idempotent_id('4f6a2d1c-0f0e-4f5d-9d0b-1f1f4c3d7a31')
    def test_saved_changed_and_put_back(self) -> None:
        """Restore back and forth; each state is what it was."""
        server = self.boot(self.upload('base'), manager=self.os_primary)
        first = self.save(server)
        self.assertEqual(2, self.reboot(server))
        second = self.save(server)
        self.assertEqual(first['id'], second['parent_id'])
        self.assertEqual(2, self.put_back(server, first))
        self.assertEqual(3, self.put_back(server, second))

    def save(self, server: str) -> dict[str, typing.Any]:
        """Save a version of a running server."""
        version = self.client.send(
            'versions', {'version': {'server_id': server}}, 202)['version']
        path = f'versions/{version["id"]}'
        self.addCleanup(self.client.remove, path)
        self.wait_until(
            lambda: self.client.fetch(path)['version']['state'] != 'saving',
            f'version {version["id"]} is saved')
        version = self.client.fetch(path)['version']
        self.assertEqual('available', version['state'], version['error'])
        return version

    def put_back(self, server: str, version: dict[str, typing.Any]) -> int:
        """Restore a server; return the count of its guest."""
        self.stop(server)
        task = self.client.send(
            f'versions/{version["id"]}/restore',
            {'restore': {'keep_current': False}}, 202)['version_task']
        path = f'version-tasks/{task["id"]}'
        self.wait_until(
            lambda: self.client.fetch(path)['version_task']['state']
            in ('done', 'failed'), f'task {task["id"]} ends')
        task = self.client.fetch(path)['version_task']
        self.assertEqual('done', task['state'], task['error'])
        return self.comes_up(server)

    def stop(self, server: str) -> None:
        """Stop a server."""
        self.servers.stop_server(server)
        waiters.wait_for_server_status(self.servers, server, 'SHUTOFF')

    def reboot(self, server: str) -> int:
        """Stop a server and start it; returns what its guest counted."""
        self.stop(server)
        return self.comes_up(server)

    def comes_up(self, server: str) -> int:
        """Start a server; returns what its guest counted."""
        self.servers.start_server(server)
        waiters.wait_for_server_status(self.servers, server, 'ACTIVE')
        self.wait_until(lambda: bool(self.counted(server)),
                        f'the guest of server {server} speaks')
        return self.counted(server)

    def counted(self, server: str) -> int:
        """Return the count on the guest's console; 0 until it prints one."""
        console = self.servers.get_console_output(server)['output']
        found = _BOOT.findall(console)
        return int(found[-1]) if found else 0
