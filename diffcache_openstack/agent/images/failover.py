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
"""Trying the routes to an object until one works.

What failed is left out of the next look-up, so that a lost peer or a damaged
object costs one attempt. Repositories come last.
"""

import collections.abc
import dataclasses
import logging
import typing

from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import site_sources
from diffcache_openstack.agent.images import site_transfers
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

_DAMAGED = (exceptions.IntegrityError, exceptions.FormatError,
            exceptions.BaseMismatch)
_UNREACHABLE = (exceptions.PeerUnavailable, exceptions.PeerRefused)


@dataclasses.dataclass(frozen=True)
class Failed:
    """A route that did not deliver.

    :param parts: what it was reading when it ended
    :param targets: content ids that were being built from them
    :param host: the host to blame, if it is known
    """

    route: routes.Route
    error: exceptions.DiffCacheError
    parts: tuple[routes.Part, ...] = ()
    targets: tuple[str, ...] = ()
    host: str | None = None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of one attempt at several routes; ``route`` is None if none worked."""

    route: routes.Route | None
    moved: site_transfers.Moved = site_transfers.Moved()
    failed: tuple[Failed, ...] = ()


class Attempt(typing.Protocol):
    """Finds and executes the routes to one object.

    :ivar read: parts that the route last taken was reading when it ended
    :ivar targets: content ids that were being built from them
    :ivar blamed: the host whose fault it was, if it is known
    """

    throttle: throttles.Throttle
    read: tuple[routes.Part, ...]
    targets: tuple[str, ...]
    blamed: str | None

    def candidates(self, table: routes.Routes) -> list[routes.Route]:
        """Return the routes to the object, cheapest first."""

    def execute(self, candidates: list[routes.Route]) -> Outcome:
        """Take the first routes.

        :raises DiffCacheError: the first one failed
        """

    def describe(self, route: routes.Route) -> str:
        """Return a route in words."""


class _Search:
    """The state of one search for an object."""

    def __init__(self, excluded: collections.abc.Iterable[str]) -> None:
        self.excluded: set[site_sources.Exclusion] = {
            (name, None) for name in excluded}
        self.tried: list[routes.Route] = []
        self.last: exceptions.DiffCacheError | None = None
        self.forgiven = False


class Failover:
    """Tries routes to objects, the cheapest first.

    :param transfers: forgets which hosts did not answer, and what is lent
    :param host: this host's state
    """

    def __init__(self, sources: site_sources.Sources,
                 transfers: site_transfers.Transfers,
                 host: host_state.HostState) -> None:
        self._sources = sources
        self._transfers = transfers
        self._held = host.held
        self._suspect = host.suspect

    def first_that_works(self, key: views.Key, attempt: Attempt
                         ) -> tuple[routes.Route, site_transfers.Moved, int]:
        """Return the route that delivered, its cost, and failures before.

        :raises DiffCacheError: no source was left; the message has the last
            failure
        """
        search = _Search(attempt.throttle.excluded)
        moved = site_transfers.Moved()
        while True:
            with tracing.span('lookup', object=key) as span:
                candidates = self._candidates(key, attempt, search)
                span.note(routes=len(candidates),
                          first=attempt.describe(candidates[0]))
            try:
                with files.read_errors(key):
                    outcome = attempt.execute(candidates)
            except exceptions.Cancelled:
                raise
            except exceptions.DiffCacheError as error:
                outcome = Outcome(None, failed=(Failed(
                    candidates[0], error, attempt.read, attempt.targets,
                    attempt.blamed),))
            moved += outcome.moved
            for failed in outcome.failed:
                search.tried.append(failed.route)
                search.last = failed.error
                LOG.warning('Source %d of %s failed (%s): %s',
                            len(search.tried), key,
                            attempt.describe(failed.route), failed.error)
                self._learn(failed, search)
            if outcome.route is not None:
                return outcome.route, moved, len(search.tried)

    def _candidates(self, key, attempt, search) -> list[routes.Route]:
        """Return the routes that are left, cheapest first.

        :raises DiffCacheError: there are none
        """
        while True:
            table = self._sources.last_table(search.excluded) \
                if search.forgiven \
                else self._sources.lookup_table(search.excluded)
            found = [route for route in attempt.candidates(table)
                     if route not in search.tried]
            if found:
                return found
            if search.forgiven:
                raise self._nothing_left(key, search)
            # Hosts that did not answer lately are better than nothing, and so
            # are repositories that have not answered since.
            search.forgiven = True
            self._transfers.plane.clear_unreachable()

    def _learn(self, failed: Failed, search: _Search) -> None:
        """Exclude the source that failed from the next lookup."""
        error = failed.error
        if isinstance(error, exceptions.NoSpace):
            # Both: what is lent takes space even when its name is gone.
            if any([self._transfers.plane.stop_lending(),
                    self._held.free_disk()]):
                search.tried.pop()
            return
        damaged = isinstance(error, _DAMAGED)
        if damaged and not self._own_sound(failed.parts, failed.targets):
            return
        remote = [part for part in failed.parts
                  if not self._sources.is_own(part.host)]
        if damaged:
            for part in remote:
                self._suspect(part.host, part.key)
        if damaged and failed.targets and failed.host is None \
                and len(remote) == 1:
            self._transfers.accuse(
                remote[0].host, f'its {remote[0].key} is damaged: {error}')
        blamed = [part for part in remote
                  if len(remote) == 1 or part.host == failed.host]
        whole_host = isinstance(error, _UNREACHABLE)
        search.excluded.update((part.host, None if whole_host else part.key)
                               for part in blamed)

    def _own_sound(self, parts: tuple[routes.Part, ...],
                   targets: tuple[str, ...]) -> bool:
        """Verify what was read from this host's own disk.

        :param targets: content ids of what was to be built from the parts
        """
        keys = [p.key for p in parts if self._sources.is_own(p.host)]
        keys += [views.Key(views.MANIFESTS, content) for content in targets]
        keys += [views.Key(views.MANIFESTS, p.key.id) for p in parts
                 if p.key.kind == views.IMAGES]
        return all([self._held.verify(key) for key in keys
                    if key in self._held.readable()])

    def _nothing_left(self, key, search) -> exceptions.DiffCacheError:
        if search.last is None:
            return exceptions.PeerUnavailable(
                f'No known host offers {key}; check that the repository\'s '
                f'agent is running.')
        return type(search.last)(
            f'{key} cannot be brought to {self._transfers.host}: '
            f'{len(search.tried)} sources were tried; the last failure: '
            f'{search.last}')
