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
"""Building an object at this host: from the cheapest source that works.

Sources are ranked by the lookup table. As many as can be read without
preparation go to the data plane as one list, which fails over by itself; the
rest is :mod:`.failover`. Nothing leaves here unverified: deliveries check
every leaf against the manifest, local copies are checked before copying.
"""

import contextlib
import dataclasses
import itertools
import logging
import pathlib
import time
import typing
import uuid

from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.agent.images import failover
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import retention
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.agent.images import site_sources
from diffcache_openstack.agent.images import site_transfers
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

FETCH_AND_PATCH = 'fetch_and_patch'
ON_THE_FLY = 'on_the_fly'
MODES = (FETCH_AND_PATCH, ON_THE_FLY)

# Where a part of a build is read.
Place = orders.Place


@dataclasses.dataclass(frozen=True)
class Built:
    """How an object was built.

    :param way: local, peer, build or repository
    :param detail: the sources in words
    :param fallbacks: sources that failed before this one
    :param predicted_seconds: of the cost model, for the source taken
    :param patch_id: the patch that was applied, if just one was
    :param awaited: whether the base was still arriving at the site
    """

    way: str
    detail: str
    moved: site_transfers.Moved
    seconds: float
    predicted_seconds: float
    fallbacks: int
    patch_id: str | None = None
    awaited: bool = False


@dataclasses.dataclass(frozen=True)
class Step:
    """One patch to apply.

    :param base: where to read the base, or the file that the step before
        built from it
    :param patch: where to read the patch
    :param target: content id of the result
    :param dest: the file to write
    :param durable: whether it must survive a power cut
    """

    base: routes.Part | pathlib.Path
    patch: routes.Part
    target: str
    dest: pathlib.Path
    durable: bool

    @property
    def parts(self) -> tuple[routes.Part, ...]:
        """What is read, from where, beside the file of the step before."""
        return tuple(p for p in (self.base, self.patch)
                     if isinstance(p, routes.Part))


class Parts(typing.NamedTuple):
    """Base and patch of a step: files, or objects of peers.

    :param moved: what it cost to bring them here
    """

    base: Place
    patch: Place
    moved: site_transfers.Moved

    @property
    def are_here(self) -> bool:
        """Whether both are files of this host."""
        return not any(isinstance(part, orders.RemotePart)
                       for part in (self.base, self.patch))


class Builder:
    """Builds images, patches and manifests at this host.

    :param sources: what this host may read from
    :param transfers: orders objects from this host's data plane
    :param host: this host's state
    :param flights: single flight of this host
    :param kept: keeps parts that were fetched
    :param tools: applies patches
    """

    def __init__(self, sources: site_sources.Sources,
                 transfers: site_transfers.Transfers,
                 host: host_state.HostState,
                 flights: single_flight.SingleFlight,
                 kept: retention.Retention, tools: image_tools.ImageTools
                 ) -> None:
        self.sources = sources
        self._failover = failover.Failover(sources, transfers, host)
        self.transfers = transfers
        self._held = host.held
        self._single_flight = flights
        self._view = host.site_map.current
        self._tools = tools
        self._retention = kept

    def build(self, key: views.Key, dest: pathlib.Path,
              throttle: throttles.Throttle, mode: str,
              awaited: routes.Route | None = None) -> Built:
        """Write an object to dest, whole and verified.

        :param mode: one of MODES; matters for images that are built
        :param awaited: a route to try first, by a base that is arriving
        :raises DiffCacheError: no source was left; the message has the last
            failure
        """
        started = time.monotonic()
        if key.kind == views.IMAGES:
            attempt: failover.Attempt = _ImageAttempt(
                self, key, dest, throttle, mode, awaited)
        else:
            attempt = _ObjectAttempt(self, key, dest, throttle)
        route, moved, fallbacks = self._failover.first_that_works(key, attempt)
        # The time that a chain took is that of none of its patches.
        patch_id = route.patches[0].key.id if len(route.patches) == 1 else None
        return Built('build' if route.builds
                     else self.sources.way_of(route.source.host),
                     attempt.describe(route), moved,
                     time.monotonic() - started, route.seconds, fallbacks,
                     patch_id, route is awaited)

    def manifest(self, content_id: str,
                 throttle: throttles.Throttle) -> pathlib.Path:
        """Return the manifest of an image, fetched if need be.

        :raises DiffCacheError: no source delivers it
        """
        key = views.Key(views.MANIFESTS, content_id)
        self.bring(key, throttle)
        return self._held.path(key)

    def target_manifest(self, patch_id: str, patch: Place,
                        throttle: throttles.Throttle) -> pathlib.Path:
        """Return the manifest of a patch's target.

        A patch says which leaves of its target differ from its base's, and
        their hashes. Where it and the base's manifest are at the site, the
        target's is computed, and does not cross the WAN.

        :param patch: the patch if it is a file of this host
        :raises DiffCacheError: no source delivers the manifest
        """
        found = self._view().patch(patch_id)
        if found is None:
            raise exceptions.ObjectMissing(
                f'The site map does not know patch {patch_id} (any more).')
        key = views.Key(views.MANIFESTS, found.target)
        if isinstance(patch, pathlib.Path) and key not in self._held:
            try:
                self._compute_manifest(found, patch, throttle)
            except (exceptions.DiffCacheError, OSError) as error:
                LOG.info('Fetching %s, which could not be computed from patch'
                         ' %s: %s', key, patch_id, error)
        return self.manifest(key.id, throttle)

    def _compute_manifest(self, patch: views.PatchRef, path: pathlib.Path,
                          throttle: throttles.Throttle) -> None:
        base = views.Key(views.MANIFESTS, patch.base)
        if base not in self._held and not self._at_peer(base):
            return
        key = views.Key(views.MANIFESTS, patch.target)
        of_base = self.manifest(base.id, throttle)

        def compute(_member):
            staged = self.new_staged(key.id)
            try:
                found = self._tools.target_manifest(of_base, path, staged)
                if found != key.id:
                    raise exceptions.IntegrityError(
                        f'Patch {patch.id} makes content {found}.')
                files.move(staged, self._held.path(key),
                           durable=throttle.durable)
            finally:
                files.discard(staged)
            self._held.added(key)
            return self._held.path(key), site_transfers.Moved()

        with self._single_flight.share(key, throttle, compute):
            pass

    def _at_peer(self, key: views.Key) -> bool:
        return any(self.sources.is_peer(part.host)
                   for part in self.sources.lookup_table().to_object(key))

    def bring(self, key: views.Key,
              throttle: throttles.Throttle) -> site_transfers.Moved:
        """Fetch a manifest or a recipe to its place unless it is there.

        :raises DiffCacheError: no source delivers it
        """
        moved = site_transfers.Moved()
        while key not in self._held:
            with self._single_flight.share(
                    key, throttle,
                    lambda _member: self._fetch_small(key, throttle)
                    ) as flight:
                if flight.leads:
                    moved = flight.outcome
        return moved

    @contextlib.contextmanager
    def borrowed(self, part: routes.Part | pathlib.Path,
                 throttle: throttles.Throttle
                 ) -> typing.Iterator[tuple[pathlib.Path,
                                            site_transfers.Moved]]:
        """Yield a part as a local file: the one held, or a staged copy.

        :param part: what is a file already stays that
        :raises DiffCacheError: this source does not deliver it
        """
        if isinstance(part, pathlib.Path):
            yield part, site_transfers.Moved()
            return
        if self.sources.is_own(part.host):
            with self._held.lease(part.key) as path:
                yield path, site_transfers.Moved()
            return

        def stage(_member):
            dest = self.new_staged(part.key.id)
            return dest, self._stage(part, dest, throttle)

        with self._single_flight.share(part.key, throttle, stage) as flight:
            yield flight.path, (
                flight.outcome.moved if flight.leads
                else site_transfers.Moved())
            if flight.take():
                self._keep_if_useful(part, flight.path)

    def _keep_if_useful(self, part: routes.Part, path: pathlib.Path) -> None:
        """Cache a part that was fetched, if retention allows it."""
        if self._retention.keep_planned(part.key, path):
            return
        if part.key.kind != views.PATCHES \
                or not self.transfers.is_repository(part.host):
            return
        view = self._view()
        patch = view.patch(part.key.id)
        size = view.size_of(views.Key(views.IMAGES, patch.target)) \
            if patch else None
        if size is not None:
            self._retention.keep_patch(part.key, path, size)

    def _stage(self, part: routes.Part, dest: pathlib.Path,
               throttle: throttles.Throttle) -> Built:
        started = time.monotonic()
        try:
            moved = self.move(part, dest, throttle)
        except BaseException:
            files.discard(dest)
            raise
        seconds = time.monotonic() - started
        return Built(self.sources.way_of(part.host), f'{part.key.kind} from '
                     f'{part.host}', moved, seconds, seconds, 0)

    def move(self, part: routes.Part, dest: pathlib.Path,
             throttle: throttles.Throttle) -> site_transfers.Moved:
        """Copy a part from its host to a file.

        :raises DiffCacheError: this source does not deliver it
        """
        target = self.target(part.key, dest, throttle)
        hosts = [part.host, *self.sources.other_repositories(part)]
        # Another repository continues what one began.
        delivery = self.transfers.deliver(
            target, [self.transfers.source(host) for host in hosts],
            throttle)
        if delivery.source is None:
            raise delivery.failures[-1].error
        return site_transfers.Moved(delivery.wan_bytes, delivery.lan_bytes)

    def target(self, key: views.Key, dest: pathlib.Path,
               throttle: throttles.Throttle) -> site_transfers.TransferTarget:
        """Return an object as the target of an order, with its manifest.

        :raises DiffCacheError: no source delivers the manifest
        """
        manifest = None
        if key.kind == views.IMAGES:
            manifest = self.manifest(key.id, throttle)
        in_place = dest == self._held.path(key)
        return site_transfers.TransferTarget(key, dest, manifest, in_place)

    def copy_held(self, key: views.Key, dest: pathlib.Path,
                  throttle: throttles.Throttle) -> None:
        """Copy what is held here, verified.

        What has its seal is not read. Of a file of another service it is the
        copy that is read, as the file may change meanwhile.

        :raises DiffCacheError: it is damaged
        """
        if self._held.is_borrowed(key):
            self._copy_borrowed(key, dest, throttle)
            return
        with self._held.opened(key) as found:
            if not found.is_intact:
                self._held.read(key, found)
            files.copy_file(found.path, dest, durable=throttle.durable)

    def _copy_borrowed(self, key: views.Key, dest: pathlib.Path,
                       throttle: throttles.Throttle) -> None:
        """Copy a file of another service; read the copy unless it is known."""
        staged = self.new_staged(key.id)
        try:
            with self._held.lease(key) as path:
                files.copy_file(path, staged, durable=throttle.durable)
                known = self._held.is_sound(key)
            if not known:
                self._held.inspector.deep(key, staged,
                                          self._held.manifest(key.id))
            files.move(staged, dest, durable=throttle.durable)
        finally:
            files.discard(staged)

    @contextlib.contextmanager
    def parts(self, step: Step, throttle: throttles.Throttle, copied: bool
              ) -> typing.Iterator[Parts]:
        """Yield base and patch of a step as the data plane reads them.

        Parts behind the WAN are brought here first, under their claims.

        :param copied: whether those of peers are brought here as well
        :raises DiffCacheError: a part was not delivered
        """
        with contextlib.ExitStack() as stack:
            base, moved_base = self._place(step.base, throttle, copied, stack)
            patch, moved_patch = self._place(step.patch, throttle, copied,
                                             stack)
            yield Parts(base, patch, moved_base + moved_patch)

    def patch(self, step: Step, parts: Parts, throttle: throttles.Throttle
              ) -> orders.Delivery:
        """Build an image from base and patch; its manifest is held."""
        key = views.Key(views.IMAGES, step.target)
        target = site_transfers.TransferTarget(
            key, step.dest, self._held.manifest(step.target),
            step.dest == self._held.path(key), step.durable)
        with tracing.span('patch', patch=step.patch.key.id):
            delivery = self.transfers.deliver(
                target, [orders.BuildSource(parts.base, parts.patch)],
                throttle)
        if delivery.source is not None and isinstance(step.base, routes.Part):
            self.note_built(step.base, step.dest)
        return delivery

    def apply(self, step: Step, base: pathlib.Path, patch: pathlib.Path
              ) -> site_transfers.Moved:
        """Build an image from files of which nothing is known.

        :raises DiffCacheError: base or patch is damaged
        """
        started = time.monotonic()
        with tracing.span('patch', patch=step.patch.key.id):
            self._tools.apply_patch(base, patch, step.dest)
        if step.durable:
            files.sync(step.dest)
        return site_transfers.Moved(apply_seconds=time.monotonic() - started)

    def note_built(self, base: routes.Part, dest: pathlib.Path) -> None:
        """Note that a file may share what is wrong with a base held here."""
        if self.sources.is_own(base.host):
            self._held.note_built(base.key, dest)

    def _place(self, source: routes.Part | pathlib.Path,
               throttle: throttles.Throttle, copied: bool,
               stack: contextlib.ExitStack
               ) -> tuple[Place, site_transfers.Moved]:
        """Return how the data plane reads a part, and what that cost."""
        if not isinstance(source, routes.Part):
            return source, site_transfers.Moved()
        if self.sources.is_own(source.host):
            return self._own(source.key, stack), site_transfers.Moved()
        if not copied and self.sources.is_peer(source.host):
            return self.transfers.part(source), site_transfers.Moved()
        path, moved = stack.enter_context(self.borrowed(source, throttle))
        manifest = views.Key(views.MANIFESTS, source.key.id)
        if source.key.kind == views.IMAGES and manifest in self._held:
            # Each leaf was compared with it on arrival.
            return orders.KnownFile(path, self._held.path(manifest)), moved
        return path, moved

    def _own(self, key: views.Key, stack: contextlib.ExitStack
             ) -> pathlib.Path | orders.KnownFile:
        """Return how the data plane reads an object of this host.

        :raises ObjectMissing: it is not here (any more)
        """
        path = stack.enter_context(self._held.lease(key))
        manifest = views.Key(views.MANIFESTS, key.id)
        if key.kind == views.IMAGES and manifest in self._held \
                and self._held.is_intact(key):
            return orders.KnownFile(path, self._held.path(manifest))
        return path

    def direct(self, route: routes.Route, stack: contextlib.ExitStack
               ) -> orders.Source:
        """Return a route that takes no preparation as a source.

        :param stack: keeps the leases on what is read from this host
        :raises DiffCacheError: it cannot be used (any more)
        """
        if not route.builds:
            return self.transfers.source(route.source.host)
        base, patch = (
            self._own(part.key, stack) if self.sources.is_own(part.host)
            else self.transfers.part(part)
            for part in route.parts)
        return orders.BuildSource(base, patch)

    def new_staged(self, content_id: str) -> pathlib.Path:
        """Return a path for an image that is needed for a moment."""
        return self._held.staging(f'{content_id}.{uuid.uuid4().hex}')

    def _fetch_small(self, key: views.Key, throttle: throttles.Throttle):
        dest = self._held.path(key)
        attempt = _ObjectAttempt(self, key, dest, throttle)
        _, moved, _ = self._failover.first_that_works(key, attempt)
        self._held.added(key)
        return dest, moved


class _Attempt:
    """Candidates for one object; see :class:`.failover.Attempt`."""

    def __init__(self, builder: Builder, key: views.Key, dest: pathlib.Path,
                 throttle: throttles.Throttle) -> None:
        self._builder = builder
        self._sources = builder.sources
        self._key = key
        self._dest = dest
        self.throttle = throttle
        self.read: tuple[routes.Part, ...] = ()
        self.targets: tuple[str, ...] = ()
        self.blamed: str | None = None

    def _forget(self) -> None:
        self.read, self.targets, self.blamed = (), (), None

    def _deliver(self, candidates, sources) -> failover.Outcome:
        """Order an object from the sources that candidates stand for."""
        target = self._builder.target(self._key, self._dest, self.throttle)
        delivery = self._builder.transfers.deliver(target, sources,
                                                   self.throttle)
        failed = tuple(
            self._failed(candidates[failure.source], failure)
            for failure in delivery.failures)
        route = None if delivery.source is None \
            else candidates[delivery.source]
        if route is not None and route.builds:
            self._builder.note_built(route.source, self._dest)
        return failover.Outcome(route, site_transfers.Moved(
            delivery.wan_bytes, delivery.lan_bytes), failed)

    def _failed(self, route, failure: orders.Failure) -> failover.Failed:
        return failover.Failed(route, failure.error, route.parts,
                               (self._key.id,) if route.builds else (),
                               failure.host)


class _ImageAttempt(_Attempt):
    """Finds and takes the routes to an image."""

    def __init__(self, builder: Builder, key: views.Key, dest: pathlib.Path,
                 throttle: throttles.Throttle, mode: str,
                 awaited: routes.Route | None) -> None:
        super().__init__(builder, key, dest, throttle)
        self._mode = mode
        self._awaited = [awaited] if awaited is not None else []

    def candidates(self, table: routes.Routes) -> list[routes.Route]:
        return [*self._awaited, *table.to_image(self._key.id)]

    def execute(self, candidates: list[routes.Route]) -> failover.Outcome:
        """Execute the first routes: those without preparation, or one."""
        self._forget()
        direct = list(itertools.takewhile(self._is_direct, candidates))
        if not direct:
            return failover.Outcome(candidates[0],
                                    self._build(candidates[0]))
        with contextlib.ExitStack() as stack:
            sources = [self._builder.direct(direct[0], stack)]
            # What another route lacks is seen when it is its turn.
            with contextlib.suppress(exceptions.DiffCacheError):
                for route in direct[1:]:
                    sources.append(self._builder.direct(route, stack))
            return self._deliver(direct, sources)

    def _is_direct(self, route: routes.Route) -> bool:
        """Return whether the data plane can take a route by itself."""
        if not route.builds:
            return not self._sources.is_own(route.source.host)
        return (self._mode == ON_THE_FLY and len(route.patches) == 1
                and all(self._sources.is_own(part.host)
                        or self._sources.is_peer(part.host)
                        for part in route.parts))

    def _build(self, route: routes.Route) -> site_transfers.Moved:
        """Copy what is held, or apply patch by patch, one result at a time."""
        if not route.builds:
            self.read = route.parts
            self._builder.manifest(self._key.id, self.throttle)
            self._builder.copy_held(route.source.key, self._dest,
                                    self.throttle)
            return site_transfers.Moved()
        moved = site_transfers.Moved()
        base: routes.Part | pathlib.Path = route.source
        with contextlib.ExitStack() as stack:
            for content_id, patch in zip(route.through, route.patches):
                dest = self._builder.new_staged(content_id)
                stack.callback(files.discard, dest)
                moved += self._take(Step(base, patch, content_id, dest,
                                         False))
                if isinstance(base, pathlib.Path):
                    files.discard(base)
                base = dest
            return moved + self._take(Step(
                base, route.patches[-1], self._key.id, self._dest,
                self.throttle.durable))

    def _take(self, step: Step) -> site_transfers.Moved:
        self._forget()
        self.targets = (step.target,)
        self.read = step.parts
        with self._builder.parts(step, self.throttle,
                                 self._mode == FETCH_AND_PATCH) as parts:
            self._find_manifest(step, parts.patch)
            if self._mode == FETCH_AND_PATCH \
                    and isinstance(parts.base, pathlib.Path) \
                    and isinstance(parts.patch, pathlib.Path):
                # Each block is read and hashed, which takes less so.
                return parts.moved + self._builder.apply(step, parts.base,
                                                         parts.patch)
            started = time.monotonic()
            delivery = self._builder.patch(step, parts, self.throttle)
            seconds = time.monotonic() - started
        if delivery.source is None:
            self.blamed = delivery.failures[-1].host
            raise delivery.failures[-1].error
        return parts.moved + site_transfers.Moved(
            delivery.wan_bytes, delivery.lan_bytes,
            seconds if parts.are_here else 0.0)

    def _find_manifest(self, step: Step, patch: Place) -> None:
        # If the manifest has no source, none of this step is to blame.
        self.read = ()
        self._builder.target_manifest(step.patch.key.id, patch,
                                      self.throttle)
        self.read = step.parts

    def describe(self, route: routes.Route) -> str:
        return route.describe()


class _ObjectAttempt(_Attempt):
    """The same for patches and manifests, which are only ever fetched."""

    def candidates(self, table: routes.Routes) -> list[routes.Route]:
        return [routes.Route(part, (), 0.0)
                for part in table.to_object(self._key)]

    def execute(self, candidates: list[routes.Route]) -> failover.Outcome:
        self._forget()
        self.read = candidates[0].parts
        sources = [self._builder.direct(candidates[0], _NO_LEASES)]
        with contextlib.suppress(exceptions.PeerUnavailable):
            for route in candidates[1:]:
                sources.append(self._builder.direct(route, _NO_LEASES))
        return self._deliver(candidates, sources)

    def describe(self, route: routes.Route) -> str:
        return f'{self._key.kind} from {route.source.host}'


# For routes that read nothing from this host.
_NO_LEASES = contextlib.ExitStack()
