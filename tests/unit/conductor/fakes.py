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
"""What stands in the place of other services."""

import dataclasses
import queue

from diffcache_openstack.agent.endpoints import agent_endpoint
from diffcache_openstack.agent.endpoints import lazy_endpoint
from diffcache_openstack.agent.endpoints import versions_endpoint
from diffcache_openstack.agent.endpoints import volumes_endpoint
from diffcache_openstack.cloud import servers
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from diffcache_openstack.rpc import conductor_versions_api

SECONDS = 30


class Nova:
    """Servers of two projects; see :class:`.servers.Servers`.

    ``running`` and ``stopped`` belong to the first project and are on host
    h1; ``foreign`` belongs to the second one.
    """

    def __init__(self, project: str, other: str):
        self.servers = {server.id: server for server in (
            servers.Server('running', project, 'ACTIVE', 'h1',
                           image_id='t1'),
            servers.Server('stopped', project, 'SHUTOFF', 'h1',
                           image_id='t1'),
            servers.Server('foreign', other, 'ACTIVE', 'h2'))}
        self._other = other
        # Users whom Nova shows each server, and servers it shows no user.
        self.wide = ('admin',)
        self.hidden = set()
        # Servers by the volumes that are attached to them; None: no answer.
        self.volumes = {}
        # Whether it does not answer about hosts.
        self.silent = False

    def get(self, server_id, token=None):
        """A server; a token is the name of its user."""
        server = self.servers.get(server_id)
        seen = server is not None and (
            token is None or token in self.wide
            or (token == 'other') == (server.project_id == self._other)
            and server_id not in self.hidden)
        if not seen:
            raise exceptions.NotFound(f'Server {server_id} is unknown')
        return server

    def of_project(self, project_id):
        """The servers of a project."""
        return [server for server in self.servers.values()
                if server.project_id == project_id]

    def on(self, host):
        """The servers of a host."""
        if self.silent:
            raise exceptions.ServiceUnavailable('Nova does not answer')
        return [server for server in self.servers.values()
                if server.host == host]

    def volumes_on(self, host):
        """Servers of a host by their volumes."""
        if self.volumes is None:
            raise exceptions.ServiceUnavailable('Nova does not answer')
        return {volume: self.servers[server]
                for volume, server in self.volumes.items()
                if self.servers[server].host == host}

    def change(self, server_id, **values):
        """Have a server be otherwise."""
        self.servers[server_id] = dataclasses.replace(
            self.servers[server_id], **values)


class Host:
    """Stands where the agent of a host would; tests say how work ends."""

    def __init__(self, conductor, ctxt):
        self.tasks = self
        self._conductor = conductor
        self._ctxt = ctxt
        self._given = queue.Queue()
        self.cancelled = queue.Queue()

    def perform(self, task):
        self._given.put(task)

    def cancel(self, task_id):
        self.cancelled.put(task_id)

    def hold(self, generation, items, limits):
        """Nothing is held."""

    def site_map_changed(self, generation):
        """Nobody looks at the map."""

    def next(self):
        """The task that is given next."""
        return self._given.get(timeout=SECONDS)

    def idle(self):
        """Whether nothing was given that was not taken."""
        return self._given.empty()

    def report(self, task, state=versions.DONE, **values):
        """Tell how far a task is."""
        return self._conductor.report_task(self._ctxt, objects.TaskReport(
            task_id=task.id, state=state, **values))


class Cinder:
    """Volumes; see :class:`.volumes.Volumes`.

    ``volumes`` is None while it does not answer.
    """

    def __init__(self):
        self.volumes = {}
        self.tokens = []

    def get(self, volume_id, context):
        """A volume."""
        if self.volumes is None:
            raise exceptions.ServiceUnavailable('Cinder does not answer')
        self.tokens.append(context.auth_token)
        try:
            return self.volumes[volume_id]
        except KeyError:
            raise exceptions.Forbidden(
                f'--exclude-volume {volume_id}') from None

    def get_as_service(self, volume_id):
        """A volume, with the conductor's rights."""
        if self.volumes is None:
            raise exceptions.ServiceUnavailable('Cinder does not answer')
        if volume_id not in self.volumes:
            raise exceptions.NotFound(f'no volume {volume_id}')
        return self.volumes[volume_id]


def saved(number=1, **values):
    """What a save came to."""
    return objects.SavedVersion(**{
        'disks': [objects.VersionDisk(
            device='vda', size=2 ** 30, base_name='/secret/_base/x',
            version=f'00000000-0000-4000-8000-{number:012d}')],
        'size': 2 ** 30, 'bytes_changed': 8192, 'bytes_read': 16384,
        'bytes_stored': 5000, 'seconds': 0.5, 'pause_ms': 12.5,
        'quiesced': True, **values})


def listen_for_volumes(test, name, volumes):
    """Have a host answer about volumes in its SSD cache, during a test."""
    server = agent_endpoint.new_server(
        test.bus, name, volumes_endpoint.VolumesManager(volumes))
    server.start()
    test.addCleanup(server.wait)
    test.addCleanup(server.stop)


def listen_for_hydrations(test, name, hydrations):
    """Have a host answer about images that arrive there, during a test."""
    server = agent_endpoint.new_server(
        test.bus, name, lazy_endpoint.LazyManager(hydrations))
    server.start()
    test.addCleanup(server.wait)
    test.addCleanup(server.stop)


def listen(test, name):
    """A host that takes tasks for the time of a test."""
    host = Host(conductor_versions_api.VersionsAPI(test.bus, test.conf),
                test.ctxt)
    server = agent_endpoint.new_server(
        test.bus, name, versions_endpoint.VersionsManager(host))
    server.start()
    test.addCleanup(server.wait)
    test.addCleanup(server.stop)
    return host
