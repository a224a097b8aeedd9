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
"""Images that are arriving at the site, as bases of others.

Hosts that need several images of one family at the same moment would each
bring theirs whole over the WAN, although a patch from the first would do. So a
host that is about to bring an image whole announces that, and looks at what
others announced. If a base of its image is coming, it reads the base behind
the host that brings it, and applies the patch.

Hosts that decide at the same time see each other. Of two images that could
each be built from the other, the one that takes fewer bytes crosses whole; its
host waits until the other one has decided. When something goes wrong with
that, no image fails: at worst both cross whole, as they would have.
"""

import collections
import collections.abc
import contextlib
import dataclasses
import logging
import math
import threading
import time

from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import site_sources
from diffcache_openstack.agent.images import site_transfers
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.common import exceptions
from diffcache_openstack.placement import ways
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

# An image that takes less seconds is not worth a look.
_LEAST_SECONDS = 1.0
# Bases that are looked at, those with the smallest patches.
_MOST_BASES = 8
# Longest time for the decision, and between two looks, seconds.
_LONGEST = 1.0
_PAUSE = 0.02

USED, UNDECIDED, FAILED = 'used', 'undecided', 'failed'
OUTCOMES = USED, UNDECIDED, FAILED


@dataclasses.dataclass(frozen=True)
class _Base:
    """An image from which the wanted one can be built.

    :param route: to the wanted image
    :param yields: whether the wanted image crosses the WAN first if both are
        considered
    """

    key: views.Key
    route: routes.Route
    yields: bool


class Arrivals:
    """Finds bases among what is arriving at the site.

    :param sources: what this host may read from
    :param transfers: announces, and looks at what was announced
    :param host: this host's state
    :param clock: seconds, monotonic
    :param sleep: waits for some seconds
    """

    def __init__(self, sources: site_sources.Sources,
                 transfers: site_transfers.Transfers,
                 host: host_state.HostState,
                 clock: collections.abc.Callable[[], float] = time.monotonic,
                 sleep: collections.abc.Callable[[float], object] = time.sleep
                 ) -> None:
        self._sources = sources
        self._transfers = transfers
        self._held = host.held
        self._view = host.site_map.current
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()

    def counts(self) -> dict[str, int]:
        """Return how often each outcome was the case so far.

        :returns: ``used``: there was a base; ``undecided``: another host had
            not decided in time; ``failed``: a host could not be asked
        """
        with self._lock:
            return {name: self._counts[name] for name in OUTCOMES}

    @contextlib.contextmanager
    def awaited(self, content_id: str, throttle: throttles.Throttle
                ) -> collections.abc.Iterator[routes.Route | None]:
        """Yield the route to an image by a base that is arriving.

        None if there is no such base. If the image itself crosses the WAN,
        other hosts see that during the block. If it is held or lent at the
        end of the block, they see it until the site map can name this host.

        :raises Cancelled: no client waits for the image any more
        """
        table = self._sources.lookup_table(
            (name, None) for name in throttle.excluded)
        whole = next(iter(table.to_image(content_id)), None)
        if whole is None or whole.builds or whole.seconds < _LEAST_SECONDS \
                or not self._transfers.is_repository(whole.source.host):
            yield None
            return
        decision = _Decision(
            self._transfers, whole.source.key, self._bases(table, whole),
            _Patience(throttle, self._clock, self._sleep))
        with contextlib.closing(decision):
            yield self._made(decision)
            if self._transfers.lends or decision.key in self._held:
                decision.leave()

    def _made(self, decision: '_Decision') -> routes.Route | None:
        """Make a decision; a failure is none to use an arriving base."""
        try:
            route = decision.make()
        except exceptions.Cancelled:
            raise
        except exceptions.DiffCacheError as error:
            LOG.warning('Could not look for bases of %s that are arriving at'
                        ' the site, fetching it without them: %s',
                        decision.key, error)
            self._count(FAILED)
            return None
        if route is not None:
            LOG.info('Building %s with a base that is arriving at the site:'
                     ' %s', decision.key, route.describe())
            self._count(USED)
        elif decision.is_late:
            self._count(UNDECIDED)
        return route

    def _count(self, outcome: str) -> None:
        with self._lock:
            self._counts[outcome] += 1

    # -- candidates

    def _bases(self, table: routes.Routes, whole: routes.Route
               ) -> list[_Base]:
        """List the images from which one is built, the best first.

        :param whole: the route by which it would cross the WAN
        """
        wanted, repository = whole.source.key.id, whole.source.host
        found = []
        for step, base_seconds in self._steps(wanted, repository):
            patch = self._patch(table, step.patch.key)
            if patch is None:
                continue
            key = views.Key(views.IMAGES, step.base)
            followed = wanted in (
                back.base for back, _ in self._steps(step.base, repository))
            found.append(_Base(key, routes.Route(
                routes.Part(key, repository), (patch,),
                base_seconds + step.seconds),
                followed and self._rank(wanted) < self._rank(step.base)))
        return found

    def _rank(self, content_id: str) -> tuple[float, str]:
        """Return what decides which of two images goes first, the lower."""
        size = self._view().wire_size_of(
            views.Key(views.IMAGES, content_id))
        return math.inf if size is None else size, content_id

    def _steps(self, wanted: str, repository: str
               ) -> list[tuple[ways.Step, float]]:
        """List the patches that are worth to wait for their base.

        Two images that cross at the same time share the link, so that
        whichever is wanted alone is there later than one of them would be.
        Only the link counts: to unpack, hash and write the image takes about
        as long where it crosses whole, and what applying a patch took on a
        busy machine must not have another image cross.

        :returns: with the seconds of each base, the smallest patches first
        """
        view = self._view()
        links = view.links.of(self._transfers.host)
        mbps = links.from_repository(repository)
        whole = self._seconds(wanted, mbps)
        found = []
        for step in view.patches_into(links).from_repository(wanted, mbps):
            base = self._seconds(step.base, mbps)
            patch = ways.fetch_seconds(step.patch.size / views.MEGABYTE, mbps)
            if base + patch <= whole + min(base, whole):
                found.append((step, base))
        return found[:_MOST_BASES]

    def _seconds(self, content_id: str, mbps: float) -> float:
        """Return what an image takes over the WAN; infinite if unknown."""
        size = self._view().wire_size_of(
            views.Key(views.IMAGES, content_id))
        if size is None:
            return math.inf
        return ways.fetch_seconds(size / views.MEGABYTE, mbps)

    def _patch(self, table: routes.Routes, key: views.Key
               ) -> routes.Part | None:
        if key in self._held.readable():
            return routes.Part(key, self._transfers.host)
        return next(iter(table.to_object(key)), None)


class _Patience:
    """The time that a decision may take."""

    def __init__(self, throttle: throttles.Throttle,
                 clock: collections.abc.Callable[[], float],
                 sleep: collections.abc.Callable[[float], object]) -> None:
        self._throttle = throttle
        self._clock = clock
        self._sleep = sleep
        self._deadline = clock() + _LONGEST

    def is_over(self) -> bool:
        """Return whether no time is left."""
        return self._clock() >= self._deadline

    def pause(self) -> None:
        """Wait for a moment.

        :raises Cancelled: no client waits for the image any more
        """
        self._throttle.check(False)
        self._sleep(_PAUSE)


class _Decision:
    """Whether an image crosses the WAN whole, or one of its bases does.

    :param key: the image
    """

    def __init__(self, transfers: site_transfers.Transfers, key: views.Key,
                 bases: list[_Base], patience: _Patience) -> None:
        self.key = key
        self._transfers = transfers
        self._bases = bases
        self._patience = patience
        self._coming: _native.Announcement | None = None

    def make(self) -> routes.Route | None:
        """Return the route by a base that is coming.

        None if there is none; that the image is coming is announced then.

        :raises DiffCacheError: a host could not be asked
        """
        while True:
            considered = self._transfers.announce(
                self.key, orders.Stage.CONSIDERED)
            with contextlib.closing(considered):
                coming, first = self._look()
                if coming is not None:
                    return coming.route
                if first is None:
                    # Before the other one ends: one of them is seen.
                    self._coming = self._transfers.announce(
                        self.key, orders.Stage.COMING)
                    return None
            while self._is(first.key, orders.Stage.CONSIDERED):
                self._patience.pause()

    @property
    def is_late(self) -> bool:
        """Whether the time for the decision is over."""
        return self._patience.is_over()

    def leave(self) -> None:
        """Let other hosts see for a while that the image is here."""
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.leave()

    def close(self) -> None:
        """Take back what was announced and not left."""
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.close()

    def _look(self) -> tuple[_Base | None, _Base | None]:
        """Look until it is clear which image goes first.

        :returns: a base that is coming; a base whose host decides first.
            Neither if the image itself is to cross the WAN
        """
        while not self._is(self.key, orders.Stage.COMING):
            # In this order: a host announces that an image is coming before
            # it stops to consider it.
            considered = [base for base in self._bases
                          if self._is(base.key, orders.Stage.CONSIDERED)]
            coming = next((base for base in self._bases if self._is(
                base.key, orders.Stage.COMING)), None)
            first = next((base for base in considered if not base.yields),
                         None)
            if coming is not None or first is not None or not considered:
                return coming, first
            self._patience.pause()
        return None, None

    def _is(self, key: views.Key, stage: orders.Stage) -> bool:
        """Return whether a host announced an image; False if it is late."""
        return not self._patience.is_over() \
            and self._transfers.is_announced(key, stage)
