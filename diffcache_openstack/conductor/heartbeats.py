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
"""Heartbeats of hosts, several in one transaction.

At rest they are most of what the conductor does. Those of hosts that are as
the database has them take three statements, however many there are.
"""

import datetime

from diffcache_openstack.conductor import agent_notifier
from diffcache_openstack.conductor import batches
from diffcache_openstack.db import engine
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned

# Seconds between two transactions: of a thousand hosts with the default
# interval, some ten heartbeats come within it.
PAUSE_SECONDS = 0.2
# Of one transaction.
_MOST = 200


class Heartbeats:
    """Registers hosts, and answers them.

    :param notifier: notifies agents of changed maps, and of plans they lack
    """

    def __init__(self, database: engine.Database,
                 notifier: agent_notifier.Notifier) -> None:
        self._database = database
        self._notifier = notifier
        self._batches = batches.Batches(self._put, PAUSE_SECONDS, _MOST)

    def put(self, host: objects.Host) -> objects.HeartbeatAnswer:
        """Register a host, or note its heartbeat."""
        answer, changed, lacks_plan = self._batches.submit(host)
        self._notifier.maps_changed(changed)
        if lacks_plan:
            plan = self._database.read(plans.lacked_by, host)
            if plan is not None:
                self._notifier.send_items(plan, host.name)
        return answer

    def settle(self) -> None:
        """Return when the heartbeats that came before are stored."""
        self._batches.submit(None)

    def _put(self, hosts):
        """Return answer, changed sites and whether the plan is another.

        :param hosts: None among them has nothing to store
        """
        known = [host for host in hosts if host is not None]
        if not known:
            return hosts
        now = versioned.now()
        renewed = self._database.write(host_rows.renew_hosts, known, now)
        return [host and self._answer(host, now, renewed.get(host.name))
                for host in hosts]

    def _answer(self, host, now, numbers):
        changed = set()
        if numbers is None:
            try:
                numbers, changed = self._database.write(_register, host, now)
            except Exception as error:
                # Of this host: others are not concerned.
                return error
        return (objects.HeartbeatAnswer(
            map_generation=numbers.map_generation,
            revoked_number=numbers.revoked),
            changed, numbers.plan_generation != host.plan_generation)


def _register(session, host, when: datetime.datetime):
    """Register a host that is new, or changed."""
    _known, changed = host_rows.put_host(session, host, when)
    if changed:
        plans.set_planned(session, host.site, None)
    return host_rows.numbers_of(session, host.site), changed
