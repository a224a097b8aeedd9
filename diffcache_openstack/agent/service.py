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
"""The agent's service: builds the parts of the agent, and runs them.

Parts get what they need from below: state that several rooms share is in
:class:`.state.host_state.HostState`. No part gets the agent itself.
"""

import contextlib
import functools
import os
import pathlib
import threading
import typing

from oslo_config import cfg
from oslo_log import log
from stevedore import driver
from stevedore import exception as stevedore_exception

from diffcache_openstack.agent.data_plane import identity
from diffcache_openstack.agent.data_plane import inspector
from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.data_plane import peer_spans
from diffcache_openstack.agent.endpoints import agent_endpoint
from diffcache_openstack.agent.endpoints import lazy_endpoint
from diffcache_openstack.agent.endpoints import versions_endpoint
from diffcache_openstack.agent.endpoints import volumes_endpoint
from diffcache_openstack.agent.images import arriving_bases
from diffcache_openstack.agent.images import borrowing
from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images.delivery import file_cache
from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent.images.delivery import recipes
from diffcache_openstack.agent.images.delivery import serving
from diffcache_openstack.agent.images import filling
from diffcache_openstack.agent.images import host_status
from diffcache_openstack.agent.images import image_costs
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import new_images
from diffcache_openstack.agent.images import patch_requests
from diffcache_openstack.agent.images import retention
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.agent.images import site_sources
from diffcache_openstack.agent.images import site_transfers
from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent.lazy import hydration_reports
from diffcache_openstack.agent.lazy import lazy_hydrations
from diffcache_openstack.agent.lazy import lazy_images
from diffcache_openstack.agent.lazy import lazy_learning
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.agent.lazy import planned_boot_sets
from diffcache_openstack.agent.lazy import version_reads
from diffcache_openstack.agent import link
from diffcache_openstack.agent.local import file_usage
from diffcache_openstack.agent.local import local_api
from diffcache_openstack.agent.local import local_images
from diffcache_openstack.agent.local import local_server
from diffcache_openstack.agent.local import version_delivery
from diffcache_openstack.agent.local import volume_api
from diffcache_openstack.agent.repository import carrying
from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.agent.repository import common_content
from diffcache_openstack.agent.repository import compressing
from diffcache_openstack.agent.repository import conductor_catalogue
from diffcache_openstack.agent.repository import image_limits
from diffcache_openstack.agent.repository import image_service
from diffcache_openstack.agent.repository import incoming
from diffcache_openstack.agent.repository import ingest
from diffcache_openstack.agent.repository import on_demand
from diffcache_openstack.agent.repository import patch_making
from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import epoch_timer
from diffcache_openstack.agent.ssdcache import volume_moves
from diffcache_openstack.agent.ssdcache import volume_sizes
from diffcache_openstack.agent.ssdcache import wear_budget
from diffcache_openstack.agent.state import borrowed_files
from diffcache_openstack.agent.state import current_map
from diffcache_openstack.agent.state import directory
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.agent.state import request_spool
from diffcache_openstack.agent.state import scrub
from diffcache_openstack.agent.state import withdrawal
from diffcache_openstack.agent.versions import server_images
from diffcache_openstack.agent.versions import version_service
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import revocations
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack.common import threads
from diffcache_openstack.common import time_windows
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import agent_volumes_api
from diffcache_openstack.rpc import buses
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.rpc import conductor_lazy_api
from diffcache_openstack.rpc import conductor_versions_api
from diffcache_openstack.runtime import service
from diffcache_openstack.sites import views
from diffcache_openstack.ssdcache import ssdcached

if typing.TYPE_CHECKING:
    from diffcache_openstack.runtime import metrics

LOG = log.getLogger(__name__)

REPOSITORY = 'repository'
# Entry points of image services.
SOURCES = 'diffcache.agent.sources'
# Addresses that are compared with, not listened on.
WILDCARDS = ('0.0.0.0', '[::]')  # nosec B104
# Bytes of recipes, which build an image's file from its content. They are
# small beside their images; the least recently used are deleted.
_RECIPES_CAPACITY = 10 ** 9
# Exchanges of what servers read for each heartbeat: hosts that boot at the
# same time learn from each other while they boot.
_EXCHANGES = 8


class Agent(service.Service):
    """The agent of one host.

    It starts and works without conductor and broker, from the site map of
    its last run.

    :param conf: a configuration with all groups registered
    :param new_outputs: makes outputs of the directories that they may be in
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 new_outputs: typing.Callable[
                     [typing.Sequence[str]], outputs.Outputs]
                 = outputs.Outputs) -> None:
        super().__init__(conf)
        self._new_outputs = new_outputs
        self.name = conf.agent.host
        self._state = pathlib.Path(conf.agent.state_dir)
        self._stack = contextlib.ExitStack()
        self._closing = threading.Event()
        self.repository: catalogue.Repository | None = None
        self.patch_maker: patch_making.PatchMaker | None = None
        self.ingest: ingest.Ingest | None = None
        self._carrying: carrying.Carrying | None = None
        self._moves: volume_moves.Moves | None = None

    # -- life

    def start(self) -> None:
        """Build all parts, and start them.

        :raises InvalidInput: an option cannot be used
        :raises Conflict: another agent uses the state directory
        """
        try:
            self._stack.enter_context(directory.used_by_one(self._state))
            self._build()
            self._start_parts()
        except BaseException:
            self._stack.close()
            raise
        LOG.info('Agent %s serves %s, holds %d objects', self.name,
                 self.plane.url, len(self.held.keys()))

    def stop(self, graceful: bool = False) -> None:
        """Stop serving; transfers that are cut off are resumed next time."""
        self._closing.set()
        if self.repository is not None:
            # Before its users end one after another.
            self.repository.interrupt()
        self._stack.close()

    # -- building

    def _build(self) -> None:
        self._tools = image_tools.ImageTools()
        self.plane = self._open_plane()
        self._outputs = self._new_outputs(self.conf.agent.output_directories)
        self._borrowed = self._open_borrowed()
        self.held = self._open_holdings()
        self._bus = buses.open_bus(self.conf, self.conf.agent.role, self.name)
        buses.warn_if_open(self._bus.security)
        self._stack.callback(threads.end, 'bus-close', self._bus.close)
        authority = self._bus.security.authority
        self._revoked = None if authority is None \
            else revocations.Revocations(
                self._state / 'revoked_keys.json', authority)
        self._clients = link.Clients(
            conductor_api.ConductorAPI(self._bus, self.conf),
            agent_api.AgentAPI(self._bus, self.conf),
            contexts.RequestContext.for_service('diffcache-agent'))
        self.site_map = current_map.SiteMap(
            self._state / 'site_map.json', self._clients.conductor,
            self._clients.context, self.conf.agent.site,
            image_records.Verifier(self._bus.security))
        self.host = host_state.HostState(self.name, self.held, self.site_map,
                                         self._withdrawal())
        self._scrub = scrub.Scrub(
            self.held, scrub.Schedule(self.conf.agent.scrub_days,
                                      self.conf.agent.scrub_rate),
            self._replace_damaged)
        self._build_images()
        if self.conf.agent.role == REPOSITORY:
            registered = conductor_catalogue.ConductorCatalogue(
                self._clients.conductor, self._clients.context, self.name,
                self._bus.security.key)
            self.repository = catalogue.Repository(
                self.host, self._state, self._tools, registered)
            self.patch_maker = self._open_patch_making(self.repository,
                                                       registered)
            self._carrying = self._open_carrying(self.repository)
            self.ingest = self._open_ingest(self.repository)
        self._build_reports()
        self.versions = version_service.VersionService(
            self.conf, self.server,
            conductor_versions_api.VersionsAPI(self._bus, self.conf),
            self.name)
        self._build_local()
        self.metrics = self._new_metrics()

    def _withdrawal(self) -> withdrawal.Withdrawal | None:
        if self.conf.agent.role == REPOSITORY:
            return None
        return withdrawal.Withdrawal(self.held, self.plane.end_lending,
                                     self._tools.patch_ends)

    def _build_images(self) -> None:
        options = self.conf.agent
        self._flights = single_flight.SingleFlight(
            self.held.root / holdings.STAGING)
        self.transfers = site_transfers.Transfers(
            self.plane, self.site_map.current, options.lend_seconds,
            self.conf.data_plane.min_rate)
        kept = retention.Retention(self.host, options.keep_requested)
        self._sources = site_sources.Sources(
            self.transfers, self.host, self.conf.planner.hops)
        self._builder = building.Builder(
            self._sources, self.transfers, self.host, self._flights, kept,
            self._tools)
        self._patch_requests = patch_requests.PatchRequests(
            self._sources, self.host, self._clients.agents,
            self._clients.context)
        self._arrivals = arriving_bases.Arrivals(
            self._sources, self.transfers, self.host)
        self._new_images = new_images.NewImages(
            self.host, self._clients.agents, self._clients.context)
        self._prices = image_costs.ImageCosts(self._sources, self.host,
                                              self._flights)
        self._contents = contents.Contents(
            self._builder, self.host, self._flights, kept, self.transfers,
            contents.Alternatives(
                self._patch_requests, self._prices, self._arrivals))
        pending = serving.PendingOutputs(self._state / 'outputs')
        pending.clean(self._outputs.find)
        self.requests = request_spool.RequestSpool(self._state / 'requests')
        self.server = serving.ImageServer(
            self._contents, self.host, self._new_throttle, self._outputs,
            pending, self.requests, options.serve_mode)
        self.filler = self._new_filler()

    def _new_filler(self) -> filling.Filler:
        options = self.conf.fill
        return filling.Filler(
            self._builder, self._arrivals, self.host, self._flights,
            self.plane.new_handle,
            filling.FillLimits(options.max_rate or None,
                               time_windows.Windows(options.windows).open_now,
                               options.concurrency, _RECIPES_CAPACITY),
            self._state / 'plan.json')

    def _build_reports(self) -> None:
        self._volumes = self._open_volumes()
        self._servers = lazy_servers.Servers(
            self._state / 'lazy_servers.json')
        self._hydrations = self._new_hydrations()
        self._boot_sets = self._open_boot_sets()
        self.status = host_status.HostStatus(
            self.conf, self.plane, self.host, self.filler, self.requests,
            self.ingest.report if self.ingest is not None else None,
            {'scrub': self._scrub.report,
             'patches_requested': self._patch_requests.counts,
             'arriving_bases': self._arrivals.counts,
             'new_images': self._new_images.counts,
             'build_modes': self.server.modes.report,
             'boot_sets': lambda: self._lazy.boot_set_counts()})
        self._link = link.ConductorLink(
            self._clients, self.host, self.status, self.requests,
            self.conf.agent.heartbeat_interval, link.OptionalParts(
                self._revoked, self._volumes, self._new_hydration_reports(),
                self._new_boot_set_exchange()))

    def _build_local(self) -> None:
        options = self.conf.agent
        prices = self._prices
        usage = self._usage = file_usage.FileUsage(self._state / 'usage.json')
        self._borrowing = None if self._borrowed is None \
            else borrowing.Borrowing(
                self._borrowed, self._builder, self.host, self.transfers,
                self._new_throttle)
        self._local_images = local_images.LocalImages(
            self.site_map, self._contents, prices,
            recipes.ImageFiles(
                self._builder, self.held, self._contents, prices,
                self._new_throttle,
                file_cache.FileCache(self._state / 'files',
                                     options.file_cache_capacity),
                self._tools),
            usage, self._new_throttle, self._new_images, self._borrowing)
        self._learning = self._new_learning()
        read_versions = self._new_lazy_versions()
        self._lazy = lazy_images.LazyImages(
            self.conf.lazy, self.host,
            lazy_images.Supply(self._builder, self.transfers, prices,
                               self._new_throttle,
                               time_windows.Windows(
                                   self.conf.fill.windows).open_now),
            lazy_images.Users(self._servers, self._learning,
                              self._hydrations, self._boot_sets),
            read_versions)
        delivered = self._state / 'versions' / 'delivered'
        self._local_api = local_api.LocalApi(
            self.status, self._local_images, self.server, usage,
            local_api.Versions(
                self.versions, read_versions,
                version_delivery.VersionDelivery(
                    self._lazy, read_versions, self._outputs, delivered,
                    self.conf.agent.sync_outputs),
                server_images.ServerImages(self.versions, self._outputs,
                                           delivered)),
            self._lazy, self._volumes)

    def _new_lazy_versions(self) -> version_reads.VersionReads:
        return version_reads.VersionReads(
            self.versions.stores, self.versions.base_files,
            conductor_versions_api.VersionsAPI(self._bus, self.conf),
            self.name, self._state / 'versions' / 'lazy',
            os.path.abspath(self.conf.agent.socket))

    def _new_hydrations(self) -> lazy_hydrations.Hydrations | None:
        options = self.conf.lazy
        if not options.socket:
            return None
        return lazy_hydrations.Hydrations(
            diffcached.Diffcached(options.socket), self._servers,
            self._state / 'hydrations.json', options.hydrate_rate)

    def _open_boot_sets(self) -> planned_boot_sets.PlannedBootSets | None:
        if not self.conf.lazy.socket or self.conf.agent.role == REPOSITORY:
            return None
        return planned_boot_sets.PlannedBootSets(
            self._state / 'boot_sets.json', self._state / 'boot_sets')

    def _new_boot_set_exchange(self
                               ) -> planned_boot_sets.BootSetExchange | None:
        if self._boot_sets is None:
            return None
        return planned_boot_sets.BootSetExchange(
            self.name, self._boot_sets,
            conductor_lazy_api.LazyAPI(self._bus, self.conf),
            lambda: self._lazy.wake(), self.conf.agent.heartbeat_interval)

    def _new_hydration_reports(self
                               ) -> hydration_reports.HydrationReports | None:
        if self._hydrations is None:
            return None
        return hydration_reports.HydrationReports(
            self.name, self._hydrations,
            conductor_lazy_api.LazyAPI(self._bus, self.conf))

    def _new_learning(self) -> lazy_learning.LazyLearning | None:
        options = self.conf.lazy
        if not options.socket:
            return None
        return lazy_learning.LazyLearning(
            self.name, diffcached.Diffcached(options.socket), self._servers,
            conductor_lazy_api.LazyAPI(self._bus, self.conf),
            self._state / 'profiles',
            self.conf.agent.heartbeat_interval / _EXCHANGES)

    def _new_metrics(self) -> 'metrics.MetricsServer | None':
        """Return the server of metrics; None if none is configured."""
        if not self.conf.metrics.listen:
            return None
        # Not on hosts that serve none: the client of Prometheus takes memory.
        import prometheus_client

        from diffcache_openstack.agent import agent_metrics
        from diffcache_openstack.runtime import metrics
        # Of this agent: there may be several in one process.
        registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=registry)
        host = agent_metrics.HostValues(
            self.conf, self.plane, self.host, self.filler, self.requests,
            self._usage, self._patch_requests.counts)
        parts: dict[typing.Callable[..., None], typing.Any] = {
            agent_metrics.certificate_values: self.conf,
            agent_metrics.scrub_values: self._scrub,
            agent_metrics.move_values: self._moves,
            agent_metrics.flush_values: self._volumes,
            agent_metrics.carry_values: self._carrying,
            agent_metrics.version_values: self.versions.base_indexes,
            agent_metrics.copy_values: self.versions.stores.copy_reads}

        def add(found: metrics.Families) -> None:
            host.add(found)
            for values, part in parts.items():
                if part is not None:
                    values(found, part)

        registry.register(metrics.Collector(add))
        self.server.observe(agent_metrics.RequestMetrics(registry).observe)
        return metrics.MetricsServer(self.conf.metrics.listen, registry,
                                     self._problems)

    def _replace_damaged(self) -> None:
        """Have an object fetched again that the scrub found damaged."""
        self.host.report_due.set()
        self.filler.wake()

    def _problems(self) -> list[str]:
        """Return why this host can serve no image; nothing if it can."""
        if self.site_map.current().generation:
            return []
        return ['No site map has been received from the conductor yet.']

    def _open_volumes(self) -> cached_volumes.CachedVolumes | None:
        conf = self.conf.ssd_cache
        if not conf.control:
            return None
        engine = ssdcached.SsdcachedEngine(conf.control, conf.socket)
        self._moves = volume_moves.Moves(
            engine, agent_volumes_api.AgentVolumesAPI(self._bus, self.conf),
            self._clients.context, conf.warm_rate)
        return cached_volumes.CachedVolumes(
            engine, cached_volumes.CacheOptions(
                tuple(conf.origins), conf.sequential_cutoff,
                conf.reconnect_delay, conf.admission, conf.guest_path),
            self._state / 'ssd_cache.json',
            volume_sizes.SizeRules(conf.policy, conf.epoch),
            self._open_wear(), self._moves)

    def _open_wear(self) -> wear_budget.Wear | None:
        per_day = self.conf.ssd_cache.wear_budget
        return wear_budget.Wear(
            per_day, self._state / 'ssd_cache_wear.json') if per_day else None

    def _new_throttle(self) -> throttles.Throttle:
        return throttles.Throttle(self.plane.new_handle(),
                                  durable=self.conf.agent.sync_outputs)

    def _open_plane(self) -> native_plane.DataPlane:
        conf = self.conf.data_plane
        identity.check_encryption(self.conf)
        found = identity.read_keys(self.conf)
        shown = identity.Identity(self.conf)
        opened = native_plane.DataPlane(
            self._state / 'objects', self.name, conf.listen,
            found.signing[1] if found else None, key_name=conf.key_name,
            accepted_keys=list(found.accepted) if found else None,
            max_connections=conf.max_connections,
            max_connections_per_address=conf.max_connections_per_address,
            compress_below=float(conf.compress_below), rate=conf.rate or None,
            lend_seconds=float(self.conf.agent.lend_seconds),
            advertise_url=conf.advertise_url or self._derived_url(),
            traces=tracing.is_on(), **shown.options())
        self._stack.callback(opened.close)
        shown.start(opened)
        self._stack.callback(shown.stop)
        return opened

    def _derived_url(self) -> str | None:
        """Return the URL for peers if the listening address is a wildcard.

        :raises InvalidInput: the port is unknown, too
        """
        address, _, port = self.conf.data_plane.listen.rpartition(':')
        if address not in WILDCARDS:
            return None
        if port == '0':
            raise exceptions.InvalidInput(
                '[data_plane] listen names neither address nor port, so '
                'peers have no URL to use; give a port, or advertise_url.')
        scheme = identity.scheme(self.conf)
        return f'{scheme}://{self.name}:{port}'

    def _open_holdings(self) -> holdings.Holdings:
        capacity = self.conf.agent.cache_capacity
        if self.conf.agent.role == REPOSITORY:
            capacity = None
        held = holdings.Holdings(
            self._state / 'objects', capacity, inspector.NativeInspector(),
            self.plane.readers,
            self._borrowed or borrowed_files.NothingBorrowed(),
            self.conf.agent.always_verify)
        held.scan()
        return held

    def _open_borrowed(self) -> borrowed_files.BorrowedFiles | None:
        """Return the files of other services; None if they are not used."""
        if self.conf.agent.role == REPOSITORY or not self.conf.agent.borrow:
            return None
        manifests = self._state / 'objects' / views.MANIFESTS

        def verify(key: views.Key, path: pathlib.Path) -> None:
            inspector.NativeInspector().deep(key, path, manifests / key.id)

        found = borrowed_files.BorrowedFiles(
            self._state / 'borrowed.json', manifests, self.plane,
            lambda path: self._outputs.find(path).open(), verify)
        self._stack.callback(found.close)
        return found

    def _open_patch_making(
            self, repository: catalogue.Repository,
            registered: conductor_catalogue.ConductorCatalogue
    ) -> patch_making.PatchMaker:
        conf = self.conf.repository
        maker = patch_making.PatchMaker(
            repository, self.held, self._tools, registered,
            patch_making.PatchOptions(
                conf.patch_level, conf.max_patch_ratio,
                time_windows.Windows(conf.windows).open_now,
                conf.scan_interval))
        repository.subscribe(maker.wake)
        return maker

    def _open_compressing(self, repository: catalogue.Repository
                          ) -> compressing.Compressing:
        conf = self.conf.repository
        parts = compressing.Compressing(
            repository, self.held, self._tools, conf.compression_level,
            conf.scan_interval)
        repository.subscribe(parts.wake)
        return parts

    def _open_carrying(self, repository: catalogue.Repository
                       ) -> carrying.Carrying:
        parts = carrying.Carrying(
            self.name, conductor_lazy_api.LazyAPI(self._bus, self.conf),
            common_content.CommonContent(self.held, self._tools),
            self.conf.repository.scan_interval)
        repository.subscribe(parts.wake)
        return parts

    def _open_ingest(self, into: catalogue.Repository
                     ) -> ingest.Ingest | None:
        """Return what keeps the repository equal to an image service.

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
        source = typing.cast(image_service.ImageService, found.driver)
        conf = self.conf.repository
        limits = image_limits.ImageLimits(
            self.conf.glance.largest_image, conf.max_expansion,
            conf.unpack_timeout)
        made = ingest.Ingest(source, into, self.held, self._tools, limits,
                             conf.ingest_workers, conf.compression_level)
        self.held.on_quarantine(made.replace)
        return made

    # -- starting

    def _start_parts(self) -> None:
        self._run_until_stopped(self._scrub)
        if self._borrowing is not None:
            self._run_until_stopped(self._borrowing)
        self._follow_site_map()
        self._run_until_stopped(self._lazy)
        if self._learning is not None:
            self._run_until_stopped(self._learning)
        self._run_until_stopped(self.versions)
        if self._moves is not None:
            self._run_until_stopped(self._moves)
        if self._volumes is not None:
            self._run_until_stopped(epoch_timer.EpochTimer(self._volumes))
        self._serve_sockets(self.conf.agent)
        self._stack.callback(self._stop_rpc, self._start_rpc_when_possible())
        if self.repository is None:
            self._run_until_stopped(self.filler)
        else:
            self._link.on_contact(functools.partial(_announce,
                                                    self.repository))
            self._run_until_stopped(self.repository)
            self._run_until_stopped(self.patch_maker)
            self._run_until_stopped(self._open_compressing(self.repository))
            self._run_until_stopped(self._carrying)
            if self.ingest is not None:
                self._run_until_stopped(self.ingest)
        self._run_until_stopped(self._link)
        if tracing.is_on():
            self._run_until_stopped(peer_spans.PeerSpans(self.plane))
        if self.metrics is not None:
            self._run_until_stopped(self.metrics)

    def _serve_sockets(self, conf: cfg.ConfigOpts.GroupAttr) -> None:
        if conf.socket:
            self._run_until_stopped(local_server.LocalServer(
                pathlib.Path(conf.socket), local_server.Access(
                    'socket', conf.socket_group,
                    local_server.users_with(conf.nova_user)),
                tracing.traced(self._local_api)))
        if conf.glance_socket:
            self._run_until_stopped(local_server.LocalServer(
                pathlib.Path(conf.glance_socket), local_server.Access(
                    'glance_socket', conf.glance_socket_group),
                tracing.traced(self._local_api.for_glance)))
        if conf.cinder_socket:
            self._run_until_stopped(local_server.LocalServer(
                pathlib.Path(conf.cinder_socket), local_server.Access(
                    'cinder_socket', conf.cinder_socket_group),
                tracing.traced(volume_api.VolumeApi(self.versions))))

    def _follow_site_map(self) -> None:
        """Apply each new site map, and the stored one of the last run.

        A crash may have left objects that it forbids.
        """
        listeners: list[typing.Callable[[], object]] = [
            self._local_images.forget_withdrawn, self.host.drop_withdrawn,
            self._forget_profiles]
        for listener in listeners:
            listener()
            self.site_map.subscribe(listener)
        self.site_map.subscribe(self.filler.wake if self.repository is None
                                else self.repository.look)

    def _forget_profiles(self) -> None:
        if self._learning is not None:
            self._learning.forget({
                each.content_id
                for each in self.site_map.current().images})

    def _run_until_stopped(self, part: typing.Any) -> None:
        """Start a part that has the methods start and stop."""
        part.start()
        self._stack.callback(part.stop)

    def _start_rpc_when_possible(self) -> list:
        """Listen on the broker, in a thread: it may be down for hours.

        :returns: a list that the server is put into
        """
        server = agent_endpoint.new_server(
            self._bus, self.name,
            agent_endpoint.AgentManager(
                self.host, self.server, self.filler, self.status,
                self._repository_parts()),
            versions_endpoint.VersionsManager(self.versions),
            volumes_endpoint.VolumesManager(self._volumes),
            lazy_endpoint.LazyManager(self._hydrations))
        started: list = []

        def start() -> None:
            self._bus.start(server)
            started.append(server)
            if self._closing.is_set():
                self._stop_rpc(started)

        threading.Thread(target=start, daemon=True, name='rpc-start').start()
        return started

    def _repository_parts(self) -> agent_endpoint.RepositoryParts | None:
        if self.repository is None or self.patch_maker is None:
            return None
        conf = self.conf.repository
        return agent_endpoint.RepositoryParts(
            self.repository, incoming.Incoming(conf.image_directories),
            on_demand.OnDemand(self.repository, self.patch_maker,
                               conf.patches_on_demand),
            self.ingest.arriving if self.ingest is not None else None)

    @staticmethod
    def _stop_rpc(started: list) -> None:
        """Stop listening; calls that take long are cut off."""
        def stop() -> None:
            while started:
                server = started.pop()
                server.stop()
                server.wait()

        threads.end('rpc-stop', stop)


def _announce(images: catalogue.Repository) -> None:
    # Not in the link's own thread: it calls the conductor too.
    threading.Thread(target=images.announce_in_time, daemon=True,
                     name='announce').start()
