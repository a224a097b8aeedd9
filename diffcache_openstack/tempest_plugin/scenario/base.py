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
"""What the scenarios share: images, guests, agents and the link's bytes."""

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
import time
import typing

from tempest.common import waiters
from tempest import config
from tempest.lib.common import api_microversion_fixture
from tempest.lib.common.utils import data_utils
from tempest.lib.common.utils import test_utils
from tempest.lib import exceptions
from tempest import test

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions as ours

CONF = config.CONF

# Servers without a network need 2.37, image pre-caching 2.81.
MICROVERSION = '2.93'
_POLL = 0.5
_NEW_BYTES = 1 << 20


class ScenarioTest(test.BaseTestCase):
    """A scenario, with an administrator and two tenants."""

    credentials = ['admin', 'primary', 'alt']

    @classmethod
    def skip_checks(cls) -> None:
        """Skip where the suite is not, or is not described."""
        super().skip_checks()
        if not CONF.service_available.diffcache:
            raise cls.skipException('the cloud has no DiffCache')
        for name in ('agent_sockets', 'image_files'):
            if not CONF.diffcache[name]:
                raise cls.skipException(f'[diffcache] {name} is not set')

    @classmethod
    def setup_credentials(cls) -> None:
        """Create users without networks, which no test needs.

        A network comes with a router, which a cloud without L3 refuses.
        """
        cls.set_network_resources()
        super().setup_credentials()

    def setUp(self) -> None:
        """Use a version of Nova's API with the attributes of our servers."""
        super().setUp()
        self.useFixture(api_microversion_fixture.APIMicroversionFixture(
            compute_microversion=MICROVERSION))
        self.hosts = sorted(CONF.diffcache.agent_sockets)

    # -- images

    def upload(self, which: str, manager: typing.Any = None,
               visibility: str = 'public') -> str:
        """Upload one of the image files, and wait until all agents know it.

        :param which: a key of ``[diffcache] image_files``
        :param manager: who uploads; the administrator if none
        :returns: the image's id
        """
        return self._upload_file(
            which, CONF.diffcache.image_files[which],
            manager or self.os_admin, visibility)

    def _upload_file(self, which: str, path: str, manager: typing.Any,
                     visibility: str) -> str:
        client = manager.image_client_v2
        image = client.create_image(
            name=data_utils.rand_name(f'diffcache-{which}'),
            disk_format='raw', container_format='bare',
            visibility=visibility)
        self.addCleanup(test_utils.call_and_ignore_notfound_exc,
                        self.os_admin.image_client_v2.delete_image,
                        image['id'])
        with open(path, 'rb') as file:
            client.store_image_file(image['id'], file)
        # Nova downloads by itself what the agents do not know yet.
        for host in self.hosts:
            self.described(host, image['id'])
        return image['id']

    def upload_new(self, which: str) -> str:
        """Upload one of the image files with unique data.

        :param which: a key of ``[diffcache] image_files``
        """
        with tempfile.NamedTemporaryFile() as file:
            shutil.copy(CONF.diffcache.image_files[which], file.name)
            with open(file.name, 'ab') as end:
                end.write(os.urandom(_NEW_BYTES))
            return self._upload_file(which, file.name, self.os_admin,
                                     'public')

    def upload_noise(self, size: int) -> str:
        """Upload random data, which no base and no peer of the site has.

        A server of it starts, and finds nothing to boot from.

        :param size: in bytes
        :returns: the image's id
        """
        with tempfile.NamedTemporaryFile() as file:
            file.write(os.urandom(size))
            file.flush()
            return self._upload_file('noise', file.name, self.os_admin,
                                     'public')

    # -- agents

    def agent(self, host: str) -> local_client.LocalClient:
        """Return the agent of a host."""
        return local_client.LocalClient(CONF.diffcache.agent_sockets[host],
                                        timeout=30)

    def held(self, host: str, content: str) -> set[str]:
        """Return the raw content of an agent: ``images``, ``manifests``.

        :param content: its id, as the agent describes images
        """
        return {kind for kind, name, _
                in self.agent(host).status()['holdings'] if name == content}

    def described(self, host: str, image: str) -> dict[str, typing.Any]:
        """Return how an image would come to a host, once known there."""
        found: dict[str, typing.Any] = {}

        def is_known() -> bool:
            with contextlib.suppress(ours.NotFound):
                found.update(self.agent(host).image(image))
            return bool(found)

        self.wait_until(is_known, f'the agent of {host} knows image {image}')
        return found

    def wait_until(self, condition: typing.Callable[[], bool],
                   what: str) -> None:
        """Wait until something is so.

        :param what: named when it does not become so
        :raises TimeoutException: it took longer than ``[diffcache] timeout``
        """
        deadline = time.monotonic() + CONF.diffcache.timeout
        while not condition():
            if time.monotonic() > deadline:
                raise exceptions.TimeoutException(
                    f'not within {CONF.diffcache.timeout} s: {what}')
            time.sleep(_POLL)

    # -- servers

    def start(self, image: str, host: str | None = None,
              manager: typing.Any = None) -> str:
        """Create a server until it is active; returns its id.

        :param host: where; only the administrator may choose
        :param manager: whose server it is; the administrator's if none
        """
        server = self.create(image, host, manager)
        client = (manager or self.os_admin).servers_client
        waiters.wait_for_server_status(client, server, 'ACTIVE')
        return server

    def boot(self, image: str, host: str | None = None,
             manager: typing.Any = None) -> str:
        """Create a server and wait until its guest prints the marker."""
        server = self.start(image, host, manager)
        client = (manager or self.os_admin).servers_client
        self.wait_until(
            lambda: CONF.diffcache.marker in client.get_console_output(
                server)['output'],
            f'the guest of server {server} speaks')
        return server

    def create(self, image: str, host: str | None = None,
               manager: typing.Any = None,
               metadata: dict[str, str] | None = None) -> str:
        """Ask for a server; returns its id."""
        client = (manager or self.os_admin).servers_client
        more: dict[str, typing.Any] = {'host': host} if host else {}
        if metadata:
            more['metadata'] = metadata
        server = client.create_server(
            name=data_utils.rand_name('diffcache'), imageRef=image,
            flavorRef=CONF.compute.flavor_ref, networks='none',
            **more)['server']['id']
        self.addCleanup(self.delete, server)
        return server

    def delete(self, server: str) -> None:
        """Delete a server, and wait until it is gone."""
        client = self.os_admin.servers_client
        test_utils.call_and_ignore_notfound_exc(client.delete_server, server)
        waiters.wait_for_server_termination(client, server)

    def host_of(self, server: str) -> str:
        """Return the host that a server runs on."""
        found = self.os_admin.servers_client.show_server(server)['server']
        return found['OS-EXT-SRV-ATTR:host']

    # -- the cloud

    def wan_bytes(self) -> int:
        """Return the bytes that crossed the WAN so far.

        :raises SkipTest: the cloud's description has no command for it
        """
        return int(self.command('wan_bytes_command'))

    def command(self, name: str) -> str:
        """Run a command of the cloud's description; returns its output.

        :param name: of the option that has it
        :raises SkipTest: it is not set
        """
        words = shlex.split(CONF.diffcache[name])
        if not words:
            raise self.skipException(f'[diffcache] {name} is not set')
        return subprocess.run(words, check=True, capture_output=True,
                              text=True).stdout
