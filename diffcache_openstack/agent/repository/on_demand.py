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
"""Patches that hosts request while a server waits for its image.

The background thread creates patches between images that it finds similar, in
an order and at times of its own. A host that needs an image now, and that has
another one, may have the patch between the two created at once, as long as
that is the faster way and the patch is there before the host stops waiting.
Requests come from many hosts and cost a minute of all processors each, so one
patch is created at a time, and this many in an hour.
"""

import collections
import collections.abc
import concurrent.futures
import dataclasses
import logging
import statistics
import threading
import time

from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.agent.repository import pair_choice
from diffcache_openstack.agent.repository import patch_making
from diffcache_openstack.agent.repository import records
from diffcache_openstack.common import exceptions
from diffcache_openstack.objects import patch_work
from diffcache_openstack.rpc import agent_api

LOG = logging.getLogger(__name__)

# Bytes of a target's data per second, until a patch was timed here: half of
# what one processor does.
_FIRST_RATE = 30e6
# Patches that the rate is the median of.
_TIMED = 32
_HOUR = 3600.0
# Requests that may wait for the patch that is being created.
_MOST_WAITING = 8
# Pairs remembered whose patch turned out too large.
_REMEMBERED = 1024
_BITS = 8e-6


@dataclasses.dataclass(frozen=True)
class PatchRequest:
    """A patch that a host requests.

    :param target: content id of the image that it needs
    :param bases: content ids of images at its site
    :param seconds: what the cheapest way without the patch takes
    :param mbps: rate of its link to this repository, Mbit/s
    """

    target: str
    bases: tuple[str, ...]
    seconds: float
    mbps: float


class OnDemand:
    """Creates patches that hosts request.

    :param repository: serves images and patches
    :param maker: creates patches
    :param most_per_hour: patches; none at all if 0
    :param clock: seconds, monotonic
    """

    def __init__(self, repository: catalogue.Repository,
                 maker: patch_making.PatchMaker, most_per_hour: int,
                 clock: collections.abc.Callable[[], float] = time.monotonic
                 ) -> None:
        self._repository = repository
        self._maker = maker
        self._most_per_hour = most_per_hour
        self._clock = clock
        self._lock = threading.Lock()
        self._started: collections.deque[float] = collections.deque()
        self._target: str | None = None
        self._waiting = 0
        self._work: concurrent.futures.Future = concurrent.futures.Future()
        self._declined: collections.OrderedDict[pair_choice.Pair, None] = \
            collections.OrderedDict()

    def create(self, wanted: PatchRequest) -> records.PatchRecord | None:
        """Return the best patch from one of some images, created if need be.

        :returns: None if the host is faster without one
        :raises Busy: another patch is being created, or enough were
        :raises NotFound: the target is no image of this repository
        :raises RetryableError: it could not be created
        """
        if not self._most_per_hour:
            return None
        if not self._repository.has_content(wanted.target):
            raise exceptions.NotFound(
                f'No image of this repository has the content'
                f' {wanted.target}.')
        with self._lock:
            leads = self._target is None
            if leads:
                self._target = wanted.target
                self._work = concurrent.futures.Future()
            elif self._target != wanted.target \
                    or self._waiting >= _MOST_WAITING:
                raise exceptions.Busy(
                    'The repository is creating another patch for a host;'
                    ' fetch the image without one.')
            else:
                self._waiting += 1
            work = self._work
        return self._lead(wanted, work) if leads \
            else self._follow(wanted, work)

    def _follow(self, wanted, work) -> records.PatchRecord | None:
        wait = agent_api.longest_wait(wanted.seconds)
        try:
            work.result(wait)
        except TimeoutError as error:
            raise exceptions.Busy(
                f'The patch to {wanted.target} is still being created after'
                f' {wait:.0f} s; fetch the image without it.') from error
        finally:
            with self._lock:
                self._waiting -= 1
        # It may be from a base that this host has not.
        known = [found for base in wanted.bases if (
            found := self._repository.find_patch(base, wanted.target))]
        return min(known, key=lambda patch: patch.size, default=None)

    def _lead(self, wanted, work) -> records.PatchRecord | None:
        try:
            found = self._create(wanted)
        except BaseException as error:
            self._end()
            work.set_exception(error)
            raise
        self._end()
        work.set_result(found)
        return found

    def _end(self) -> None:
        with self._lock:
            self._target = None

    def _create(self, wanted: PatchRequest) -> records.PatchRecord | None:
        best = min(self._worthwhile(wanted), default=None)
        if best is None:
            return None
        _seconds, base = best
        if self._repository.find_patch(base, wanted.target) is None:
            self._count()
            LOG.info('Creating the patch from %s to %s that a host waits for',
                     base, wanted.target)
        self._maker.create(base, wanted.target)
        found = self._repository.find_patch(base, wanted.target)
        if found is None:
            self._remember((base, wanted.target))
        return found

    def _worthwhile(self, wanted: PatchRequest
                    ) -> collections.abc.Iterator[tuple[float, str]]:
        """Yield bases whose patch is the faster way, with the seconds."""
        target = wanted.target
        making = self._making_seconds(target)
        in_time = making <= agent_api.longest_wait(wanted.seconds)
        for base in dict.fromkeys(wanted.bases):
            if base == target or (base, target) in self._declined \
                    or not self._maker.has_sketch(base):
                continue
            known = self._repository.find_patch(base, target)
            if known is not None:
                size, more = known.size, known.apply_seconds
            elif not in_time:
                continue
            else:
                estimate = self._maker.estimate(base, target)
                if estimate.kind != patch_work.ESTIMATED:
                    continue
                size, more = estimate.size or 0, making
            seconds = size * _BITS / wanted.mbps + more
            if seconds < wanted.seconds:
                yield seconds, base

    def _making_seconds(self, target: str) -> float:
        """Return what a patch takes to create here and to apply there."""
        # It is applied here, too, to time it.
        rates = [self._repository.data_size(each.target) / seconds
                 for each in self._repository.patches()[-_TIMED:]
                 if (seconds := each.create_seconds
                     + 2 * each.apply_seconds) > 0]
        rate = statistics.median(rates) if any(rates) else _FIRST_RATE
        return self._repository.data_size(target) / max(rate, 1.0)

    def _count(self) -> None:
        """Count a patch that is about to be created.

        :raises Busy: enough were in the last hour
        """
        now = self._clock()
        while self._started and self._started[0] <= now - _HOUR:
            self._started.popleft()
        if len(self._started) >= self._most_per_hour:
            raise exceptions.Busy(
                f'{len(self._started)} patches were created for hosts within'
                f' an hour ([repository] patches_on_demand); fetch the image'
                f' without one.')
        self._started.append(now)

    def _remember(self, pair: pair_choice.Pair) -> None:
        self._declined[pair] = None
        while len(self._declined) > _REMEMBERED:
            self._declined.popitem(last=False)
