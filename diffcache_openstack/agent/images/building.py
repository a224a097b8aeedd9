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
"""Making an object at this host: the cheapest way that works.

Ways are tried in the order of the lookup table. What fails is left out of
the next look-up, so that a lost peer or a damaged object costs one try. The
repository is the last way. Nothing leaves here unverified: fetches and
builds check every leaf against the manifest, local copies are checked after
copying.
"""

import contextlib
import dataclasses
import logging
import pathlib
import socket
import time
import typing
import urllib.parse
import uuid

from diffcache_openstack.agent.images import retention
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.agent.images import throttle
from diffcache_openstack.agent.images import transfers as transfer
from diffcache_openstack.agent.state import host as hosts
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import view as views

LOG = logging.getLogger(__name__)

FETCH_AND_PATCH = 'fetch_and_patch'
ON_THE_FLY = 'on_the_fly'
MODES = (FETCH_AND_PATCH, ON_THE_FLY)
PROBE_SECONDS = 1.0
_DAMAGED = (exceptions.IntegrityError, exceptions.FormatError,
            exceptions.BaseMismatch)
_UNREACHABLE = (exceptions.PeerUnavailable, exceptions.PeerRefused)


@dataclasses.dataclass(frozen=True)
class Made:
    """How an object was made.

    :param way: local, peer, build or repository
    :param detail: the sources in words
    :param fallbacks: ways that failed before this one
    :param predicted_seconds: of the cost model, for the way taken
    :param patch_id: the patch that was applied, if just one was
    """

    way: str
    detail: str
    moved: transfer.Moved
    seconds: float
    predicted_seconds: float
    fallbacks: int
    patch_id: str | None = None


@dataclasses.dataclass(frozen=True)
class Step:
    """One patch to apply.

    :param base: where to read the base, or the file that the step before
        made of it
    :param patch: where to read the patch
    :param target: content id of what it makes
    :param dest: where that is written
    :param durable: whether it must be on the disk to count as there
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


class Maker:
    """Makes templates, patches and manifests at this host.

    :param plane: this host's data plane
    :param host: this host's state
    :param transfers: moves objects
    :param flights: single flight of this host
    :param kept: keeps patches that crossed the WAN
    :param tools: applies patches
    :param max_patches: patches that may be applied one after another while
        the site map does not say
    """

    def __init__(self, plane, host: hosts.HostState,
                 transfers: transfer.Transfers,
                 flights: single_flight.SingleFlight,
                 kept: retention.Retention, tools: image_tools.ImageTools,
                 max_patches: int = routes.MAX_PATCHES) -> None:
        self._plane = plane
        self._held = host.held
        self._transfers = transfers
        self._single_flight = flights
        self._view = host.site_map.current
        self._apply_patch = tools.apply_patch
        self._suspect = host.suspect
        self._max_patches = max_patches
        self._keep_patch = kept.keep_patch

    def make(self, key: views.Key, dest: pathlib.Path, pace: throttle.Pace,
             mode: str) -> Made:
        """Make an object whole and verified at dest.

        :param mode: one of MODES; matters for templates that are built
        :raises DiffCacheError: no way was left; the message tells the last
            failure
        """
        started = time.monotonic()
        if key.kind == views.TEMPLATES:
            attempt: typing.Any = _TemplateAttempt(self, key, dest, pace, mode)
        else:
            attempt = _ObjectAttempt(self, dest, pace)
        route, moved, fallbacks = self._first_that_works(key, attempt)
        return Made(attempt.way(route), attempt.describe(route), moved,
                    time.monotonic() - started, attempt.seconds(route),
                    fallbacks, attempt.patch_id(route))

    def manifest(self, content_id: str, pace: throttle.Pace) -> pathlib.Path:
        """The manifest of a template, fetched if need be.

        :raises DiffCacheError: nobody has it
        """
        key = views.Key(views.MANIFESTS, content_id)
        self._bring(key, pace)
        return self._held.path(key)

    def recipe(self, recipe_id: str, pace: throttle.Pace) -> transfer.Moved:
        """Hold an image file's recipe, fetched if it is missing.

        :raises DiffCacheError: no source delivers it
        """
        return self._bring(views.Key(views.RECIPES, recipe_id), pace)

    def _bring(self, key: views.Key, pace: throttle.Pace) -> transfer.Moved:
        """Fetch a small object to its place unless it is there."""
        moved = transfer.Moved()
        while key not in self._held:
            with self._single_flight.share(
                    key, pace, lambda _member: self._fetch_small(key, pace)
                    ) as flight:
                if flight.leads:
                    moved = flight.outcome
        return moved

    @contextlib.contextmanager
    def borrowed(self, part: routes.Part, pace: throttle.Pace
                 ) -> typing.Iterator[tuple[pathlib.Path, transfer.Moved]]:
        """A part as a local file: the one held, or a copy in staging.

        :raises DiffCacheError: this source does not deliver it
        """
        if part.host == self._plane.name:
            with self._held.lease(part.key) as path:
                yield path, transfer.Moved()
            return

        def stage(_member):
            dest = self.new_staged(part.key.id)
            return dest, self._stage(part, dest, pace)

        with self._single_flight.share(part.key, pace, stage) as flight:
            yield flight.path, (
                flight.outcome.moved if flight.leads else transfer.Moved())
            if flight.take():
                self._keep_if_useful(part, flight.path)

    def _keep_if_useful(self, part: routes.Part, path: pathlib.Path) -> None:
        """Hold a patch that crossed the WAN, where retention allows it."""
        if part.key.kind != views.PATCHES or not self.is_repository(part.host):
            return
        view = self._view()
        patch = view.patch(part.key.id)
        size = view.size_of(views.Key(views.TEMPLATES, patch.target)) \
            if patch else None
        if size is not None:
            self._keep_patch(part.key, path, size)

    def _stage(self, part: routes.Part, dest: pathlib.Path,
               pace: throttle.Pace) -> Made:
        started = time.monotonic()
        try:
            moved = self.move(part, dest, pace)
        except BaseException:
            files.discard(dest)
            raise
        seconds = time.monotonic() - started
        return Made(_way_of(self, part.host), f'{part.key.kind} from '
                    f'{part.host}', moved, seconds, seconds, 0)

    def move(self, part: routes.Part, dest: pathlib.Path,
             pace: throttle.Pace) -> transfer.Moved:
        """Bring a part from its host to a file.

        :raises DiffCacheError: this source does not deliver it
        """
        manifest = None
        if part.key.kind == views.TEMPLATES:
            manifest = self.manifest(part.key.id, pace)
        in_place = dest == self._held.path(part.key)
        job = transfer.Job(part.key, dest, manifest, pace, in_place)
        if self.is_repository(part.host):
            return self._transfers.from_repository(job)
        return self._transfers.from_peer(part.host, job)

    def copy_held(self, key: views.Key, dest: pathlib.Path,
                  pace: throttle.Pace) -> None:
        """Copy what is held here, verified.

        It is the held file that is read: a copy that shares its blocks has
        nothing in the page cache yet, and would come from the disk each time.

        :raises IntegrityError: it is damaged, and now out of service
        """
        with self._held.lease(key) as path:
            self._held.inspector.deep(key, path, self._held.manifest(key.id))
            files.copy_file(path, dest, durable=pace.durable)

    def build(self, step: Step, manifest: pathlib.Path,
              pace: throttle.Pace) -> transfer.Moved:
        """Build a template from where base and patch lie.

        What lies behind the WAN is brought here first, under its claim;
        peers are read in place.

        :raises DiffCacheError: a source did not deliver
        """
        with contextlib.ExitStack() as stack:
            base, moved_base = self._in_place(step.base, pace, stack)
            patch, moved_patch = self._in_place(step.patch, pace, stack)
            while True:
                try:
                    with pace.transfer(False) as cancel:
                        result = self._plane.build(
                            base, patch, manifest, step.dest, cancel=cancel,
                            rate=pace.rate, durable=step.durable,
                            progress=pace.note)
                    return (moved_base + moved_patch
                            + transfer.Moved(lan_bytes=result['bytes']))
                except exceptions.Cancelled:
                    if not pace.may_retry():
                        raise

    def _in_place(self, source, pace, stack):
        """What the data plane reads an object from, and what that took."""
        if isinstance(source, routes.Part) \
                and not self.is_own(source.host) \
                and not self.is_repository(source.host):
            return ((self._transfers.url_of(source.host), source.key),
                    transfer.Moved())
        return stack.enter_context(self._as_file(source, pace))

    def patch_copies(self, step: Step, pace: throttle.Pace) -> transfer.Moved:
        """Build a template from copies of base and patch.

        :raises DiffCacheError: a source did not deliver
        """
        with self._as_file(step.base, pace) as (base, moved_base), \
                self.borrowed(step.patch, pace) as (patch, moved_patch):
            started = time.monotonic()
            self._apply_patch(base, patch, step.dest)
            if step.durable:
                files.sync(step.dest)
            took = transfer.Moved(apply_seconds=time.monotonic() - started)
        return moved_base + moved_patch + took

    @contextlib.contextmanager
    def _as_file(self, source, pace):
        """As :meth:`borrowed`, also of what is a file already."""
        if isinstance(source, pathlib.Path):
            yield source, transfer.Moved()
        else:
            with self.borrowed(source, pace) as borrowed:
                yield borrowed

    def new_staged(self, content_id: str) -> pathlib.Path:
        """A place for a template that is needed for a moment."""
        return self._held.staging(f'{content_id}.{uuid.uuid4().hex}')

    def is_own(self, host: str) -> bool:
        """Whether a host is this one."""
        return host == self._plane.name

    def is_repository(self, host: str) -> bool:
        """Whether a host is the repository."""
        repository = self._view().repository()
        return repository is not None and repository.name == host

    def lookup_table(self, excluded: set) -> routes.Routes:
        """The lookup table without what failed."""
        down = {(name, None) for name in self._transfers.unreachable.names()}
        view = self._view()
        max_patches = view.hops or self._max_patches
        return routes.Routes(view, self._plane.name, self._held.keys(),
                             frozenset(excluded | down), max_patches)

    def _first_that_works(self, key, attempt):
        excluded: set = {(name, None) for name in attempt.pace.excluded}
        tried: list = []
        last: exceptions.DiffCacheError | None = None
        forgiven = False
        while True:
            candidates = attempt.candidates(key, self.lookup_table(excluded))
            route = next((r for r in candidates if r not in tried), None)
            if route is None and not forgiven:
                # Hosts that lately did not answer are better than nothing.
                forgiven = True
                self._transfers.unreachable.clear()
                continue
            if route is None:
                raise self._nothing_left(key, tried, last)
            tried.append(route)
            try:
                with files.read_errors(key):
                    return route, attempt.execute(route), len(tried) - 1
            except exceptions.Cancelled:
                raise
            except exceptions.DiffCacheError as error:
                last = error
                LOG.warning('Way %d to %s failed (%s): %s', len(tried), key,
                            attempt.describe(route), error)
                self._learn(error, attempt, tried, excluded)

    def _learn(self, error, attempt, tried, excluded) -> None:
        """Leave what is to blame out of the next look-up."""
        if isinstance(error, exceptions.NoSpace):
            # Both: what is lent takes space even when its name is gone.
            if any([self._transfers.stop_lending(),
                    self._held.free_disk()]):
                tried.pop()
            return
        parts = attempt.read
        if isinstance(error, _DAMAGED) \
                and not self._own_sound(parts, attempt.made):
            return
        remote = [p for p in parts if not self.is_own(p.host)]
        if isinstance(error, _DAMAGED):
            for part in remote:
                self._suspect(part.host, part.key)
        if len(remote) == 1:
            whole_host = isinstance(error, _UNREACHABLE)
            excluded.add((remote[0].host,
                          None if whole_host else remote[0].key))
            return
        excluded.update((p.host, None) for p in remote
                        if not self._answers(p.host))

    def _own_sound(self, parts: tuple[routes.Part, ...],
                   made: tuple[str, ...]) -> bool:
        """Verify what was read from this host's own disk.

        :param made: content ids of what was to be made of the parts
        """
        keys = [p.key for p in parts if self.is_own(p.host)]
        keys += [views.Key(views.MANIFESTS, content) for content in made]
        keys += [views.Key(views.MANIFESTS, p.key.id) for p in parts
                 if p.key.kind == views.TEMPLATES]
        return all([self._held.verify(key) for key in keys
                    if key in self._held])

    def _answers(self, host: str) -> bool:
        try:
            address = urllib.parse.urlsplit(self._transfers.url_of(host))
            with socket.create_connection(
                    (address.hostname, address.port), PROBE_SECONDS):
                return True
        except (OSError, exceptions.PeerUnavailable):
            self._transfers.unreachable.add(host)
            return False

    def _nothing_left(self, key, tried, last) -> exceptions.DiffCacheError:
        if last is None:
            return exceptions.PeerUnavailable(
                f'Nobody this host knows of offers {key}; is the '
                f'repository\'s agent running?')
        return type(last)(
            f'{key} cannot be brought to {self._plane.name}: {len(tried)} '
            f'ways were tried; the last failure: {last}')

    def _fetch_small(self, key: views.Key, pace: throttle.Pace):
        dest = self._held.path(key)
        attempt = _ObjectAttempt(self, dest, pace)
        _, moved, _ = self._first_that_works(key, attempt)
        self._held.added(key)
        return dest, moved


class _TemplateAttempt:
    """How the ways to a template are found and gone.

    ``read`` is what the way last taken was reading when it ended, ``made``
    the content ids that were being made of it.
    """

    def __init__(self, maker: Maker, key: views.Key, dest: pathlib.Path,
                 pace: throttle.Pace, mode: str) -> None:
        self._maker = maker
        self._key = key
        self._dest = dest
        self.pace = pace
        self._mode = mode
        self.read: tuple[routes.Part, ...] = ()
        self.made: tuple[str, ...] = ()

    def candidates(self, key: views.Key,
                   table: routes.Routes) -> list[routes.Route]:
        return table.to_template(key.id)

    def execute(self, route: routes.Route) -> transfer.Moved:
        self.read, self.made = route.parts, ()
        self._maker.manifest(self._key.id, self.pace)
        if route.builds:
            return self._build(route)
        if self._maker.is_own(route.source.host):
            self._maker.copy_held(route.source.key, self._dest, self.pace)
            return transfer.Moved()
        return self._maker.move(route.source, self._dest, self.pace)

    def _build(self, route: routes.Route) -> transfer.Moved:
        """Patch by patch; what one made is removed after the next."""
        moved = transfer.Moved()
        base: routes.Part | pathlib.Path = route.source
        with contextlib.ExitStack() as stack:
            for content_id, patch in zip(route.through, route.patches):
                dest = self._maker.new_staged(content_id)
                stack.callback(files.discard, dest)
                moved += self._take(Step(base, patch, content_id, dest,
                                         False))
                if isinstance(base, pathlib.Path):
                    files.discard(base)
                base = dest
            return moved + self._take(Step(
                base, route.patches[-1], self._key.id, self._dest,
                self.pace.durable))

    def _take(self, step: Step) -> transfer.Moved:
        self.made = (step.target,)
        if self._mode == FETCH_AND_PATCH:
            self.read = step.parts
            return self._maker.patch_copies(step, self.pace)
        # If nobody has the manifest, no source of this step is to blame.
        self.read = ()
        manifest = self._maker.manifest(step.target, self.pace)
        self.read = step.parts
        return self._maker.build(step, manifest, self.pace)

    def way(self, route: routes.Route) -> str:
        if route.builds:
            return 'build'
        return _way_of(self._maker, route.source.host)

    def describe(self, route: routes.Route) -> str:
        return route.describe()

    def seconds(self, route: routes.Route) -> float:
        return route.seconds

    def patch_id(self, route: routes.Route) -> str | None:
        # The time that a chain took is that of none of its patches.
        return route.patches[0].key.id if len(route.patches) == 1 else None


class _ObjectAttempt:
    """The same for patches and manifests, which are only ever fetched."""

    def __init__(self, maker: Maker, dest: pathlib.Path,
                 pace: throttle.Pace) -> None:
        self._maker = maker
        self._dest = dest
        self.pace = pace
        self.read: tuple[routes.Part, ...] = ()
        self.made: tuple[str, ...] = ()

    def candidates(self, key: views.Key,
                   table: routes.Routes) -> list[routes.Part]:
        return table.to_object(key)

    def execute(self, part: routes.Part) -> transfer.Moved:
        self.read = (part,)
        return self._maker.move(part, self._dest, self.pace)

    def way(self, part: routes.Part) -> str:
        return _way_of(self._maker, part.host)

    def describe(self, part: routes.Part) -> str:
        return f'{part.key.kind} from {part.host}'

    def seconds(self, part: routes.Part) -> float:
        return 0.0

    def patch_id(self, part: routes.Part) -> None:
        return None


def _way_of(maker: Maker, host: str) -> str:
    if maker.is_own(host):
        return 'local'
    return 'repository' if maker.is_repository(host) else 'peer'
