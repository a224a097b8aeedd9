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
"""A site on its own broker and database, whose parts can be made to fail."""

from concurrent import futures
import pathlib
import random
import signal
import subprocess
import uuid

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from diffcache_openstack.db import engine
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import conductor_versions_api
from testing import mariadb
from testing import rabbitmq
from testing import server
from tests.functional.agent import family
from tests.functional.agent import servers
from tests.functional.chaos import wires
from tests.functional.fixtures import deployment
from tests.functional.fixtures import libvirt
from tests import waiting

MIB = family.MIB
HOSTS = ('host-1', 'host-2')
REPOSITORY = 'hub'
CONDUCTORS = ('conductor-1', 'conductor-2')
AGENTS = (REPOSITORY, *HOSTS)
# Less than two of the images; patches besides.
CAPACITY = 14 * MIB
# Of the file system of a host, with what is built and delivered.
ROOM = 192 * MIB
OPTIONS: dict[str, dict[str, object]] = {
    'conductor': {'rpc_timeout': 10},
    'oslo_messaging_rabbit': {
        'rabbit_retry_interval': 1, 'rabbit_interval_max': 1,
        'kombu_reconnect_delay': 0.2, 'heartbeat_timeout_threshold': 6}}


class Site(deployment.Deployment):
    """Two conductors, a repository and two hosts with a server each.

    Nova and Glance are answered for, as in the tests of versions.
    """

    def __init__(self) -> None:
        self.broker = rabbitmq.RabbitMQ(virtual_hosts=1)
        self.database_server = mariadb.MariaDB()
        super().__init__(self.broker, self.database_server, OPTIONS)

    def _setUp(self):
        # Servers end with the thread that started them.
        self._starter = futures.ThreadPoolExecutor(1)
        self.addCleanup(self._starter.shutdown)
        for one in (self.broker, self.database_server):
            self.addCleanup(one.stop)
            self.start_server(one)
        super()._setUp()
        self._broker_wires = {}
        self.data_wires = {}
        self.processes = {}
        self._starts = dict.fromkeys((*CONDUCTORS, *AGENTS), 0)
        self._ports = {name: server.free_port() for name in AGENTS}
        for name in AGENTS:
            self.data_wires[name] = wires.Wire(self._ports[name])
        for name in self._starts:
            self._broker_wires[name] = wires.Wire(self.broker.port)
        for wire in (*self.data_wires.values(), *self._broker_wires.values()):
            self.addCleanup(wire.close)
        self.libvirt = self.useFixture(libvirt.Libvirt())
        self.cloud = servers.Cloud()
        self.addCleanup(self.cloud.server_close)
        self.addCleanup(self.cloud.shutdown)
        self.key_file = self.directory / 'site.key'
        keys.create_key(self.key_file)
        self.instances = self.directory / 'instances'
        self.instances.mkdir()
        for host in HOSTS:
            self._make_room(self.state(host))
        self.agents = agent_api.AgentAPI(self.bus, self.conf)
        self.versions = conductor_versions_api.VersionsAPI(self.bus, self.conf)
        self.database = engine.Database(self.conf)
        self.addCleanup(self.database.close)
        for name in self._starts:
            self.launch(name)
        self.wait(self.is_whole)

    def start_server(self, one: server.Server) -> None:
        """Start a server, and wait until it serves."""
        self._starter.submit(one.start).result()

    def _make_room(self, directory: pathlib.Path) -> None:
        directory.mkdir()
        subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={ROOM}', 'none',
                        directory], check=True)
        # After the processes that are in it.
        self.addCleanup(subprocess.run, ['umount', '--lazy', directory],
                        check=True)

    def state(self, name: str) -> pathlib.Path:
        """Return the state directory of an agent."""
        return self.directory / name

    def socket(self, host: str) -> pathlib.Path:
        """Return where an agent is asked for images by Nova."""
        return self.directory / f'{host}.sock'

    def wires(self, name: str) -> list[wires.Wire]:
        """Return all connections of a process."""
        found = [self._broker_wires[name]]
        if name in self.data_wires:
            found.append(self.data_wires[name])
        return found

    def launch(self, name: str) -> None:
        """Start a process, and wait until it is ready."""
        self.begin(name)
        self.processes[name].wait_for(
            'is ready' if name in CONDUCTORS else f'Agent {name} serves')

    def begin(self, name: str) -> None:
        """Start a process."""
        # A log of its own: that of the process before has the same words.
        number = self._starts[name] = self._starts[name] + 1
        url = self.transport_url.replace(
            f':{self.broker.port}/', f':{self._broker_wires[name].port}/')
        script, groups = ('diffcache-conductor', self._conductor()
                          ) if name in CONDUCTORS else (
                              'diffcache-agent', self._agent(name))
        self.processes[name] = self.start(
            script, f'{name}.{number}', DEFAULT={'transport_url': url},
            **groups)

    def kill(self, name: str) -> None:
        """End a process as the kernel does."""
        self.processes[name].stop(signal.SIGKILL)

    def _conductor(self):
        return {'nova': {'auth_type': 'none',
                         'endpoint_override': self.cloud.url},
                'planner': {'interval': 5},
                'versions': {'resend_interval': 3, 'verify_interval': 0,
                             'prune_interval': 10}}

    def _agent(self, name):
        return {
            'agent': {
                'host': name, 'heartbeat_interval': 2,
                'site': 'centre' if name == REPOSITORY else 'edge',
                'role': 'repository' if name == REPOSITORY else 'compute',
                'cache_capacity': CAPACITY, 'state_dir': self.state(name),
                'socket': self.socket(name),
                'output_directories': self.instances},
            'data_plane': {
                'listen': f'{server.LOOPBACK}:{self._ports[name]}',
                'advertise_url': f'http://{server.LOOPBACK}:'
                                 f'{self.data_wires[name].port}',
                'key_file': self.key_file},
            'glance': {'auth_type': 'none',
                       'endpoint_override': self.cloud.url},
            'repository': {'image_directories': self.instances},
            'versions': {'store': f'file://{self.directory}/store',
                         'directories': self.instances,
                         'libvirt_uri': self.libvirt.uri}}

    def is_whole(self) -> bool:
        """Whether each host has all agents on its map, and they answer."""
        return all(len(self.status(name)['hosts']) == len(AGENTS)
                   for name in HOSTS) and bool(self.status(REPOSITORY))

    def status(self, host: str) -> dict:
        """Return what an agent is doing."""
        return self.agents.status(self.context, host)

    def wait(self, ready, what: str = 'the site'):
        """Wait until something is so; what does not answer is not so."""
        return waiting.until(ready, what, exceptions.ServiceUnavailable,
                             seen=self.printed)

    def register(self, name: str, path: pathlib.Path) -> None:
        """Register an image with the repository."""
        self.agents.register_image(self.context, REPOSITORY, str(path), name,
                                   name)

    def new_server(self, host: str, noise: random.Random
                   ) -> tuple[str, pathlib.Path]:
        """Return the ID of a stopped server and its disk."""
        disk = self.instances / f'disk-{host}'
        disk.write_bytes(noise.randbytes(4 * MIB) + bytes(4 * MIB))
        server_id = str(uuid.UUID(int=noise.getrandbits(128), version=4))
        self.libvirt.disk_format = 'raw'
        self.libvirt.define(server_id, disk)
        self.cloud.servers[server_id] = {
            'id': server_id, 'tenant_id': servers.PROJECT,
            'status': 'SHUTOFF', 'OS-EXT-SRV-ATTR:host': host,
            'OS-EXT-STS:task_state': None, 'image': {'id': 'an-image'}}
        return server_id, disk
