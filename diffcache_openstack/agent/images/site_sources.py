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
"""The hosts that this one may read objects from, and the routes by them."""

import collections.abc

from diffcache_openstack.agent.images import site_transfers
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views

# How requests are counted that read from this host.
LOCAL = 'local'
# A host, and an object that it cannot deliver; None for all its objects.
Exclusion = tuple[str, views.Key | None]


class Sources:
    """This host, its peers and the repositories, as the site map shows them.

    :param transfers: knows the repositories, and which hosts did not answer
    :param host: this host's state
    :param hops: patches that may be applied one after another while
        the site map does not say
    """

    def __init__(self, transfers: site_transfers.Transfers,
                 host: host_state.HostState,
                 hops: int = routes.MAX_HOPS) -> None:
        self._transfers = transfers
        self._held = host.held
        self._view = host.site_map.current
        self._hops = hops

    def is_own(self, host: str) -> bool:
        """Return whether a host is this one."""
        return host == self._transfers.host

    def is_peer(self, host: str) -> bool:
        """Return whether a host is another one of the site."""
        return not (self.is_own(host) or self._transfers.is_repository(host))

    def way_of(self, host: str) -> str:
        """Return how requests are counted that read from a host."""
        if self.is_own(host):
            return LOCAL
        return 'peer' if self.is_peer(host) else 'repository'

    def lookup_table(self, excluded: collections.abc.Iterable[Exclusion] = ()
                     ) -> routes.Routes:
        """Return the lookup table without what failed."""
        down = {(name, None) for name in self._transfers.avoided()}
        return self._table({*excluded, *down})

    def last_table(self, excluded: collections.abc.Iterable[Exclusion]
                   ) -> routes.Routes:
        """Return the lookup table with hosts that do not answer, too."""
        return self._table(excluded)

    def other_repositories(self, part: routes.Part) -> list[str]:
        """List where else a part can be read that a repository has."""
        if not self._transfers.is_repository(part.host):
            return []
        avoided = self._transfers.avoided()
        return [name for name in self._view().repositories_with(part.key)
                if name != part.host and name not in avoided
                and self._transfers.is_reachable(name)]

    def _table(self, excluded):
        view = self._view()
        return routes.Routes(view, self._transfers.host, self._held.readable(),
                             frozenset(excluded),
                             view.hops or self._hops)
