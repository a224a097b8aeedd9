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
"""The agent: puts the parts together and runs them."""

import contextlib
import dataclasses
import datetime
import fcntl
import functools
import os
import pathlib
import threading
import typing

from oslo_config import cfg
from oslo_log import log
from stevedore import driver
from stevedore import exception as stevedore_exception

from diffcache_openstack import _native
from diffcache_openstack.agent import identity
from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images import costs
from diffcache_openstack.agent.images import filling
from diffcache_openstack.agent.images import job_limits
from diffcache_openstack.agent.images import recipes
from diffcache_openstack.agent.images import retention
from diffcache_openstack.agent.images import serving
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.agent.images import throttle
from diffcache_openstack.agent.images import transfers
from diffcache_openstack.agent import link
from diffcache_openstack.agent.local import server as local_api
from diffcache_openstack.agent.local import usage
from diffcache_openstack.agent.local import worker
from diffcache_openstack.agent import manager
from diffcache_openstack.agent import plane
from diffcache_openstack.agent.repository import catalogue as repository
from diffcache_openstack.agent.repository import ingest
from diffcache_openstack.agent.repository import pair_choice
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import request_spool
from diffcache_openstack.agent.state import site_map_file
from diffcache_openstack.agent.state import withdrawal
from diffcache_openstack.agent.versions import service as version_service
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.blocks import native
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from diffcache_openstack.common import messaging
from diffcache_openstack.common import service
from diffcache_openstack.common import windows
from diffcache_openstack import objects
from diffcache_openstack.objects import base as objects_base
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.rpc import conductor_versions_api
from diffcache_openstack.sites import view as views

LOG = log.getLogger(__name__)

REPOSITORY = 'repository'
# Entry points of image services.
SOURCES = 'diffcache.agent.sources'
WILDCARDS = ('0.0.0.0', '[::]')


class Agent(service.Service):
    """The agent of one host.

    It starts and works without conductor and broker, from the site map of
    its last run.

    :param conf: a configuration with all groups registered
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self.name = conf.agent.host
        self._state = pathlib.Path(conf.agent.state_dir)
        self._stack = contextlib.ExitStack()
        self._closing = threading.Event()
        self.repository: repository.Repository | None = None
        self.ingest: ingest.Ingest | None = None

    # -- life

    def start(self) -> None:
        """Begin to hold, serve and talk.

        :raises InvalidInput: an option cannot be used
        :raises Conflict: another agent uses the state directory
        """
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise

    def stop(self, graceful: bool = False) -> None:
        """Stop serving; transfers that are cut off are resumed next time."""
        self._closing.set()
        self._stack.close()

    def _start(self) -> None:
        self._stack.enter_context(_only_one(self._state))
        self.plane = self._open_plane()
        self.held = self._open_holdings()
        self.keeper = site_map_file.SiteMapKeeper(
            self._state / 'site_map.json')
        self.bus = messaging.Bus(self.conf, objects_base.Serializer())
        self._stack.callback(self.bus.close)
        self.conductor = conductor_api.ConductorAPI(self.bus, self.conf)
        self._put_together()
        self._start_threads()
        LOG.info('Agent %s serves %s, holds %d objects', self.name,
                 self.plane.url, len(self.held.keys()))

    def _put_together(self) -> None:
        conf = self.conf
        self.flights = single_flight.SingleFlight(
            self.held.root / holdings.STAGING)
        self.cache = retention.Keeper(self.held, self._filled)
        self._keep, keep_patch = (
            (self.cache.keep, self.cache.keep_patch)
            if conf.agent.keep_requested
            else (retention.leave, retention.leave_patch))
        self.gate = throttle.WanGate()
        self.spool = request_spool.Spool(self._state / 'requests')
        self.transfers = transfers.Transfers(
            self.plane, self.keeper.current, conf.agent.lend_seconds,
            conf.data_plane.claim_ttl)
        native_tools = image_tools.ImageTools()
        self.maker = building.Maker(
            self.plane, self.held, self.transfers, self.flights,
            self.keeper.current, native_tools.apply_patch, self._suspect,
            self.conf.planner.max_patches, keep_patch)
        pending = serving.PendingOutputs(self._state / 'outputs')
        pending.clean()
        self.contents = contents.Contents(
            self.maker, self.held, self.flights, self._keep)
        self.server = serving.ImageServer(
            self.contents, self.held, self._new_pace, pending)
        self.link = link.ConductorLink(
            self.conductor, agent_api.AgentAPI(self.bus, conf), self._describe,
            self.held.sizes, self.keeper, self.spool,
            conf.agent.heartbeat_interval, self._map_learned,
            self._report_fills)
        self.filler = filling.Filler(
            self.maker, self.held, self.flights, self.gate,
            self.plane.new_cancel, self.keeper.current,
            filling.Limits(conf.fill.max_rate or None,
                           windows.Windows(conf.fill.windows).open_now,
                           conf.fill.concurrency, conf.agent.forms_capacity),
            self._state / 'plan.json', self._filled,
            self.link.something_changed)
        self.versions = version_service.VersionService(
            conf, self, conductor_versions_api.VersionsAPI(self.bus, conf),
            self.name)
        self._put_local_together(native_tools)
        if conf.agent.role == REPOSITORY:
            self.repository = self._open_repository(native_tools)
            self.ingest = self._open_ingest(self.repository, native_tools)

    def _put_local_together(self, native_tools) -> None:
        options = self.conf.agent
        self.withdrawal = withdrawal.Withdrawal(
            self.held, self.plane.end_lending, native_tools.patch_ends)
        prices = costs.Costs(self.maker, self.held, self.flights,
                             self.keeper.current)
        self.files = recipes.Files(
            self.maker, self.held, self.flights, self.contents, prices,
            self._new_pace,
            recipes.Store(self._state / 'files', options.file_cache_capacity),
            native_tools)
        self.local = worker.LocalWorker(
            self, prices, self.files, usage.Usage(self._state / 'usage.json'),
            worker.Outputs(options.output_directories))

    def _start_threads(self) -> None:
        # What the last map forbids may have been held by a crash's leftovers.
        self._drop_withdrawn()
        self.versions.start()
        self._stack.callback(self.versions.stop)
        if self.conf.agent.socket:
            server = local_api.LocalApi(
                pathlib.Path(self.conf.agent.socket),
                self.conf.agent.socket_group, self.local)
            server.start()
            self._stack.callback(server.stop)
        self._stack.callback(self._stop_server,
                             self._start_server_when_possible())
        if self.repository is None:
            self.filler.start()
            self._stack.callback(self.filler.stop)
        else:
            self.link.on_contact(functools.partial(_announce, self.repository))
            self.repository.start()
            self._stack.callback(self.repository.stop)
            if self.ingest is not None:
                self.ingest.start()
                self._stack.callback(self.ingest.stop)
        self.link.start()
        self._stack.callback(self.link.stop)

    def _open_plane(self) -> plane.Plane:
        conf = self.conf.data_plane
        key = keys.read_key(conf.key_file) if conf.key_file else None
        shown = identity.Identity(self.conf)
        with native.translated():
            opened = _native.DataPlane(
                str(self._state / 'objects'), self.name, conf.listen,
                key=key, key_name=conf.key_name, rate=conf.rate or None,
                latency=conf.latency, claim_ttl=float(conf.claim_ttl),
                advertise_url=conf.advertise_url or self._derived_url(),
                **shown.options())
        self._stack.callback(opened.close)
        wrapped = plane.Plane(opened, self.name)
        if shown.files:
            shown.start(wrapped)
            self._stack.callback(shown.stop)
        return wrapped

    def _derived_url(self) -> str | None:
        """What peers are told if the listening address tells them nothing.

        :raises InvalidInput: nothing can be derived
        """
        address, _, port = self.conf.data_plane.listen.rpartition(':')
        if address not in WILDCARDS:
            return None
        if port == '0':
            raise exceptions.InvalidInput(
                '[data_plane] listen names neither address nor port, so '
                'peers cannot be told one; give a port, or advertise_url.')
        scheme = identity.scheme(self.conf)
        return f'{scheme}://{self.name}:{port}'

    def _open_holdings(self) -> holdings.Holdings:
        capacity = self.conf.agent.cache_capacity
        if self.conf.agent.role == REPOSITORY:
            capacity = None
        held = holdings.Holdings(self._state / 'objects', capacity,
                                 plane.NativeInspector(), self.plane.readers)
        held.scan()
        return held

    def _open_repository(self, native_tools) -> repository.Repository:
        conf = self.conf.repository
        catalogue = link.ConductorCatalogue(
            self.conductor, self.link.context, self.name)
        return repository.Repository(
            self.held, self._state, native_tools, catalogue,
            repository.Options(
                conf.patch_level,
                pair_choice.Limits(conf.max_patch_ratio, conf.nearest_bases),
                functools.partial(_may_make_patches,
                                  windows.Windows(conf.windows),
                                  conf.max_load),
                conf.scan_interval),
            self.link.something_changed)

    def _open_ingest(self, into: repository.Repository, native_tools
                     ) -> ingest.Ingest | None:
        """What keeps the repository equal to an image service.

        :raises InvalidInput: the service named is unknown, or its options
            do not suffice
        """
        name = self.conf.repository.image_source
        if not name:
            return None
        try:
            found = driver.DriverManager(SOURCES, name, invoke_on_load=True,
                                         invoke_args=(self.conf,))
        except stevedore_exception.NoMatches as error:
            raise exceptions.InvalidInput(
                f'[repository] image_source "{name}" is unknown; use glance,'
                f' or leave it empty.') from error
        source = typing.cast(ingest.Source, found.driver)
        return ingest.Ingest(source, into, self.held, native_tools)

    def _start_server_when_possible(self) -> list:
        """Listen on the broker, in a thread: it may be dead for hours.

        :returns: a list that the server is put into
        """
        server = manager.serve(
            self.bus, self.name, self,
            version_service.VersionsManager(self.versions))
        started: list = []

        def start() -> None:
            server.start()
            started.append(server)
            if self._closing.is_set():
                self._stop_server(started)

        threading.Thread(target=start, daemon=True, name='rpc-start').start()
        return started

    @staticmethod
    def _stop_server(started: list) -> None:
        while started:
            server = started.pop()
            server.stop()
            server.wait()

    # -- what the manager delegates here

    def hold(self, generation: int, items: list[tuple[str, str, float]],
             limits: typing.Sequence[typing.Sequence] = ()) -> None:
        """Follow a plan: what to hold, in which order.

        :param limits: what precache jobs allow, as :func:`shares.load` reads
        :raises InvalidInput: a time window among them cannot be read
        """
        if self.repository is not None:
            return
        self.filler.hold(filling.Plan(generation, tuple(
            holdings.Wanted(views.Key(kind, object_id), priority)
            for kind, object_id, priority in
            sorted(items, key=lambda item: item[2])), job_limits.load(limits)))
        self.link.something_changed()

    def site_map_changed(self, generation: int) -> None:
        """The site map has a new generation."""
        if generation != self.keeper.current().generation:
            self.link.something_changed()

    def get_image(self, template_id: str, output: str,
                  mode: str | None = None) -> objects.Request:
        """Bring an image to a path of this host.

        :param mode: fetch_and_patch or on_the_fly; None as configured
        :raises NotFound: the catalogue has no such template
        :raises InvalidInput: the output or mode cannot be used
        :raises DiffCacheError: no source is left; output is untouched
        """
        self._check_mode(mode)
        return self.deliver(self.find_template(template_id), output, mode)

    def deliver(self, template: views.TemplateRef, output: str,
                mode: str | None = None, watch: contents.Watch | None = None
                ) -> objects.Request:
        """Bring an image that was found to a path of this host.

        :param watch: is told how far it is
        :raises InvalidInput: the output or mode cannot be used
        :raises DiffCacheError: no source is left; output is untouched
        """
        self._check_mode(mode)
        mode = mode or self.conf.agent.serve_mode
        try:
            served = self.server.serve(template, pathlib.Path(output), mode,
                                       watch)
        except exceptions.DiffCacheError as error:
            self._report(error.served)  # type: ignore[attr-defined]
            raise
        return self._report(served)

    def register_image(self, path: str, template_id: str,
                       name: str) -> objects.Template:
        """Take an image into the repository.

        :raises InvalidInput: this is no repository, or the file is unusable
        :raises Conflict: the id belongs to other content already
        """
        if self.repository is None:
            raise exceptions.InvalidInput(
                f'Host {self.name} is no repository; ask the one whose '
                f'[agent] role is "repository".')
        record = self.repository.register(pathlib.Path(path), template_id,
                                          name)
        return objects.Template(**dataclasses.asdict(record))

    def verify_object(self, kind: str, object_id: str) -> None:
        """Read an object that a peer received damaged; drop it if it is."""
        key = views.Key(kind, object_id)
        if key in self.held and not self.held.verify(key):
            self.link.something_changed()
            self.filler.wake()

    def status(self) -> dict:
        """What this agent is doing, for people and tests."""
        site = self.keeper.current()
        return {
            'host': self.name,
            'role': self.conf.agent.role,
            'url': self.plane.url,
            'conductor_reachable': self.link.reachable,
            'map_generation': site.generation,
            'templates': len(site.templates),
            'hosts': {host.name: sorted(list(key) for key in host.holdings)
                      for host in site.hosts},
            'plan_generation': self.filler.generation,
            'capacity': self.held.capacity,
            'used': self.held.used(),
            'holdings': [[*key, size] for key, size
                         in sorted(self.held.sizes().items())],
            'missing': [list(key) for key in self.filler.missing()],
            'unreported_requests': len(self.spool),
            'data_plane': self.plane.stats(),
        }

    def current_view(self) -> views.SiteView:
        """The site map."""
        return self.keeper.current()

    def expecting(self, template: views.TemplateRef
                  ) -> contextlib.AbstractContextManager[None]:
        """Raw content is on its way here by the hands of others."""
        return self.transfers.expecting(
            views.Key(views.TEMPLATES, template.content_id))

    def keep_content(self, template: views.TemplateRef,
                     path: pathlib.Path) -> None:
        """Hold raw content that came another way, or lend it for a while.

        :param path: a verified file of the staging area; it may be moved
        :raises RetryableError: nobody has the manifest
        """
        key = views.Key(views.TEMPLATES, template.content_id)
        self.maker.manifest(key.id, self._new_pace())
        keep = self.cache.keep if self.held.wants(key) else self._keep
        if keep(template, path) == path:
            self.plane.lend(key, path, self.conf.agent.lend_seconds)
        self.transfers.offer(key)

    def let_go(self, template: views.TemplateRef) -> None:
        """Hold an image's content no longer, unless the plan wants it."""
        key = views.Key(views.TEMPLATES, template.content_id)
        if self.held.release(key):
            self.link.something_changed()

    def save_server(self, server_id: str, project_id: str, trigger: str,
                    image_id: str | None,
                    watch: typing.Callable[[int, int], bool]
                    ) -> dict[str, typing.Any]:
        """Save a server that is about to go, if its policy says so.

        The parameters are those of :meth:`.VersionService.save_before`.
        """
        return self.versions.save_before(server_id, project_id, trigger,
                                         image_id, watch)

    def find_template(self, template_id: str) -> views.TemplateRef:
        """A template that may be served.

        :raises NotFound: the catalogue has none, or it was withdrawn
        """
        try:
            return self.keeper.current().template(template_id)
        except exceptions.NotFound:
            if not self.link.reachable:
                raise
            # It may have been registered a moment ago.
            try:
                self.link.refresh_map()
            except exceptions.DiffCacheError as error:
                LOG.warning('No newer site map: %s', error)
        return self.keeper.current().template(template_id)

    # -- inside

    @staticmethod
    def _check_mode(mode: str | None) -> None:
        if mode and mode not in building.MODES:
            raise exceptions.InvalidInput(
                f'The mode "{mode}" is unknown; use one of '
                f'{", ".join(building.MODES)}.')

    def _report(self, served: serving.Served) -> objects.Request:
        request = objects.Request(host=self.name,
                                  **dataclasses.asdict(served))
        try:
            self.spool.put(request.obj_to_primitive())
        except exceptions.NoSpace as error:
            LOG.error('A request goes unreported: %s', error)
        self.link.something_changed()
        return request

    def _describe(self) -> objects.Host:
        return objects.Host(
            name=self.name, site=self.conf.agent.site,
            role=self.conf.agent.role, url=self.plane.url,
            capacity=self.held.capacity or 0,
            plan_generation=self.filler.generation)

    def _report_fills(self) -> list[objects.Fill]:
        now = objects_base.now()
        return [objects.Fill(
            kind=found.key.kind, id=found.key.id, active=found.active,
            bytes_done=found.done, bytes_total=found.total,
            attempts=found.attempts, error=found.error,
            retry_at=None if found.retry_in is None else
            now + datetime.timedelta(seconds=round(found.retry_in)))
            for found in self.filler.report()]

    def _suspect(self, host: str, key: views.Key) -> None:
        self.link.suspect(host, key)

    def _map_learned(self) -> None:
        self._drop_withdrawn()
        self.filler.wake()
        if self.repository is not None:
            self.repository.look()

    def _filled(self) -> None:
        # The image may have been withdrawn while it was on its way.
        self._drop_withdrawn()
        self.link.something_changed()

    def _drop_withdrawn(self) -> None:
        """Obey the site map; a repository knows by itself."""
        self.local.forget_withdrawn()
        if self.repository is None \
                and self.withdrawal.enforce(self.keeper.current()):
            self.link.something_changed()

    def _new_pace(self) -> throttle.Pace:
        return throttle.Pace(self.gate, self.plane.new_cancel,
                             durable=self.conf.agent.sync_outputs)


def _may_make_patches(hours: windows.Windows, max_load: float) -> bool:
    """Whether the clock and the machine's load allow another patch."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return hours.open_now() and not 0 < max_load < load


@contextlib.contextmanager
def _only_one(state: pathlib.Path) -> typing.Iterator[None]:
    """Make the state directory if need be, and hold its lock."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        fd = os.open(state / 'lock', os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
                     0o600)
    except OSError as error:
        raise exceptions.InvalidInput(
            f'[agent] state_dir {state} cannot be used: {error.strerror}; '
            f'name a directory this user may write to.') from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise exceptions.Conflict(
                f'Another agent uses {state}; stop it, or give this one '
                f'another [agent] state_dir.') from error
        yield
    finally:
        os.close(fd)


def _announce(images: repository.Repository) -> None:
    # Not in the link's own thread: it talks to the conductor too.
    threading.Thread(target=images.announce, daemon=True,
                     name='announce').start()
