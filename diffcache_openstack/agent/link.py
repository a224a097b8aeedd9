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
"""An agent's side of the conversation with the conductor.

One thread does all of it: signs of life, what is held, which requests were
served, the newest site map. Nothing that serves images waits for it. While
the conductor or the broker is dead it keeps trying, and what it has to say
waits on disk.
"""

import collections
import dataclasses
import logging
import threading
import time
import typing

from oslo_utils import timeutils

from diffcache_openstack.agent.repository import catalogue
from diffcache_openstack.agent.state import request_spool
from diffcache_openstack.agent.state import site_map_file
from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.sites import view as views

LOG = logging.getLogger(__name__)

# After a failure, seconds before the next try; the heartbeat if shorter.
RETRY_SECONDS = 2.0
# Holdings are told again after so many signs of life, changed or not: it
# heals what a lost or overtaken report left wrong.
REPEAT_HOLDINGS = 20


class ConductorLink:
    """Keeps the conductor and this agent informed of each other.

    :param conductor: RPC client
    :param agents: RPC client of the other agents
    :param describe: makes the current description of this host, without
        holdings
    :param holdings: what is held, with sizes
    :param keeper: of the site map
    :param spool: requests to be reported
    :param interval: seconds between two signs of life
    :param learned: called after each new site map
    :param fills: what the plan wants and is not held, and how that stands
    """

    def __init__(self, conductor: conductor_api.ConductorAPI,
                 agents: agent_api.AgentAPI,
                 describe: typing.Callable[[], objects.Host],
                 holdings: typing.Callable[[], dict[views.Key, int]],
                 keeper: site_map_file.SiteMapKeeper,
                 spool: request_spool.Spool,
                 interval: float,
                 learned: typing.Callable[[], None],
                 fills: typing.Callable[[], list[objects.Fill]]) -> None:
        self._conductor = conductor
        self._agents = agents
        self._describe = describe
        self._holdings = holdings
        self._keeper = keeper
        self._spool = spool
        self._interval = interval
        self._learned = learned
        self._fills = fills
        self._reported_fills: list[dict] | None = None
        self.context = contexts.RequestContext.for_service('diffcache-agent')
        self._talking = threading.Lock()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._registered_at: float | None = None
        self._reported: dict[views.Key, int] | None = None
        self._reported_at = 0.0
        self._reachable = False
        # Bounded: what is forgotten is noticed again by the next reader.
        self._suspects: collections.deque = collections.deque(maxlen=100)
        self._on_contact: list[typing.Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='conductor-link')

    def start(self) -> None:
        """Begin to talk."""
        self._thread.start()

    def stop(self) -> None:
        """Stop talking, after what is being said."""
        self._stopped.set()
        self._wake.set()
        self._thread.join()

    @property
    def reachable(self) -> bool:
        """Whether the conductor answered last time."""
        return self._reachable

    def on_contact(self, call: typing.Callable[[], None]) -> None:
        """Have something called when the conductor answers (again)."""
        self._on_contact.append(call)

    def something_changed(self) -> None:
        """Holdings, requests or the map: see to it now."""
        self._wake.set()

    def suspect(self, host: str, key: views.Key) -> None:
        """An object came damaged from a host; have that host look."""
        self._suspects.append((host, key))
        self._wake.set()

    def refresh_map(self) -> None:
        """Get the newest site map now, if the conductor answers.

        :raises RetryableError: it does not
        """
        host = self._describe()
        with self._talking:
            found = self._conductor.get_site_map(
                self.context, host.site, self._keeper.current().generation)
            if found is not None:
                self._keeper.update(found)
        if found is not None:
            self._learned()

    def talk(self) -> None:
        """Say all there is to say.

        :raises DiffCacheError: the conductor does not answer, or refuses
        """
        self._tell_suspects()
        self._register_if_due()
        self._report_holdings()
        self._report_fills()
        # The map serves images; history can wait.
        self.refresh_map()
        if len(self._spool):
            self._spool.deliver(self._report_requests)

    def _tell_suspects(self) -> None:
        while self._suspects:
            host, key = self._suspects[0]
            self._agents.verify_object(self.context, host, *key)
            self._suspects.popleft()

    def _register_if_due(self) -> None:
        now = time.monotonic()
        if self._registered_at is not None \
                and now - self._registered_at < self._interval:
            return
        self._conductor.register_host(self.context, self._describe())
        self._registered_at = now

    def _report_holdings(self) -> None:
        held = self._holdings()
        due = self._reported_at + REPEAT_HOLDINGS * self._interval
        if held == self._reported and time.monotonic() < due:
            return
        try:
            self._conductor.report_holdings(
                self.context, self._describe().name,
                [objects.Holding(kind=key.kind, id=key.id, bytes=size)
                 for key, size in sorted(held.items())])
        except exceptions.NotFound:
            # A conductor with an empty database.
            self._registered_at = None
            raise
        self._reported, self._reported_at = held, time.monotonic()

    def _report_fills(self) -> None:
        found = self._fills()
        # The instant of a retry is a little different each time.
        telling = [{**fill.obj_to_primitive()['diffcache_object.data'],
                    'retry_at': None} for fill in found]
        if telling == self._reported_fills:
            return
        self._conductor.report_fills(self.context, self._describe().name,
                                     found)
        self._reported_fills = telling

    def _report_requests(self, documents: list[dict]) -> None:
        self._conductor.report_requests(
            self.context, [objects.Request.parse_kept(d) for d in documents])

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            wait = self._interval
            try:
                self.talk()
            except exceptions.DiffCacheError as error:
                self._note_failure(error)
                wait = min(RETRY_SECONDS, self._interval)
            except Exception:
                LOG.exception('Talking to the conductor')
                wait = min(RETRY_SECONDS, self._interval)
            else:
                self._note_contact()
            self._wake.wait(wait)

    def _note_failure(self, error: exceptions.DiffCacheError) -> None:
        if self._reachable or self._registered_at is None:
            LOG.warning('No conductor; working from site map generation %d, '
                        '%s: %s', self._keeper.current().generation,
                        timeutils.utcnow(), error)
        self._reachable = False
        # Whatever it knew may be gone when it is back.
        self._registered_at = self._reported = None
        self._reported_fills = None

    def _note_contact(self) -> None:
        if not self._reachable:
            self._reachable = True
            LOG.info('The conductor answers')
            for call in self._on_contact:
                call()


class ConductorCatalogue:
    """The conductor as a repository sees it."""

    def __init__(self, conductor: conductor_api.ConductorAPI,
                 context: contexts.RequestContext, host: str) -> None:
        self._conductor = conductor
        self._context = context
        self._host = host

    def register_template(self, record: catalogue.ImageRecord) -> None:
        """See :class:`.repository.catalogue.Catalogue`."""
        self._conductor.register_template(
            self._context, objects.Template(**dataclasses.asdict(record)))

    def register_patch(self, record: catalogue.PatchRecord) -> None:
        """See :class:`.repository.catalogue.Catalogue`."""
        self._conductor.register_patch(self._context, objects.Patch(
            id=record.id, base=record.base, target=record.target,
            size=record.size, create_seconds=record.create_seconds,
            apply_seconds=record.apply_seconds))

    def missing_patches(self) -> list[catalogue.Pair]:
        """See :class:`.repository.catalogue.Catalogue`."""
        return self._conductor.missing_patches(self._context, self._host)
