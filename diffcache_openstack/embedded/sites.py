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
"""A whole site in one process: conductor, repository and hosts.

It runs the services' own code. What differs from a deployment is only
configuration: messages stay in the process, the database is an SQLite file,
the agents listen on loopback, and their servers are limited to the speed of
the links they stand for: the repository's to that of the WAN, a host's to
that of its port in the LAN.
"""

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import time
import typing
import uuid

from oslo_config import cfg

from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.agent.repository import patch_making
from diffcache_openstack.agent.repository import records
from diffcache_openstack.agent import service as agents
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.conductor import service as conductors
from diffcache_openstack.conf import opts
from diffcache_openstack.db import migration
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.rpc import buses
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.sites import views

SITE = 'embedded'
REPOSITORY = 'repository'
BITS = 8
POLL_SECONDS = 0.05
_KEY_DAYS = 3650


@dataclasses.dataclass(frozen=True)
class HostSpec:
    """A host of the site; capacity is in bytes."""

    name: str
    capacity: int


@dataclasses.dataclass(frozen=True)
class LinkSpec:
    """Speeds of the links in Mbit/s.

    :param wan: what the repository sends to all hosts together
    :param lan: what one host sends to its peers together
    :param local: at which the cost model has a host copy from its own disk
    """

    wan: float
    lan: float
    local: float

    @staticmethod
    def bytes_per_second(mbits: float) -> int:
        """Return the speed in bytes per second, as the data plane takes it."""
        return round(mbits * 1e6 / BITS)


def _stop_all(started: list[agents.Agent]) -> None:
    """Stop agents side by side: each one waits for its RPC server."""
    if started:
        with concurrent.futures.ThreadPoolExecutor(len(started)) as pool:
            list(pool.map(lambda agent: agent.stop(), started))


class _Keys:
    """The keys of all hosts, which are made when they are needed.

    :param directory: of the authority and the keys
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._authority = (directory / 'authority.key',
                           directory / 'authority.pem')

    def of(self, role: str, host: str) -> dict[tuple[str, str], str]:
        """Return the options with which a host signs and verifies."""
        if not self._authority[1].exists():
            self._directory.mkdir(parents=True, exist_ok=True)
            host_keys.create_authority(*self._authority, _KEY_DAYS)
        path = self._directory / f'{role}-{host}.key'
        if not path.exists():
            host_keys.create_host_key(
                self._authority, host_keys.Subject(
                    host, role,
                    None if role == host_keys.CONTROLLER else SITE),
                path, _KEY_DAYS)
        return {('messaging', 'key_file'): str(path),
                ('messaging', 'authority_file'): str(self._authority[1])}


class Site:
    """An embedded site.

    :param directory: holds the database and a state directory per host
    :param hosts: the compute hosts
    :param links: speeds
    :param repository_state: the repository's state directory, which may
        have images from an earlier site
    :param options: further options by (group, name), for all services
    """

    def __init__(self, directory: pathlib.Path,
                 hosts: typing.Sequence[HostSpec], links: LinkSpec,
                 repository_state: pathlib.Path,
                 options: typing.Mapping[tuple[str, str], typing.Any] | None
                 = None) -> None:
        self._directory = directory
        self._links = links
        self._options = dict(options or {})
        self._exchange = f'diffcache-{uuid.uuid4().hex}'
        self._stack = contextlib.ExitStack()
        self._conductor = contextlib.ExitStack()
        self._keys = _Keys(directory / 'keys')
        self._context = contexts.RequestContext.for_service('embedded')
        self.repository = agents.Agent(self._conf({
            **self._keys.of(host_keys.REPOSITORY, REPOSITORY),
            ('agent', 'host'): REPOSITORY,
            ('agent', 'role'): REPOSITORY,
            ('agent', 'state_dir'): str(repository_state),
            ('data_plane', 'rate'): links.bytes_per_second(links.wan)}))
        self.hosts = {spec.name: agents.Agent(self._conf({
            **self._keys.of(host_keys.COMPUTE, spec.name),
            ('agent', 'host'): spec.name,
            ('agent', 'state_dir'): str(directory / spec.name),
            ('agent', 'cache_capacity'): spec.capacity,
            ('data_plane', 'rate'): links.bytes_per_second(links.lan)}))
            for spec in hosts}

    def __enter__(self) -> 'Site':
        self.start()
        return self

    def __exit__(self, *error) -> None:
        self.stop()

    def start(self) -> None:
        """Start all roles, and wait until all are registered."""
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        conf = self._conf(self._keys.of(host_keys.CONTROLLER, 'embedded'))
        migration.upgrade(conf)
        conductor = conductors.ConductorService(conf)
        conductor.start()
        self._conductor.callback(conductor.stop)
        self._stack.callback(self._conductor.close)
        bus = buses.open_bus(conf, host_keys.CONTROLLER)
        self._stack.callback(bus.close)
        self.conductor = conductor_api.ConductorAPI(bus, conf)
        started: list[agents.Agent] = []
        self._stack.callback(_stop_all, started)
        for agent in self.agents():
            agent.start()
            started.append(agent)
        names = {agent.name for agent in self.agents()}
        self.wait(lambda: all(
            {h.name for h in agent.site_map.current().hosts} == names
            for agent in self.agents()), 60, 'the agents to meet')

    def stop(self) -> None:
        """Stop all roles; objects stay on disk."""
        self._stack.close()

    def stop_conductor(self) -> None:
        """Stop the conductor; the agents run without it."""
        self._conductor.close()

    def agents(self) -> list[agents.Agent]:
        """Return the repository's agent and those of the hosts."""
        return [self.repository, *self.hosts.values()]

    def wait(self, ready: typing.Callable[[], bool], timeout: float,
             what: str) -> None:
        """Wait until something is the case.

        :raises RetryableError: it is not after timeout seconds
        """
        deadline = time.monotonic() + timeout
        while not ready():
            if time.monotonic() > deadline:
                raise exceptions.RetryableError(
                    f'Timed out after {timeout:.0f} s waiting for {what}; see '
                    f'the log.')
            time.sleep(POLL_SECONDS)

    def register(self, path: pathlib.Path, image_id: str,
                 name: str) -> records.ImageRecord:
        """Register an image with the repository."""
        return self._images.register(path, image_id, name)

    @property
    def _images(self) -> catalogue.Repository:
        return typing.cast(catalogue.Repository, self.repository.repository)

    def make_patches(self) -> list[records.PatchRecord]:
        """Create all missing patches now, in this thread.

        :returns: all patches there are between registered images
        """
        repository = self._images
        repository.announce()
        self.wait(self._images_reported, 60,
                  'the conductor to know the images of the repository')
        typing.cast(patch_making.PatchMaker,
                    self.repository.patch_maker).make_missing()
        contents = {image.content_id for image in repository.images()}
        return [patch for patch in repository.patches()
                if contents >= {patch.base, patch.target}]

    def _images_reported(self) -> bool:
        """Return whether the conductor knows where the images are.

        It offers a repository only work on images that it holds.
        """
        held = {key for key in self.repository.held.keys()
                if key.kind == views.IMAGES}
        return self.repository.site_map.current().holdings(REPOSITORY) >= held

    def compressed(self) -> bool:
        """Return whether all images have their compressed form."""
        return not self._images.uncompressed()

    def wait_catalogue(self, patches: int, timeout: float = 60) -> None:
        """Wait until every host knows all images and this many patches."""
        contents = {t.content_id for t in self._images.images()}
        self.wait(lambda: all(
            contents <= {t.content_id for t in view.images}
            and len(view.patches) >= patches
            for view in (a.site_map.current() for a in self.hosts.values())),
            timeout, 'the catalogue to reach the hosts')

    def report_history(self, requests: typing.Sequence[tuple[str, str]]
                       ) -> None:
        """Add (host, image id) requests to the conductor's history."""
        self.conductor.report_requests(self._context, [
            objects.Request(id=str(uuid.uuid4()), image_id=image,
                            host=host, started_at=versioned.now())
            for host, image in requests])

    def plan(self) -> objects.Plan:
        """Plan what the hosts hold; they begin to fill at once."""
        plan = self.conductor.plan_now(self._context, SITE)
        self.wait(lambda: all(
            agent.filler.generation == plan.generation
            for agent in self.hosts.values()), 60,
            'the plan to reach the hosts')
        return plan

    def filled(self) -> bool:
        """Return whether every host holds its planned objects, reported."""
        if any(agent.filler.missing() for agent in self.hosts.values()):
            return False
        held = {agent.name: agent.held.keys()
                for agent in self.hosts.values()}
        return all(
            view.holdings(name) >= keys
            for view in (a.site_map.current() for a in self.hosts.values())
            for name, keys in held.items())

    def wan_bytes(self) -> int:
        """Return bytes that the repository has sent so far."""
        return sum(self.repository.plane.stats()['sent'].values())

    def _conf(self, values: dict) -> cfg.ConfigOpts:
        conf = opts.new_config()
        conf.set_override('transport_url', 'fake:/')
        conf.set_override('control_exchange', self._exchange)
        defaults = {
            ('database', 'connection'):
                f'sqlite:///{self._directory / "diffcache.sqlite"}',
            ('agent', 'site'): SITE,
            # It gets no requests, and the directory's name may be too long.
            ('agent', 'socket'): '',
            ('data_plane', 'listen'): '127.0.0.1:0',
            ('notifications', 'enabled'): False,
            ('planner', 'interval'): 0,
            ('planner', 'local_bandwidth'): self._links.local,
            ('planner', 'peer_bandwidth'): self._links.lan,
            ('planner', 'repository_bandwidth'): self._links.wan,
        }
        for (group, name), value in {
                **defaults, **self._options, **values}.items():
            conf.set_override(name, value, group=group)
        return conf
