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
"""An agent's reports to the conductor.

One thread sends all of them: heartbeats, holdings, fills, records of requests;
and it fetches the newest site map. Nothing that serves images waits for it.
While the conductor or the broker is down it keeps retrying, and records of
requests wait on disk.
"""

import collections.abc
import functools
import logging
import threading
import time
import typing

from diffcache_openstack.agent.images import host_status
from diffcache_openstack.agent.lazy import hydration_reports
from diffcache_openstack.agent.lazy import planned_boot_sets
from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import volume_reports
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.agent.state import request_spool
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import revocations
from diffcache_openstack.common import threads
from diffcache_openstack import objects
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

# After a failure, seconds before the next attempt; the heartbeat if shorter.
RETRY_SECONDS = 2.0
# Holdings are compared with the conductor's once in this many heartbeats, if
# they changed or not: that finds what a lost or overtaken report left wrong.
REPEAT_HOLDINGS = 20
# The same, for what changes all the time of an SSD cache.
_REPEAT_VOLUMES = 8
# Factor by which a rate has to change to be reported before its time.
_MUCH = 1.25


class Clients(typing.NamedTuple):
    """RPC clients of an agent, and the context of its calls."""

    conductor: conductor_api.ConductorAPI
    agents: agent_api.AgentAPI
    context: contexts.RequestContext


class OptionalParts(typing.NamedTuple):
    """Parts of an agent that not every host has; None for each it lacks.

    :ivar revoked: keys of hosts that are not accepted; None verifies none
    :ivar volumes: in this host's SSD cache
    :ivar hydrations: reports of arriving images, with diffcached only
    :ivar boot_sets: exchanges them, with diffcached only
    """

    revoked: revocations.Revocations | None = None
    volumes: cached_volumes.CachedVolumes | None = None
    hydrations: hydration_reports.HydrationReports | None = None
    boot_sets: planned_boot_sets.BootSetExchange | None = None


class ConductorLink:
    """Reports this host to the conductor, and keeps its site map current.

    :param clients: RPC clients
    :param host: this host's state
    :param status: describes this host
    :param requests: records that wait to be reported
    :param interval: seconds between two heartbeats
    :param parts: of this host, which are reported, or kept current, too
    """

    def __init__(self, clients: Clients, host: host_state.HostState,
                 status: host_status.HostStatus,
                 requests: request_spool.RequestSpool,
                 interval: float, parts: OptionalParts = OptionalParts()
                 ) -> None:
        self._conductor, self._agents, self._context = clients
        self._host = host
        self._status = status
        self._requests = requests
        self._interval = interval
        self._revoked, self._volumes, self._hydrations, self._boot_sets = parts
        self._reported_volumes: int | None = None
        self._reported_names: set[str] = set()
        self._volumes_due = 0.0
        self._stopped = threading.Event()
        self._registered_at: float | None = None
        self._reported_holdings: dict[views.Key, int] | None = None
        self._reported_at = 0.0
        self._reported_borrowed: dict[views.Key, int] | None = None
        self._borrowed_at = 0.0
        self._reported_network: objects.HostNetwork | None = None
        self._network_at = 0.0
        self._reported_fills: list[dict] | None = None
        self._reported_pending: list[dict] | None = None
        # Why reports were refused last.
        self._refusals: dict[str, str] = {}
        self._on_contact: list[typing.Callable[[], object]] = []
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='conductor-link')

    def start(self) -> None:
        """Start the thread that reports."""
        if self._volumes is not None:
            self._volumes.on_change(self._host.report_due.set)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the call that is under way, if it is answered soon."""
        self._stopped.set()
        self._host.report_due.set()
        threads.join(self._thread)

    def on_contact(self, call: typing.Callable[[], object]) -> None:
        """Register a function to call when the conductor answers (again)."""
        self._on_contact.append(call)

    def report(self) -> None:
        """Send all pending reports, and refresh the site map.

        :raises DiffCacheError: the conductor does not answer, or refuses
        """
        self._report_suspects()
        is_map_known = self._send_heartbeat()
        self._report_holdings()
        self._send('borrowed files', self._report_borrowed)
        self._send('links', self._report_network)
        self._report_fills()
        self._report_pending_images()
        self._send('the SSD cache', self._report_volume_caches)
        if self._hydrations is not None:
            self._send('hydrations', functools.partial(
                self._hydrations.report, self._context))
        if self._boot_sets is not None:
            self._send('boot sets', functools.partial(
                self._boot_sets.exchange, self._context))
        # The map is needed to serve images; the history can wait.
        if not is_map_known:
            self._host.site_map.refresh()
        if len(self._requests):
            self._requests.deliver(self._report_requests)

    def _send(self, what: str, report: typing.Callable[[], None]) -> None:
        """Send a report; one that is refused holds up no other one."""
        try:
            report()
        except exceptions.InvalidInput as error:
            if self._refusals.get(what) != str(error):
                LOG.error('The conductor refused the report of %s: %s', what,
                          error)
            self._refusals[what] = str(error)
        else:
            self._refusals.pop(what, None)

    def _report_suspects(self) -> None:
        while self._host.suspects:
            host, key = self._host.suspects[0]
            self._agents.verify_object(self._context, host, *key)
            self._host.suspects.popleft()

    def _send_heartbeat(self) -> bool:
        """Send a heartbeat if it is time.

        :returns: whether the answer says that the site map is the newest
        """
        now = time.monotonic()
        if self._registered_at is not None \
                and now - self._registered_at < self._interval:
            return False
        found = self._conductor.register_host(self._context,
                                              self._status.describe())
        self._registered_at = now
        if self._revoked is not None \
                and found.revoked_number != self._revoked.number:
            self._refresh_revoked(self._revoked)
        return found.map_generation == self._host.site_map.generation

    def _refresh_revoked(self, revoked: revocations.Revocations) -> None:
        try:
            found = self._conductor.get_revoked_keys(self._context,
                                                     revoked.number)
            if found is None:
                return
            revoked.update(found)
        except exceptions.DiffCacheError as error:
            LOG.warning('Could not fetch the list of revoked keys (still'
                        ' using number %d): %s', revoked.number, error)
            return
        # Images that a revoked repository vouched for.
        self._host.site_map.review()

    def _report_holdings(self) -> None:
        held = {key: size for key, size in self._host.held.sizes().items()
                if key.kind != views.COMPRESSED}
        due = self._reported_at + REPEAT_HOLDINGS * self._interval
        if held == self._reported_holdings and time.monotonic() < due:
            return
        try:
            self._send_holdings(held)
        except exceptions.NotFound:
            # A conductor with an empty database.
            self._registered_at = self._reported_holdings = None
            raise
        self._reported_holdings, self._reported_at = held, time.monotonic()

    def _send_holdings(self, held: dict[views.Key, int]) -> None:
        """Report what changed of the holdings, or all of them."""
        known = self._reported_holdings
        if known is not None:
            try:
                self._conductor.change_holdings(
                    self._context, self._host.name,
                    _holdings({key: size for key, size in held.items()
                               if known.get(key) != size}),
                    _holdings({key: size for key, size in known.items()
                               if key not in held}),
                    len(held), sum(held.values()))
                return
            except exceptions.Conflict as error:
                LOG.info('Reporting all objects of this host: %s', error)
        self._conductor.report_holdings(self._context, self._host.name,
                                        _holdings(held))

    def _report_borrowed(self) -> None:
        """Report images that are borrowed, also those that are held."""
        borrowed = self._host.held.borrowed.sizes()
        due = self._borrowed_at + REPEAT_HOLDINGS * self._interval
        if borrowed == self._reported_borrowed and time.monotonic() < due:
            return
        self._conductor.report_borrowed(self._context, self._host.name,
                                        _holdings(borrowed))
        self._reported_borrowed = borrowed
        self._borrowed_at = time.monotonic()

    def _report_network(self) -> None:
        """Report measured links, at once if they changed much."""
        found = self._status.network()
        if found is None:
            return
        due = self._network_at + REPEAT_HOLDINGS * self._interval
        if self._reported_network is not None \
                and time.monotonic() < due \
                and not _is_news(self._reported_network, found):
            return
        self._conductor.report_network(self._context, self._host.name, found)
        self._reported_network = found
        self._network_at = time.monotonic()

    def _report_fills(self) -> None:
        found = self._status.fills()
        compared = _without_retries(found)
        if compared == self._reported_fills:
            return
        self._conductor.report_fills(self._context, self._host.name, found)
        self._reported_fills = compared

    def _report_pending_images(self) -> None:
        found = self._status.pending_images()
        if found is None:
            return
        compared = _without_retries(found)
        if compared == self._reported_pending:
            return
        self._conductor.report_pending_images(self._context, self._host.name,
                                              found)
        self._reported_pending = compared

    def _report_volume_caches(self) -> None:
        """Report the SSD cache when an epoch ended, or volumes changed.

        New volumes are reported twice: at the end of a migration, Nova knows
        only some time later that their server is here.
        """
        if self._volumes is None:
            return
        revision = self._volumes.revision
        if revision == self._reported_volumes \
                and time.monotonic() < self._volumes_due:
            return
        found = volume_reports.collect(self._volumes)
        self._conductor.report_volume_caches(
            self._context, self._host.name, found.cache, found.volumes)
        self._reported_volumes = revision
        names = {each.id for each in found.volumes or ()}
        has_new = not names <= self._reported_names
        self._reported_names = names
        self._volumes_due = time.monotonic() + self._interval * (
            1 if has_new else _REPEAT_VOLUMES)

    def _report_requests(self, documents: list[dict]) -> None:
        self._conductor.report_requests(
            self._context, [objects.Request.parse_kept(d) for d in documents])

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._host.report_due.clear()
            wait = self._interval
            try:
                self.report()
            except exceptions.DiffCacheError as error:
                wait = min(RETRY_SECONDS, self._interval)
                self._note_failure(error, wait)
            except Exception:
                LOG.exception('Could not report to the conductor')
                wait = min(RETRY_SECONDS, self._interval)
            else:
                self._note_contact()
            self._host.report_due.wait(wait)

    def _note_failure(self, error: exceptions.DiffCacheError,
                      wait: float) -> None:
        site_map = self._host.site_map
        if site_map.reachable or self._registered_at is None:
            LOG.warning(
                'Conductor unreachable, retrying every %.0f s and using site'
                ' map generation %d meanwhile: %s', wait,
                site_map.current().generation, error)
        site_map.reachable = False
        # It may come back with an empty database.
        self._registered_at = self._reported_holdings = None
        self._reported_borrowed = self._reported_network = None
        self._reported_fills = self._reported_pending = None
        self._reported_volumes = None
        if self._hydrations is not None:
            self._hydrations.repeat()
        if self._boot_sets is not None:
            self._boot_sets.repeat()

    def _note_contact(self) -> None:
        if not self._host.site_map.reachable:
            self._host.site_map.reachable = True
            LOG.info('Connected to the conductor')
            for call in self._on_contact:
                call()


def _without_retries(found: collections.abc.Iterable[typing.Any]
                     ) -> list[dict]:
    """Return objects as they are compared with those reported before.

    The instant of a retry differs a little each time.
    """
    return [{**each.obj_to_primitive()['diffcache_object.data'],
             'retry_at': None} for each in found]


def _is_news(reported: objects.HostNetwork, found: objects.HostNetwork
             ) -> bool:
    """Return whether what is found differs much from what was reported."""
    before, now = ((
        each.fill_rate, each.fill_windows,
        [(seen.name, seen.answers) for seen in each.repositories])
        for each in (reported, found))
    return before != now or any(
        _moved(*rates) for rates in zip(_rates(reported), _rates(found)))


def _rates(network: objects.HostNetwork) -> list[float | None]:
    return [network.peer_mbps, *(seen.mbps for seen in network.repositories)]


def _moved(before: float | None, now: float | None) -> bool:
    """Return whether a rate changed by more than a quarter."""
    if not before or not now:
        return before != now
    return max(before, now) > _MUCH * min(before, now)


def _holdings(held: dict[views.Key, int]) -> list[objects.Holding]:
    return [objects.Holding(kind=key.kind, id=key.id, bytes=size)
            for key, size in sorted(held.items())]
