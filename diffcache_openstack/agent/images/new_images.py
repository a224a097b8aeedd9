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
"""Images that are requested before the catalogue has them.

An image may be requested seconds after its upload, while a repository is
still adding it. The host asks the repository, which answers at once if waiting
is not worth it, and otherwise as soon as the image's content can be read. The
image counts as one of the catalogue's from then on.
"""

import collections
import collections.abc
import logging
import threading
import time

from diffcache_openstack.agent.images.limits import pauses
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

FOUND, DECLINED, FAILED = 'found', 'declined', 'failed'
OUTCOMES = FOUND, DECLINED, FAILED
# Requests that may wait at a time; further ones do without.
MOST_WAITING = 8


class NewImages:
    """Asks repositories for images that are just being added.

    :param host: this host's state
    :param agents: RPC client
    :param context: of the calls
    :param clock: seconds, monotonic
    """

    def __init__(self, host: host_state.HostState, agents: agent_api.AgentAPI,
                 context: contexts.RequestContext,
                 clock: collections.abc.Callable[[], float] = time.monotonic
                 ) -> None:
        self._name = host.name
        self._site_map = host.site_map
        self._agents = agents
        self._context = context
        self._clock = clock
        self._paused = pauses.Pauses(clock)
        self._places = threading.BoundedSemaphore(MOST_WAITING)
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()
        self._waited = 0.0

    def counts(self) -> dict[str, float]:
        """Return how many requests had each outcome, and the time waited.

        :returns: ``found``; ``declined``: it was not worth waiting, or too
            late; ``failed``: no answer; ``seconds`` of all of them
        """
        with self._lock:
            return {**{name: self._counts[name] for name in OUTCOMES},
                    'seconds': round(self._waited, 3)}

    def find(self, image_id: str, size: int) -> views.ImageRef:
        """Return an image, waiting for a repository that is adding it.

        :param size: bytes of its file
        :raises NotFound: the catalogue does not have it, and no repository
            will have it soon, or it was withdrawn
        """
        try:
            return self._site_map.find(image_id)
        except exceptions.NotFound:
            if not self._site_map.reachable \
                    or self._site_map.current().has(image_id) \
                    or not self._places.acquire(blocking=False):
                raise
        try:
            self._request(image_id, size)
        finally:
            self._places.release()
        return self._site_map.find(image_id)

    def _request(self, image_id: str, size: int) -> None:
        view = self._site_map.current()
        links = view.links.of(self._name)
        # Each repository adds all images; one is read from, the fastest.
        repository = min(
            (name for name, host in view.repositories.items() if host.alive),
            key=lambda name: (-links.from_repository(name), name),
            default=None)
        if repository is None or repository in self._paused:
            return
        started = self._clock()
        outcome = self._ask(repository, image_id, size,
                            links.from_repository(repository))
        with self._lock:
            self._counts[outcome] += 1
            self._waited += self._clock() - started

    def _ask(self, repository: str, image_id: str, size: int, mbps: float
             ) -> str:
        try:
            found = self._agents.await_image(self._context, repository,
                                             image_id, size, mbps)
        except exceptions.DiffCacheError as error:
            self._paused.begin(repository)
            LOG.warning('Repository %s did not say whether it is adding image'
                        ' %s, will not ask it for %.0f s: %s', repository,
                        image_id, pauses.SECONDS, error)
            return FAILED
        if found is None or found.id != image_id \
                or not self._site_map.add_early(found):
            return DECLINED
        LOG.info('Using image %s, which repository %s is adding', image_id,
                 repository)
        return FOUND
