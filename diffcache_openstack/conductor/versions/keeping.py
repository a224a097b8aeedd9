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
"""Which servers' versions have to be compared with a policy.

What a policy drops depends on the policy and on the versions that there are,
not on the time. So in each round only servers are looked at that have versions
which became usable since the last round, or whose policy is another one; and
those that a version could not be deleted of.
"""

import collections.abc
import datetime

from diffcache_openstack.db import engine
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack import objects

# Times are those of the conductors that wrote them, at the begin of their
# transactions.
_SLACK = datetime.timedelta(minutes=5)


class Keeping:
    """Remembers what was compared with which policies.

    A new one, after a start, looks at all.
    """

    def __init__(self, database: engine.Database) -> None:
        self._database = database
        self._since: datetime.datetime | None = None
        self._policies: dict[str, tuple] = {}
        self._own: set[str] = set()
        self._changed: dict[str, str] = {}
        # Servers to look at again: of the last round, and of this one.
        self._again: dict[str, str] = {}
        self._postponed: dict[str, str] = {}

    def begin(self, policies: collections.abc.Collection[objects.VersionPolicy]
              ) -> None:
        """Begin a round over all policies."""
        own = {policy.server_id for policy in policies if policy.server_id}
        # Their project's policy counts from now on.
        lost, self._own = self._own - own, own
        self._policies = {
            policy.id: terms for policy in policies
            if (terms := self._policies.get(policy.id)) is not None}
        if self._since is None or lost:
            self._policies.clear()
        else:
            self._changed = self._again | self._database.read(
                db.changed_servers, self._since)
        self._postponed = {}

    def end(self, began: datetime.datetime) -> None:
        """End a round that looked at all policies."""
        self._since = began - _SLACK
        self._again = self._postponed

    def servers(self, policy: objects.VersionPolicy) -> list[str]:
        """Return the servers whose versions are to be compared."""
        if self._policies.get(policy.id) == _terms(policy):
            found = sorted(server for server, project in self._changed.items()
                           if policy.server_id == server
                           or not policy.server_id
                           and project == policy.project_id)
        elif policy.server_id:
            found = [policy.server_id]
        else:
            found = self._database.read(db.servers_of, policy.project_id)
        return [server for server in found
                if policy.server_id or server not in self._own]

    def done(self, policy: objects.VersionPolicy) -> None:
        """Note that all that a policy drops was deleted, or postponed."""
        self._policies[policy.id] = _terms(policy)

    def postpone(self, policy: objects.VersionPolicy, server: str) -> None:
        """Look at a server in the next round again."""
        self._postponed[server] = policy.project_id


def _terms(policy):
    return (policy.server_id, policy.project_id, policy.keep_last,
            policy.keep_hourly, policy.keep_daily, policy.keep_weekly,
            policy.keep_monthly)
