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
"""The conductor as a service: RPC server and periodic work."""

import datetime
import functools
import os
import socket
import uuid

from oslo_config import cfg
from oslo_log import log
import oslo_messaging
import prometheus_client

from diffcache_openstack.cloud import servers
from diffcache_openstack.cloud import volumes
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import notifications as listening
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.conductor import addresses
from diffcache_openstack.conductor import agent_notifier
from diffcache_openstack.conductor import demand
from diffcache_openstack.conductor.endpoints import agents as agent_endpoint
from diffcache_openstack.conductor.endpoints import costs as cost_endpoint
from diffcache_openstack.conductor.endpoints import heartbeats as beats
from diffcache_openstack.conductor.endpoints import lazy as lazy_endpoint
from diffcache_openstack.conductor import heartbeats
from diffcache_openstack.conductor import hydrations
from diffcache_openstack.conductor import ledger
from diffcache_openstack.conductor import liveness
from diffcache_openstack.conductor import metrics as conductor_metrics
from diffcache_openstack.conductor import precache
from diffcache_openstack.conductor import proposals
from diffcache_openstack.conductor import residents
from diffcache_openstack.conductor.versions import backups
from diffcache_openstack.conductor.versions import dispatch
from diffcache_openstack.conductor.versions import heads
from diffcache_openstack.conductor.versions import policy_servers
from diffcache_openstack.conductor.versions import service as versions
from diffcache_openstack.conductor.versions import upkeep
from diffcache_openstack.conductor import volume_caches
from diffcache_openstack.conductor import volume_holds
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import engine
from diffcache_openstack.db import migration
from diffcache_openstack.db.patches import pairs as patch_pairs
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.sites import map_changes
from diffcache_openstack.objects import versioned
from diffcache_openstack.planning import planners
from diffcache_openstack.planning import site_state
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import agent_lazy_api
from diffcache_openstack.rpc import agent_versions_api
from diffcache_openstack.rpc import agent_volumes_api
from diffcache_openstack.rpc import buses
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.rpc import gate
from diffcache_openstack.rpc import methods
from diffcache_openstack.runtime import metrics
from diffcache_openstack.runtime import service
from diffcache_openstack.sites import maps as maps

LOG = log.getLogger(__name__)

_PRUNE_INTERVAL = 3600
_UPKEEP_INTERVAL = 300


class ConductorService(service.Service):
    """Answers RPC, watches hosts and plans sites until it is stopped."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self._listener: listening.Listener | None = None
        self.metrics: metrics.MetricsServer | None = None

    def start(self) -> None:
        """Start the service.

        :raises PermanentError: the database's schema is not the code's
        """
        migration.wait_for_schema(self.conf)
        name = f'{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}'
        self._database = engine.Database(self.conf)
        # With connections of its own, however many other calls need some.
        self._heartbeat_database = engine.Database(self.conf)
        self._bus = buses.open_bus(self.conf, host_keys.CONTROLLER)
        buses.warn_if_open(self._bus.security)
        self._ledger = self._new_ledger(self._database)
        self._put_planning_together(name)
        self._put_versions_together(name)
        self._liveness = liveness.Liveness(
            self.conf, self._database, functools.partial(
                conductor_api.ConductorAPI(self._bus, self.conf)
                .await_heartbeats,
                contexts.RequestContext.for_service('conductor')))
        self._maps = maps.Maps(self.conf, self._database)
        self._servers = [
            self._new_server(remote.CONDUCTOR_TOPIC, self._endpoints(),
                             self._ledger),
            self._new_server(remote.HEARTBEAT_TOPIC, [self._heartbeats()],
                             self._new_ledger(self._heartbeat_database))]
        self._notifier.start()
        for server in self._servers:
            self._bus.start(server)
        if self.conf.notifications.enabled:
            self._listener = self._new_listener()
            self._listener.start()
        self._add_timers()
        self._start_metrics()
        LOG.info('Conductor %s is ready', name)

    def _new_ledger(self, database):
        return ledger.DatabaseLedger(
            database, self.conf.messaging.signature_lifetime)

    def _new_server(self, topic, endpoints, accepted):
        """Return an RPC server with threads of its own."""
        return self._bus.server(
            # A name that stays the same over restarts: the broker keeps a
            # queue for each name for ever.
            oslo_messaging.Target(topic=topic, server=socket.gethostname()),
            endpoints,
            gate.Gate(methods.CONDUCTOR, self._bus.security, accepted))

    def _heartbeats(self):
        return beats.HeartbeatsManager(
            heartbeats.Heartbeats(self._heartbeat_database, self._notifier),
            addresses.Addresses(self.conf))

    def _new_listener(self) -> listening.Listener:
        """Return the listener to notifications, not started yet.

        :raises InvalidInput: ``[notifications] transport_url`` is unusable
        """
        options = self.conf.notifications
        return listening.Listener(
            self.conf, [options.nova_exchange, options.glance_exchange],
            demand.History(self._database).handlers())

    def _endpoints(self):
        """Return what answers RPC."""
        agents = agent_volumes_api.AgentVolumesAPI(self._bus, self.conf)
        volumes = volume_caches.VolumeCaches(self._database, self._nova,
                                             agents)
        arriving = hydrations.Hydrations(
            self._database, self._nova,
            agent_lazy_api.AgentLazyAPI(self._bus, self.conf))
        return [
            agent_endpoint.ConductorManager(
                self._database, self._maps, self._planner, self._notifier,
                self._bus.security, volumes),
            cost_endpoint.CostsManager(self.conf, self._database, self._maps),
            self._proposals, self._precacher, volumes,
            volume_holds.VolumeHolds(self._database, agents), arriving,
            lazy_endpoint.LazyManager(self.conf, self._database,
                                      residents.Residents(self._nova)),
            self._versions, heads.StoreHeads(self._database), self._backups]

    def _add_timers(self):
        interval = self.conf.conductor.check_interval
        for task in (self._check_hosts, self._plan_due_sites, self._precache,
                     self._look_after_versions, self._tidy_ledger):
            self.tg.add_timer(interval, task, initial_delay=interval)
        self.tg.add_timer(_PRUNE_INTERVAL, self._prune)
        for task in (self._order_patches, self._prune_map_changes,
                     self._renew_proposals):
            self.tg.add_timer(_UPKEEP_INTERVAL, task,
                              initial_delay=_UPKEEP_INTERVAL)

    def stop(self, graceful: bool = False) -> None:
        """Finish the calls in progress, then stop."""
        if self.metrics is not None:
            self.metrics.stop()
        for server in self._servers:
            server.stop()
            server.wait()
        if self._listener is not None:
            self._listener.stop()
        super().stop(graceful)
        self._proposals.stop()
        self._dispatcher.stop()
        self._notifier.stop()
        self._bus.close()
        self._database.close()
        self._heartbeat_database.close()

    def _start_metrics(self):
        """Serve metrics; each worker has those of the database."""
        options = self.conf.metrics
        if not options.listen:
            return
        registry = prometheus_client.CollectorRegistry()
        collector = conductor_metrics.DatabaseCollector(self._database)
        registry.register(collector)
        self.metrics = metrics.MetricsServer(
            options.listen, registry, collector.problems,
            shared=self.conf.conductor.workers > 1)
        self.metrics.start()

    def _put_planning_together(self, name):
        self._notifier = agent_notifier.Notifier(
            self.conf, self._database,
            agent_api.AgentAPI(self._bus, self.conf))
        self._planner = planners.Planner(self.conf, self._database, name)
        self._proposals = proposals.Proposals(
            self.conf, self._database, self._planner, self._notifier, name)
        self._precacher = precache.Precacher(
            self.conf, self._database, self._planner, self._notifier, name)

    def _put_versions_together(self, name):
        agents = agent_versions_api.AgentVersionsAPI(self._bus, self.conf)
        nova = self._nova = servers.Servers(self.conf)
        self._dispatcher = dispatch.Dispatcher(
            self.conf, self._database, agents, nova, name)
        self._versions = versions.VersionService(
            self.conf, self._database, self._dispatcher, nova, agents)
        self._backups = backups.Backups(self._database, self._dispatcher,
                                        agents)
        self._version_upkeep = upkeep.Upkeep(
            self.conf, self._database, self._versions,
            policy_servers.PolicyServers(nova, volumes.Volumes(self.conf)),
            name)

    def _look_after_versions(self):
        for part in (self._version_upkeep.round, self._dispatcher.look):
            try:
                part()
            except Exception:
                LOG.exception('Could not maintain versions, will retry in the'
                              ' next round')

    def _check_hosts(self):
        self._maps.forget_whole()
        try:
            names, changed = self._liveness.check()
            changed |= self._maps.note_options()
        except Exception:
            LOG.exception('Could not check hosts, will retry in the next'
                          ' round')
            return
        for name in names:
            LOG.warning('Host %s is dead: no heartbeat for %s s ([conductor]'
                        ' host_timeout)', name,
                        self.conf.conductor.host_timeout)
        self._notifier.maps_changed(changed)

    def _tidy_ledger(self):
        try:
            self._ledger.tidy()
        except Exception:
            LOG.exception('Could not forget old messages, will retry in the'
                          ' next round')

    def _order_patches(self):
        try:
            self._database.write(patch_pairs.refresh_demand,
                                 site_state.horizon(versioned.now()))
        except Exception:
            LOG.exception('Could not put patches in order by their requests,'
                          ' will retry in the next round')

    def _prune_map_changes(self):
        try:
            self._database.write(map_changes.prune)
        except Exception:
            LOG.exception('Could not remove old changes of site maps, will'
                          ' retry in the next round')

    def _renew_proposals(self):
        try:
            self._proposals.renew()
        except Exception:
            LOG.exception('Could not renew the leases on plans in the queue,'
                          ' will retry in the next round')

    def _plan_due_sites(self):
        interval = self.conf.planner.interval
        if not interval:
            return
        before = versioned.now() - datetime.timedelta(seconds=interval)
        try:
            for site in self._database.read(plans.due_sites, before):
                self._plan(site)
        except Exception:
            LOG.exception('Could not plan sites, will retry in the next round')

    def _precache(self):
        try:
            self._precacher.round()
        except Exception:
            LOG.exception('Could not process precache jobs, will retry in the'
                          ' next round')

    def _plan(self, site):
        try:
            plan = self._planner.plan_if_changed(site)
        except (exceptions.NotFound, exceptions.Busy) as error:
            LOG.debug('Not planning site %s: %s', site, error)
            return
        except exceptions.DiffCacheError as error:
            LOG.error('Could not plan site %s, will retry in %s s ([planner]'
                      ' interval): %s', site,
                      self.conf.planner.interval, error)
            self._database.write(plans.set_planned, site, versioned.now())
            return
        if plan is not None:
            self._notifier.send_plan(plan)

    def _tidy(self):
        for part in (self._proposals, self._precacher,
                     self._version_upkeep):
            try:
                part.tidy()
            except Exception:
                LOG.exception('Could not remove old plans, precache jobs or'
                              ' tasks')

    def _prune(self):
        self._tidy()
        before = site_state.horizon(versioned.now())
        for function, what in (
                (history.prune, 'old requests'),
                (catalogue.forget_deleted, 'deleted images')):
            try:
                count = self._database.write(function, before)
            except Exception:
                LOG.exception('Could not remove %s', what)
                continue
            if count:
                LOG.info('Removed %d %s from the database', count, what)
