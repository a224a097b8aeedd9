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
"""What tests and benchmarks do with an OpenStack that is up."""

import collections.abc
import contextlib
import dataclasses
import json
import pathlib
import signal
import time
import uuid

from keystoneauth1.identity import v3
import keystoneauth1.session
from openstack import connection

from onemachine import cloud
from onemachine import errors
from onemachine import guests
from onemachine import layout
from onemachine import network
from onemachine import place
from onemachine import processes
from onemachine import releases
from onemachine.services import catalogue
from onemachine.services import suite
from onemachine import shell
from onemachine import steps

# Servers without a network need 2.37, and a host by name 2.74.
_COMPUTE = '2.93'
_SECONDS = 900
_POLL = 0.2


@dataclasses.dataclass(frozen=True)
class Booted:
    """A server whose guest has spoken.

    :ivar server: its id
    :ivar host: where it runs
    :ivar active_seconds: from the request until Nova called it active
    :ivar seconds: from the request until the guest's marker
    :ivar line: the marker's line
    """

    server: str
    host: str
    active_seconds: float
    seconds: float
    line: str


class Trial:
    """An OpenStack that is up."""

    def __init__(self, state: pathlib.Path) -> None:
        """Find it.

        :param state: its folder, as given to tools/openstack
        :raises OpenStackError: there is none
        """
        try:
            document = json.loads((state / 'layout.json').read_text())
        except FileNotFoundError as error:
            raise errors.OpenStackError(
                f'nothing is up in {state}: run tools/openstack up'
            ) from error
        self.where = layout.Layout(state, document['computes'],
                                   document.get('volumes', False),
                                   document.get('dashboard', False),
                                   releases.ALL[document['series']])
        self.hosts = self.where.hosts
        self.processes = processes.Processes(self.where)
        self.given = place.Place(self.where, self.processes,
                                 steps.Progress())
        self.network = network.Network(self.given)
        self.admin = catalogue.connect(self.where)
        self.admin.compute.default_microversion = _COMPUTE

    # -- identity

    def member(self, name: str) -> connection.Connection:
        """Return a connection of a user in a project of that name."""
        return self.user(name, name, 'member')

    def user(self, name: str, project: str, role: str
             ) -> connection.Connection:
        """Return a connection of a user with a role in a project.

        Both are created if need be; the password is the administrator's.
        """
        identity = self.admin.identity
        place = (identity.find_project(project, domain_id='default')
                 or identity.create_project(name=project,
                                            domain_id='default'))
        password = self.where.password('admin')
        user = (identity.find_user(name, domain_id='default')
                or identity.create_user(
                    name=name, domain_id='default', password=password,
                    default_project_id=place.id))
        identity.assign_project_role_to_user(
            place, user, identity.find_role(role))
        session = keystoneauth1.session.Session(v3.Password(
            auth_url=f'{self.where.url("keystone")}/v3', username=name,
            password=password, project_name=project,
            user_domain_id='default', project_domain_id='default'))
        cloud = connection.Connection(session=session,
                                      region_name='RegionOne')
        cloud.compute.default_microversion = _COMPUTE
        return cloud

    # -- images

    def guests(self) -> dict[str, pathlib.Path]:
        """Return the family of bootable images, raw, built if need be."""
        return guests.Guests(self.where.folder('cache', 'guests'),
                             self.given.progress.say).ensure()

    def upload(self, name: str, path: pathlib.Path, form: str = 'raw',
               who: connection.Connection | None = None,
               visibility: str = 'public', **properties: str) -> str:
        """Upload an image at the centre; returns its id when active.

        :param form: its disk format
        :param who: who uploads; the administrator if none
        """
        image = (who or self.admin).image
        made = image.create_image(
            name=name, filename=str(path), disk_format=form,
            container_format='bare', visibility=visibility,
            validate_checksum=False, wait=True, timeout=_SECONDS,
            **properties)
        return made.id

    # -- servers

    def create(self, image: str, host: str | None = None,
               flavor: str = 'tiny', name: str | None = None,
               who: connection.Connection | None = None) -> str:
        """Ask for a server; returns its id at once.

        :param host: where it has to run; only for the administrator
        """
        compute = (who or self.admin).compute
        more = {'availability_zone': f'nova:{host}'} if host else {}
        server = compute.create_server(
            name=name or f'trial-{uuid.uuid4().hex[:8]}', image_id=image,
            flavor_id=self.flavor(flavor), networks='none', **more)
        return server.id

    def flavor(self, name: str) -> str:
        """Return the ID of a flavor."""
        return self.admin.compute.find_flavor(
            name, ignore_missing=False).id

    def wait_for_guest(self, server: str, started: float) -> Booted:
        """Wait until a guest has printed its marker.

        :param started: when it was requested, by time.monotonic()
        :raises OpenStackError: the server failed, or nothing was printed
        """
        host = self.wait_active(server)
        active = time.monotonic() - started
        line = self.wait_for_line(server, host, guests.MARKER)
        return Booted(server, host, active, time.monotonic() - started, line)

    def boot(self, image: str, host: str | None = None,
             flavor: str = 'tiny', name: str | None = None) -> Booted:
        """Create a server and wait for its guest's marker."""
        started = time.monotonic()
        return self.wait_for_guest(
            self.create(image, host, flavor, name), started)

    def wait_active(self, server: str) -> str:
        """Wait until a server is active; returns its host.

        :raises OpenStackError: it failed; the message has the reason
        """
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            found = self.admin.compute.get_server(server)
            if found.status == 'ACTIVE':
                return found.compute_host
            if found.status == 'ERROR':
                raise errors.OpenStackError(
                    f'server {server} failed:'
                    f' {(found.fault or {}).get("message")}; see'
                    f' {self.where.log}')
            time.sleep(_POLL)
        raise errors.OpenStackError(
            f'server {server} is not active after {_SECONDS} s')

    def wait_for_line(self, server: str, host: str, text: str,
                      seconds: float = 600) -> str:
        """Wait until a guest has printed a line with a text; return it."""
        path = self.inside(
            host, self.where.host / 'instances' / server / 'console.log')
        deadline = time.monotonic() + seconds
        printed = ''
        while time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError):
                printed = path.read_text(errors='replace')
            for line in printed.splitlines(keepends=True):
                if text in line and line.endswith('\n'):
                    return line.strip()
            time.sleep(_POLL)
        raise errors.OpenStackError(
            f'the guest of server {server} on {host} did not print "{text}"'
            f' within {seconds:.0f} s, but:\n{printed}')

    def delete(self, *servers: str) -> None:
        """Delete servers and wait until they are gone."""
        compute = self.admin.compute
        for server in servers:
            compute.delete_server(server, ignore_missing=True)
        deadline = time.monotonic() + _SECONDS
        while any(compute.find_server(server, all_projects=True)
                  for server in servers):
            if time.monotonic() > deadline:
                raise errors.OpenStackError(
                    f'servers {", ".join(servers)} cannot be deleted')
            time.sleep(_POLL)

    # -- hosts and services

    def inside(self, host: str, path: pathlib.Path) -> pathlib.Path:
        """Return a path of a compute host as this process can open it.

        :raises OpenStackError: the host is down
        """
        holder = self.processes.pid(f'{host}-host')
        if holder is None:
            raise errors.OpenStackError(f'{host} is down')
        return pathlib.Path(f'/proc/{holder}/root{path}')

    def instances(self, host: str) -> pathlib.Path:
        """Return the folder with a host's servers and Nova's base images."""
        return self.inside(host, self.where.host / 'instances')

    def socket(self, agent: str) -> pathlib.Path:
        """Return the socket of ``repository``, ``edge`` or a host's agent."""
        path = suite.socket(self.where, agent)
        return self.inside(agent, path) if agent in self.hosts else path

    def log(self, name: str) -> pathlib.Path:
        """Return a process's log, named as in ``tools/openstack status``."""
        return self.processes.log(name)

    @contextlib.contextmanager
    def stopped(self, *names: str, number: int | None = None
                ) -> collections.abc.Iterator[None]:
        """Have processes stopped for a while.

        :param number: signal to end them with, if not SIGTERM
        """
        for name in names:
            if number is None:
                self.processes.stop(name)
            else:
                self.processes.stop(name, number)
        try:
            yield
        finally:
            self.up()

    def kill_ssd_cache(self, host: str) -> None:
        """Kill a host's SSD cache, and start it again as systemd does."""
        self.processes.stop(f'{host}-ssd-cache', signal.SIGKILL)
        self._cloud().suite.ensure_ssd_cache(host)

    def up(self) -> None:
        """Start what does not run."""
        self._cloud().up()

    def _cloud(self) -> cloud.Cloud:
        document = json.loads(
            (self.where.state / 'layout.json').read_text())
        return cloud.Cloud(self.given, suite.Caching(
            document['caching'], document.get('options', {})),
            document['wan'])

    @staticmethod
    def run(*words: object) -> str:
        """Run a command; returns its output."""
        return shell.run(*words)

    def wan_bytes(self) -> int:
        """Return the bytes that crossed the link towards the site so far."""
        return self.network.wan_bytes()['to_site']
