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
"""Requests for patches that no repository has created yet.

Before an image crosses the WAN whole, the repository is asked whether a patch
from an image of the site would be the faster way, its creation included. If
the answer is no, late, or none at all, the image comes as it would have come.

A late answer costs time, so the wait has two limits: a fraction of what the
image takes whole (``agent_api.WAIT_FRACTION``), and a multiple of what such a
patch takes to create by those created before. The repository keeps a patch
that is late; the next host finds it.
"""

import collections
import collections.abc
import logging
import statistics
import threading
import time

from diffcache_openstack.agent.images.limits import pauses
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import site_sources
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

# What takes less is not worth a question.
_LEAST_SECONDS = 1.0
# A patch is late after this many times what it takes by those created before.
_LATE = 3.0
# Patches that this is the median of.
_TIMED = 32

CREATED, DECLINED, BUSY = 'created', 'declined', 'busy'
LATE, FAILED = 'late', 'failed'
OUTCOMES = CREATED, DECLINED, BUSY, LATE, FAILED


class PatchRequests:
    """Has repositories create patches for images that are needed now.

    :param sources: what this host may read from
    :param host: this host's state
    :param agents: RPC client
    :param context: of the calls
    :param clock: seconds, monotonic
    """

    def __init__(self, sources: site_sources.Sources,
                 host: host_state.HostState,
                 agents: agent_api.AgentAPI,
                 context: contexts.RequestContext,
                 clock: collections.abc.Callable[[], float] = time.monotonic
                 ) -> None:
        self._sources = sources
        self._name = host.name
        self._held = host.held
        self._site_map = host.site_map
        self._agents = agents
        self._context = context
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()
        self._paused = pauses.Pauses(clock)
        self._seconds_per_byte: collections.deque[float] = collections.deque(
            maxlen=_TIMED)

    def counts(self) -> dict[str, int]:
        """Return how many requests had each outcome so far."""
        with self._lock:
            return {name: self._counts[name] for name in OUTCOMES}

    def request(self, content_id: str, throttle: throttles.Throttle) -> None:
        """Have a patch to an image created if that is the faster way.

        Return once it is on the site map, or is not going to be.
        """
        if not self._site_map.reachable \
                or self._site_map.is_early(content_id):
            return
        route = self._cheapest(content_id, throttle)
        if route is None or route.seconds < _LEAST_SECONDS:
            return
        view = self._site_map.current()
        repository = next((part.host for part in route.parts
                           if part.host in view.repositories), None)
        bases = self._bases(view, content_id)
        if repository is None or not bases or repository in self._paused:
            return
        outcome = self._ask(repository, content_id, bases, route.seconds)
        with self._lock:
            self._counts[outcome] += 1

    def _cheapest(self, content_id, throttle) -> routes.Route | None:
        table = self._sources.lookup_table(
            (name, None) for name in throttle.excluded)
        return next(iter(table.to_image(content_id)), None)

    def _bases(self, view: views.SiteView, content_id: str) -> list[str]:
        """List images of the site without a patch, this host's first."""
        known = {patch.base for patch in view.patches
                 if patch.target == content_id}
        own = {key.id for key in self._held.readable()
               if key.kind == views.IMAGES}
        others = {key.id for key in view.holders
                  if key.kind == views.IMAGES}
        ordered = [*sorted(own), *sorted(others - own)]
        return [each for each in ordered
                if each != content_id and each not in known
                and view.content(each) is not None][:agent_api.MOST_BASES]

    def _wait_limit(self, content_id: str, seconds: float) -> float:
        """Return for how many seconds to wait for a patch.

        :param seconds: what the image takes whole
        """
        limit = agent_api.longest_wait(seconds)
        image = self._site_map.current().content(content_id)
        with self._lock:
            timed = list(self._seconds_per_byte)
        if image is None or not timed:
            return limit
        usual = statistics.median(timed) * image.data_size
        return min(limit, max(_LATE * usual, agent_api.LEAST_WAIT))

    def _ask(self, repository: str, content_id: str, bases: list[str],
             seconds: float) -> str:
        links = self._site_map.current().links.of(self._name)
        wait = self._wait_limit(content_id, seconds)
        started = self._clock()
        try:
            found = self._agents.create_patch(
                self._context, repository, agent_api.PatchWanted(
                    content_id, bases, seconds,
                    links.from_repository(repository), wait))
            if found is None:
                return DECLINED
            self._site_map.refresh()
        except exceptions.Busy as error:
            LOG.info('Fetching image content %s without a new patch: %s',
                     content_id, error)
            return BUSY
        except exceptions.DiffCacheError as error:
            self._paused.begin(repository)
            waited = self._clock() - started
            LOG.warning('Repository %s created no patch to %s within %.1f s,'
                        ' fetching the image without it, will not ask the'
                        ' repository for %.0f s: %s', repository, content_id,
                        waited, pauses.SECONDS, error)
            return LATE if waited >= wait else FAILED
        self._learn(content_id, found)
        return self._check(repository, content_id, found.id)

    def _learn(self, content_id: str, patch: objects.Patch) -> None:
        """Note what a patch took the repository to create and to time."""
        image = self._site_map.current().content(content_id)
        if image is not None and image.data_size > 0:
            seconds = patch.create_seconds + patch.apply_seconds
            with self._lock:
                self._seconds_per_byte.append(seconds / image.data_size)

    def _check(self, repository: str, content_id: str, patch_id: str) -> str:
        if self._site_map.current().patch(patch_id) is None:
            LOG.warning('The site map does not have patch %s to %s, which'
                        ' repository %s says to have created', patch_id,
                        content_id, repository)
            return FAILED
        LOG.info('Repository %s created patch %s to %s on request',
                 repository, patch_id, content_id)
        return CREATED
