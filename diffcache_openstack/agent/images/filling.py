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
"""Filling the cache with the objects of the plan, in the plan's order.

Filling is background work: it keeps to its rate and its time windows, and
stays off the WAN while a request of this host uses it. What a cut-off
transfer brought stays and is continued. Each object comes the cheapest way
there is: from a peer, built at the site from base and patch, or from the
repository.
"""

import collections.abc
import contextlib
import dataclasses
import logging
import pathlib
import threading
import time
import typing

from diffcache_openstack import _native
from diffcache_openstack.agent.images import arriving_bases
from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images.limits import job_limits
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

# Wait after a failed attempt to fetch an object, seconds; doubled each time.
FIRST_RETRY = 2.0
LAST_RETRY = 300.0
# Wait after an attempt that ended with its time window, and the longest
# sleep, seconds.
POLL = 20.0
# How often the bytes of running fills are reported, seconds.
REPORT_INTERVAL = 2.0


@dataclasses.dataclass(frozen=True)
class FillPlan:
    """The objects that this host should hold, most important first.

    :param shares: what precache jobs allow for some of it
    """

    generation: int = 0
    items: tuple[holdings.PlacedObject, ...] = ()
    shares: job_limits.Shares = dataclasses.field(default_factory=dict)

    @classmethod
    def load(cls, path: pathlib.Path) -> 'FillPlan':
        """Read the plan kept from the last run; empty if there is none."""
        document = files.read_json(path)
        if document is None:
            return cls()
        return cls(document['generation'], tuple(
            holdings.PlacedObject(views.Key(kind, object_id), priority)
            for kind, object_id, priority in document['items']),
            job_limits.load(document['shares']))

    @classmethod
    def received(cls, generation: int,
                 items: collections.abc.Iterable[tuple[str, str, float]],
                 limits: collections.abc.Iterable[
                     collections.abc.Sequence] = ()) -> 'FillPlan':
        """Return the plan of an RPC call.

        :param items: kind, id and priority of objects, in any order
        :param limits: of precache jobs, as :func:`job_limits.load` reads them
        :raises InvalidInput: a time window among them cannot be read
        """
        return cls(generation, tuple(
            holdings.PlacedObject(views.Key(kind, object_id), priority)
            for kind, object_id, priority in
            sorted(items, key=lambda item: item[2])), job_limits.load(limits))

    def save(self, path: pathlib.Path) -> None:
        """Store the plan for the next run of the agent."""
        files.write_json(path, {
            'generation': self.generation,
            'items': [[*item.key, item.priority] for item in self.items],
            'shares': job_limits.dump(self.shares)})


@dataclasses.dataclass(frozen=True)
class FillLimits:
    """What fills are allowed.

    :param rate: bytes/s of all fills, None for no limit
    :param may_run: whether the WAN's time windows are open
    :param workers: objects filled at once
    :param recipes_capacity: bytes that recipes may take; they are fetched
        for content that is held, after all objects of the plan
    """

    rate: float | None
    may_run: typing.Callable[[], bool]
    workers: int = 1
    recipes_capacity: int = 0


@dataclasses.dataclass
class Try:
    """The attempts to fetch an object so far.

    :param done: bytes of the transfer that is under way, or was
    :param total: bytes of all of it, 0 if that is not known
    :param attempts: that failed
    :param error: the last one's
    :param due: monotonic time of the next one
    :param wait: seconds that it waits for that, in all
    """

    done: int = 0
    total: int = 0
    attempts: int = 0
    error: str | None = None
    due: float = 0.0
    wait: float = 0.0


@dataclasses.dataclass(frozen=True)
class Missing:
    """Objects that the plan places and that are not held, with their state.

    :param retry_in: seconds until the next try after a failure
    """

    key: views.Key
    active: bool
    done: int
    total: int
    attempts: int
    error: str | None
    retry_in: float | None


class Filler:
    """Fills one host's cache.

    :param builder: builds objects
    :param arrivals: finds bases that are arriving
    :param host: this host's state
    :param flights: single flight of this host
    :param new_handle: creates handles of orders to the data plane
    :param limits: rate, windows, parallelism
    :param plan_file: keeps the plan over restarts
    """

    def __init__(self, builder: building.Builder,
                 arrivals: arriving_bases.Arrivals,
                 host: host_state.HostState,
                 flights: single_flight.SingleFlight,
                 new_handle: typing.Callable[[], _native.Handle],
                 limits: FillLimits, plan_file: pathlib.Path) -> None:
        self._builder = builder
        self._arrivals = arrivals
        self._host = host
        self._held = host.held
        self._single_flight = flights
        self._new_handle = new_handle
        self._view = host.site_map.current
        self._limits = limits
        self._plan_file = plan_file
        self._reported_at = 0.0
        self._wake = threading.Condition()
        self._plan = FillPlan.load(plan_file)
        self._planned_with = self._view().generation
        self._tries: dict[views.Key, Try] = {}
        self._working: dict[views.Key, job_limits.JobThrottle] = {}
        self._stopped = False
        self._threads: list[threading.Thread] = []
        host.held.want(list(self._plan.items))

    def start(self) -> None:
        """Start the threads that fill the cache."""
        for number in range(self._limits.workers):
            thread = threading.Thread(target=self._run, daemon=True,
                                      name=f'fill-{number}')
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """End soon; what has arrived stays for the next start."""
        with self._wake:
            self._stopped = True
            for throttle in self._working.values():
                throttle.stop()
            self._wake.notify_all()
        for thread in self._threads:
            thread.join()

    def hold(self, plan: FillPlan) -> None:
        """Follow another plan from now on; an older one is ignored."""
        with self._wake:
            if plan.generation < self._plan.generation:
                LOG.info('Ignoring plan %d, which is older than plan %d',
                         plan.generation, self._plan.generation)
                return
            self._plan = plan
            self._store(plan)
            self._planned_with = self._view().generation
            self._held.want(list(plan.items))
            self._tries.clear()
            wanted = {item.key for item in plan.items}
            for key, throttle in self._working.items():
                # A transfer under another limit resumes at its current offset.
                # What a request waits for would begin anew for it.
                if not throttle.promoted and (
                        key not in wanted
                        or throttle.share != plan.shares.get(key)):
                    throttle.stop()
            self._wake.notify_all()

    def _store(self, plan: FillPlan) -> None:
        """Store the plan, or log why a restart follows the one of before.

        It may be what makes room.
        """
        try:
            plan.save(self._plan_file)
        except exceptions.NoSpace as error:
            LOG.error('Could not store plan %d, which is followed until a'
                      ' restart: %s', plan.generation, error)

    def wake(self) -> None:
        """Check the plan again at once, after a change of the site."""
        with self._wake:
            for found in self._tries.values():
                found.due = found.wait = 0.0
            self._wake.notify_all()

    @property
    def generation(self) -> int:
        """Of the plan that is followed."""
        return self._plan.generation

    def missing(self) -> list[views.Key]:
        """List objects of the plan that are neither held nor withdrawn."""
        with self._wake:
            return [item.key for item in self._plan.items
                    if item.key not in self._held
                    and not self._is_withdrawn(item.key)]

    def report(self) -> list[Missing]:
        """Return the state of missing objects, in the plan's order."""
        now = time.monotonic()
        with self._wake:
            return [self._missing(key, now) for key in self.missing()]

    def _is_withdrawn(self, key: views.Key) -> bool:
        """Return whether a planned object was withdrawn.

        A plan may come before the map that it was made with. What a later
        map does not know was there and is no longer.
        """
        view = self._view()
        return (view.generation != self._planned_with
                and view.size_of(key) is None)

    def _missing(self, key, now):
        found = self._tries.get(key, Try())
        active = key in self._working
        waits = bool(found.attempts) and not active
        return Missing(key, active, found.done, found.total, found.attempts,
                       found.error, max(0.0, found.due - now) if waits
                       else None)

    # -- the workers

    def _run(self) -> None:
        while True:
            key = self._next()
            if key is None:
                return
            throttle = self._working[key]
            try:
                self._fill(key, throttle)
            except exceptions.Cancelled as error:
                LOG.debug('Pausing the fill of %s: %s', key, error)
                self._await_window(key, throttle)
            except exceptions.DiffCacheError as error:
                LOG.warning('Could not fetch %s of the plan, will retry: %s',
                            key, error)
                self._postpone(key, str(error))
            except Exception as error:
                LOG.exception('Could not fetch %s of the plan, will retry',
                              key)
                self._postpone(key, f'{type(error).__name__}; see the log of'
                                    f' the agent.')
            else:
                self._tries.pop(key, None)
                self._host.object_added()
            finally:
                with self._wake:
                    del self._working[key]
                    self._wake.notify_all()

    def _next(self) -> views.Key | None:
        with self._wake:
            while not self._stopped:
                key, wait = self._choose()
                if key is not None:
                    self._working[key] = self._new_throttle(key)
                    return key
                self._wake.wait(wait)
            return None

    def _new_throttle(self, key: views.Key) -> job_limits.JobThrottle:
        rate = self._limits.rate
        part = rate / self._limits.workers if rate else None
        throttle = job_limits.JobThrottle(
            self._new_handle(), part, self._limits.may_run,
            self._plan.shares.get(key))
        throttle.progress = lambda done, total: self._note(key, done, total)
        return throttle

    def _note(self, key: views.Key, done: int, total: int) -> None:
        """Note bytes that arrived; have them reported now and then."""
        now = time.monotonic()
        with self._wake:
            found = self._tries.setdefault(key, Try())
            found.done, found.total = done, total
            if now - self._reported_at < REPORT_INTERVAL:
                return
            self._reported_at = now
        self._host.report_due.set()

    def _choose(self) -> tuple[views.Key | None, float]:
        """Return the next object, or the seconds to wait before a retry."""
        now = time.monotonic()
        soonest = now + POLL
        for item in self._plan.items:
            if item.key in self._held or self._is_taken(item.key) \
                    or self._is_withdrawn(item.key):
                continue
            due = self._due(item.key)
            if due <= now:
                return item.key, 0.0
            soonest = min(soonest, due)
        for key in self._missing_recipes():
            if self._due(key) <= now and key not in self._working:
                return key, 0.0
        return None, soonest - now

    def _due(self, key: views.Key) -> float:
        found = self._tries.get(key)
        return found.due if found else 0.0

    def _is_taken(self, key: views.Key) -> bool:
        return key in self._working or job_limits.is_taken(
            self._plan.shares.get(key),
            (throttle.share for throttle in self._working.values()))

    def _missing_recipes(self) -> list[views.Key]:
        """List recipes of content that is held, or that a held patch makes."""
        view, keys = self._view(), self._held.keys()
        contents = {key.id for key in keys if key.kind == views.IMAGES}
        patches = [view.patch(key.id) for key in keys
                   if key.kind == views.PATCHES]
        contents |= {patch.target for patch in patches if patch}
        wanted = {
            views.Key(views.RECIPES, image.form_id): image.form_size
            for content_id in contents
            for image in view.images_with_recipe.get(content_id, ())
            if image.form_id is not None}
        return [key for key, size in sorted(wanted.items())
                if key not in keys and self._held.room_for_recipe(
                    size, self._limits.recipes_capacity, wanted)]

    def _await_window(self, key: views.Key,
                      throttle: job_limits.JobThrottle) -> None:
        """Retry when the window opens, or at once if the limits changed."""
        with self._wake:
            if throttle.share == self._plan.shares.get(key):
                found = self._tries.setdefault(key, Try())
                found.due, found.wait = time.monotonic() + POLL, 0.0

    def _postpone(self, key: views.Key, error: str) -> None:
        with self._wake:
            found = self._tries.setdefault(key, Try())
            found.attempts += 1
            found.error = error
            found.wait = min(max(2 * found.wait, FIRST_RETRY), LAST_RETRY)
            found.due = time.monotonic() + found.wait
        self._host.report_due.set()

    def _fill(self, key: views.Key, throttle: throttles.FillThrottle) -> None:
        if key.kind == views.RECIPES:
            self._builder.bring(key, throttle)
            return
        size = self._view().size_of(key)
        if size is None:
            raise _unknown(key)
        self._bring_manifest(key, throttle)
        with self._held.room_for(key, size):
            if key in self._held:
                # A request brought it, and it was kept.
                return
            with self._single_flight.share(
                    key, throttle, lambda _member: self._bring(key, throttle)
                    ) as flight:
                if not flight.leads:
                    self._copy(key, flight.path)

    def _bring_manifest(self, key: views.Key,
                        throttle: throttles.FillThrottle) -> None:
        """Fetch the manifest that is needed to use an object without the WAN.

        That of an image, and of a patch's base; with this and the patch,
        the target's is computed.
        """
        content_id = key.id
        if key.kind == views.PATCHES:
            patch = self._view().patch(key.id)
            if patch is None:
                raise _unknown(key)
            content_id = patch.base
        self._builder.manifest(content_id, throttle)

    def _bring(self, key: views.Key, throttle: throttles.FillThrottle
               ) -> tuple[pathlib.Path, building.Built]:
        path = self._held.path(key)
        with self._awaited(key, throttle) as route:
            built = self._builder.build(key, path, throttle,
                                        building.ON_THE_FLY, route)
            if key.kind == views.PATCHES:
                self._builder.target_manifest(key.id, path, throttle)
            self._held.added(key)
        files.discard_part(path)
        LOG.info('Filled %s in %.1f s: %s', key, built.seconds, built.detail)
        return path, built

    def _awaited(self, key: views.Key, throttle: throttles.FillThrottle
                 ) -> contextlib.AbstractContextManager[routes.Route | None]:
        """Yield the route to an image by a base that is arriving.

        What a limited fill brings is no such base, and is not announced: a
        request of another host would be as slow.
        """
        if key.kind != views.IMAGES or throttle.rate is not None:
            return contextlib.nullcontext()
        return self._arrivals.awaited(key.id, throttle)

    def _copy(self, key: views.Key, source: pathlib.Path) -> None:
        """Cache a copy of an object that a request fetched."""
        path = self._held.path(key)
        # Retention may have put it there already.
        if source != path:
            with contextlib.suppress(FileNotFoundError):
                files.copy_file(source, path)
                self._held.added(key)


def _unknown(key: views.Key) -> exceptions.ObjectMissing:
    return exceptions.ObjectMissing(
        f'The site map does not know {key}; the plan is newer than the map,'
        f' or the object was withdrawn.')
