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
"""The conductor behind its RPC interface, in this process."""

import contextlib
import queue
import uuid

from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.conductor import agent_notifier
from diffcache_openstack.conductor import service
from diffcache_openstack.conf import opts
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.sites import map_state
from diffcache_openstack.sites import views
from tests import executors
from tests.unit.agent import endpoint
from tests.unit.db import database
from tests import waiting

MB = 10 ** 6
ANSWER_SECONDS = 30


class RecordingAgent:
    """Stands where an agent would, and keeps what it is told."""

    def __init__(self):
        self.plans = queue.Queue()
        self.maps = queue.Queue()

    def hold(self, generation, items, limits):
        self.plans.put((generation, items))

    def site_map_changed(self, generation):
        self.maps.put(generation)


class ConductorTest(database.DatabaseTest):

    INTERVAL = 0
    # Seconds between two rounds of the conductor's own timers.
    CHECK_INTERVAL = 1

    def setUp(self):
        super().setUp()
        self.useFixture(executors.QuickExecutors())
        for name, value, group in (
                ('transport_url', 'fake:/', None),
                ('control_exchange', uuid.uuid4().hex, None),
                ('check_interval', self.CHECK_INTERVAL, 'conductor'),
                # However slow the machine is, hosts do not die meanwhile.
                ('host_timeout', 3600, 'conductor'),
                ('rpc_timeout', 60, 'conductor'),
                ('interval', self.INTERVAL, 'planner')):
            self.conf.set_override(name, value, group)
        self.patch(agent_notifier, 'DELAY_SECONDS', 0.01)
        self.prepare()
        self.bus = messaging.Bus(self.conf, versioned.Serializer())
        self.addCleanup(self.bus.close)
        self.api = conductor_api.ConductorAPI(self.bus, self.conf)
        self.ctxt = contexts.RequestContext.for_service('test')
        self.conductor = service.ConductorService(self.conf)
        self.conductor.start()
        self.addCleanup(self.conductor.stop)

    def prepare(self):
        """Change the configuration, before anything is started."""

    def listen(self, host):
        agent = RecordingAgent()
        server = endpoint.server(self.bus, host, agent)
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        return agent

    def register(self, *numbers):
        self.api.register_host(self.ctxt,
                               database.host('h1', capacity=150 * MB))
        for number in numbers:
            self.api.register_image(
                self.ctxt, database.image(number, data_size=100 * MB))


class TestInterface(ConductorTest):

    def test_everything_arrives_in_the_map(self):
        self.register(1, 2)
        self.api.register_host(self.ctxt, database.host(
            'hub', site='centre', role=objects.REPOSITORY))
        known = self.api.register_patch(self.ctxt, database.patch(1, 2))
        self.assertEqual(database.patch(1, 2), known)
        self.api.report_holdings(self.ctxt, 'h1', [database.holding(1)])
        found = self.api.update_site_map(self.ctxt, database.SITE)
        self.assertEqual([known], found.patches)
        self.assertEqual(['t1', 't2'], [t.id for t in found.images])
        self.assertEqual({'h1': [database.holding(1)], 'hub': []},
                         {h.name: h.holdings for h in found.hosts})
        self.assertEqual(20.0, found.links.repo)

    def test_map_is_sent_only_if_it_changed(self):
        self.register(1)
        # The map of a new site changes once more, in the background.
        waiting.until(lambda: database.SITE in self.conductor._maps._shown,
                      'the map to be shown')
        first = self.api.update_site_map(self.ctxt, database.SITE)
        self.assertIsNone(self.api.update_site_map(
            self.ctxt, database.SITE, first.generation))
        # After the database was made anew its numbers may be lower.
        again = self.api.update_site_map(self.ctxt, database.SITE,
                                         first.generation + 100)
        self.assertEqual(first, again)

    def test_removals(self):
        self.register(1, 2)
        self.api.remove_image(self.ctxt, 't1')
        self.assertRaises(exceptions.NotFound, self.api.get_image,
                          self.ctxt, 't1')
        self.assertRaises(exceptions.Conflict, self.api.remove_host,
                          self.ctxt, 'h1')
        database.silence(self.database, 'h1')
        self.api.remove_host(self.ctxt, 'h1')
        found = self.api.update_site_map(self.ctxt, database.SITE)
        self.assertEqual([], found.hosts)
        self.assertRaises(exceptions.NotFound, self.api.remove_host,
                          self.ctxt, 'h1')

    def test_a_map_by_differences(self):
        self.register(1)
        self.api.report_holdings(self.ctxt, 'h1', [database.holding(1)])
        state = map_state.MapState(
            self.api.update_site_map(self.ctxt, database.SITE))
        self.register(2)
        self.api.change_holdings(self.ctxt, 'h1', [database.holding(2)],
                                 [database.holding(1)], 1, 50)
        change = self.api.update_site_map(self.ctxt, database.SITE,
                                          state.generation)
        self.assertEqual(['t2'], [each.id for each in change.images])
        self.assertTrue(state.apply(change))
        self.assertEqual(
            {views.Key('images', database.content(2))},
            state.view().holdings('h1'))
        self.assertRaises(exceptions.Conflict, self.api.change_holdings,
                          self.ctxt, 'h1', [], [], 7, 50)

    def test_work_on_patches(self):
        self.register(1, 2)
        self.api.report_holdings(
            self.ctxt, 'h1', [database.holding(1), database.holding(2)])
        pair = objects.PatchPair(base=database.content(1),
                                 target=database.content(2))

        def work():
            return self.api.patch_work(self.ctxt, 'h1', 'patch 1', 1)

        contents = work().sketch
        self.assertEqual([database.content(1), database.content(2)], contents)
        self.api.report_sketches(self.ctxt, 'h1', [
            objects.ImageSketch(content_id=content, data_size=100 * MB,
                                signature='0a' * 432)
            for content in contents])
        self.assertEqual(2, len(work().compare))
        self.api.report_pairs(self.ctxt, 'h1', 'patch 1', [
            objects.PairReport(base=pair.base, target=pair.target,
                               verdict='estimated', size=MB)])
        for _ in range(2):
            self.assertEqual([pair], work().create)
        self.api.register_patch(self.ctxt, database.patch(1, 2))
        self.assertEqual([], work().create)

    def test_unregistered_host_is_told_to_register(self):
        error = self.assertRaises(
            exceptions.NotFound, self.api.report_holdings, self.ctxt, 'h1',
            [])
        self.assertIn('start its diffcache-agent', str(error))


class TestPlans(ConductorTest):

    def test_plan_is_sent_to_its_hosts(self):
        agent = self.listen('h1')
        self.register(1, 2)
        self.api.report_requests(
            self.ctxt, [database.request(n, image_id='t2',
                                         started_at=versioned.now())
                        for n in range(3)])
        plan = self.api.plan_now(self.ctxt, database.SITE)
        self.assertEqual(
            (plan.generation, [('images', database.content(2), 0)]),
            agent.plans.get(timeout=ANSWER_SECONDS))
        self.assertEqual(plan, self.api.get_plan(self.ctxt, database.SITE))

    def test_heartbeat_of_a_host_with_an_old_plan(self):
        self.register(1)
        plan = self.api.plan_now(self.ctxt, database.SITE)
        agent = self.listen('h1')
        # What was sent before anybody listened is still in the queue.
        agent.plans.get(timeout=ANSWER_SECONDS)
        host = database.host('h1', capacity=150 * MB,
                             plan_generation=plan.generation)
        self.api.register_host(self.ctxt, host)
        host.plan_generation -= 1
        self.api.register_host(self.ctxt, host)
        self.assertEqual(plan.generation,
                         agent.plans.get(timeout=ANSWER_SECONDS)[0])
        self.assertTrue(agent.plans.empty())

    def test_host_the_plan_does_not_know_keeps_what_it_has(self):
        self.register(1)
        self.api.plan_now(self.ctxt, database.SITE)
        agent = self.listen('h2')
        self.api.register_host(self.ctxt, database.host('h2'))
        self.api.plan_now(self.ctxt, database.SITE)
        generation, _items = agent.plans.get(timeout=ANSWER_SECONDS)
        plan = self.api.get_plan(self.ctxt, database.SITE)
        self.assertEqual(plan.generation, generation)


class TestNews(ConductorTest):

    def test_agents_are_told_of_changes(self):
        agent = self.listen('h1')
        self.register(1)
        found = self.api.update_site_map(self.ctxt, database.SITE)
        told = agent.maps.get(timeout=ANSWER_SECONDS)
        while told != found.generation:
            told = agent.maps.get(timeout=ANSWER_SECONDS)

    def test_silent_host_is_declared_dead(self):
        agent = self.listen('hub')
        self.conf.set_override('host_timeout', 2, 'conductor')
        hub = database.host('hub', site='centre', role=objects.REPOSITORY)
        self.api.register_host(self.ctxt, database.host('h1'))
        self.api.register_host(self.ctxt, hub)
        # The other may be late with its word, and is dead till then.
        seen = []
        while [('h1', False), ('hub', True)] not in seen:
            with contextlib.suppress(queue.Empty):
                agent.maps.get(timeout=0.5)
            self.api.register_host(self.ctxt, hub)
            found = self.api.update_site_map(self.ctxt, database.SITE)
            seen.append([(h.name, h.alive) for h in found.hosts])


class TestPlanningByItself(ConductorTest):

    INTERVAL = 3600

    def test_hosts_get_their_plan_unasked(self):
        agent = self.listen('h1')
        self.register(1)
        generation, items = agent.plans.get(timeout=ANSWER_SECONDS)
        self.assertEqual([('images', database.content(1), 0)], items)


class TestStart(database.DatabaseTest):

    def test_old_schema_is_refused(self):
        conf = opts.new_config()
        conf.set_override('connection',
                          f'sqlite:///{self.directory}/empty.sqlite',
                          'database')
        error = self.assertRaises(exceptions.PermanentError,
                                  service.ConductorService(conf).start)
        self.assertIn('diffcache-manage db sync', str(error))

    def test_unreachable_database_is_named(self):
        conf = opts.new_config()
        conf.set_override(
            'connection', f'sqlite:///{self.directory}/no/x.sqlite',
            'database')
        conf.set_override('max_retries', 0, 'database')
        error = self.assertRaises(exceptions.PermanentError,
                                  service.ConductorService(conf).start)
        self.assertIn('[database] connection', str(error))
