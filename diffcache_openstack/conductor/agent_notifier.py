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
"""Notifications of agents about plans and site maps."""

import threading

from oslo_config import cfg
from oslo_context import context as oslo_context
from oslo_log import log

from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.db import engine
from diffcache_openstack.db.planning import precache_limits
from diffcache_openstack.db.sites import generations
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.rpc import agent_api

LOG = log.getLogger(__name__)

# Changes within this time cause one notification.
DELAY_SECONDS = 0.2


class Notifier:
    """Sends plans, and notifications of changed maps, to the agents.

    Nothing here is needed for agents to be right in the end: they ask for a
    newer map and announce the plan they know with every heartbeat. It makes
    them right soon.
    """

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database,
                 agents: agent_api.AgentAPI):
        self._delay = DELAY_SECONDS
        self._database = database
        self._agents = agents
        self._context = contexts.RequestContext.for_service('conductor')
        self._changed: set[str] = set()
        self._wake = threading.Condition()
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name='notifier', daemon=True)

    def start(self) -> None:
        """Start the thread that sends."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; drop notifications that are not sent yet."""
        self._stopped.set()
        with self._wake:
            self._wake.notify()
        self._thread.join()

    def maps_changed(self, changed: set[str]) -> None:
        """Note sites whose agents have to be notified of a new map."""
        if changed:
            with self._wake:
                self._changed |= changed
                self._wake.notify()

    def send_plan(self, plan: objects.Plan) -> None:
        """Send every host of a plan the objects that it should hold."""
        limits = self._database.read(precache_limits.of_plan, plan)
        for host in plan.hosts:
            self._send(plan, host, limits)

    def send_items(self, plan: objects.Plan, host: str) -> None:
        """Send one host the objects of a plan that it should hold."""
        self._send(plan, host, self._database.read(precache_limits.of_plan,
                                                   plan))

    def _send(self, plan, host, limits):
        items = [item for item in plan.items if item.host == host]
        shares = [(item.kind, item.id, *limits[item.kind, item.id])
                  for item in items if (item.kind, item.id) in limits]
        try:
            self._agents.hold(
                self._current(), host, plan.generation,
                [(item.kind, item.id, item.priority) for item in items],
                shares)
        except exceptions.ServiceUnavailable as error:
            LOG.warning('Could not send plan %s to host %s, which will get it'
                        ' after its next heartbeat: %s', plan.generation, host,
                        error)

    def _current(self):
        """Return the context of the request that caused it."""
        current = oslo_context.get_current()
        if isinstance(current, contexts.RequestContext):
            return current
        return self._context

    def _run(self):
        while not self._stopped.is_set():
            with self._wake:
                self._wake.wait_for(
                    lambda: self._changed or self._stopped.is_set())
            # Changes made meanwhile are sent together.
            if self._stopped.wait(self._delay):
                return
            with self._wake:
                changed, self._changed = self._changed, set()
            for site in sorted(changed):
                self._tell(site)

    def _tell(self, site):
        try:
            generation = self._database.read(generations.map_generation, site)
            for host in self._database.read(host_rows.hosts_on_map, site):
                self._agents.site_map_changed(self._context, host,
                                              generation)
        except Exception:
            # The thread has to outlive whatever the broker or the database
            # does; agents learn of the change with their next heartbeat.
            LOG.exception('Could not notify hosts of site %s of its new map;'
                          ' they fetch it with their next heartbeat', site)
