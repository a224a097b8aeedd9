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
"""The conductor as a process of its own, over a real broker."""

import concurrent.futures
import os
import queue
import signal

from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.rpc import conductor_api
from tests import base
from tests.functional.fixtures import deployment
from tests.functional.services import site
from tests.unit.agent import endpoint
from tests import waiting


class RecordingAgent:
    """Stands where an agent would, and keeps what it is told."""

    def __init__(self):
        self.plans = queue.Queue()
        self.maps = queue.Queue()

    def hold(self, generation, items, limits):
        self.plans.put((generation, items))

    def site_map_changed(self, generation):
        self.maps.put(generation)


class ConductorTest(base.TestCase):

    OPTIONS = {}

    def setUp(self):
        super().setUp()
        self.site = self.useFixture(
            deployment.Deployment(options=self.OPTIONS))
        self.api, self.ctxt = self.site.conductor, self.site.context

    def listen(self, host: str) -> RecordingAgent:
        agent = RecordingAgent()
        server = endpoint.server(self.site.bus, host, agent)
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        return agent

    def settled_map(self) -> objects.SiteMap:
        """The map that is not sent to somebody who has it.

        A conductor that has just started counts a map once more when it
        first looks at the options that maps show.
        """
        def settled():
            found = self.api.update_site_map(self.ctxt, site.SITE)
            newer = self.api.update_site_map(self.ctxt, site.SITE,
                                             found.generation)
            return None if newer else found

        return waiting.until(settled, 'the map to stay as it is')


class TestReport(ConductorTest):

    def test_on_sigusr2_it_says_what_it_does(self):
        conductor = self.site.start_conductor()
        os.kill(conductor.pid, signal.SIGUSR2)
        conductor.wait_for('Options of the Service')
        conductor.wait_for('check_interval = 1')
        report = conductor.printed()
        self.assertIn('DiffCache for OpenStack', report)
        # Of the database, which has a password.
        self.assertIn('connection = ***', report)
        self.assertNotIn(self.site.connection, report)
        # It works on.
        self.api.register_host(self.ctxt, site.host('c1'))


class TestConductor(ConductorTest):

    def test_plan_from_registrations_and_history(self):
        agent = self.listen('c1')
        self.site.start_conductor()
        site.register_all(self.api, self.ctxt)
        self.api.report_requests(
            self.ctxt, [site.request('c1', 3) for _ in range(20)])
        plan = self.api.plan_now(self.ctxt, site.SITE)
        self.assertEqual(['c1', 'c2'], plan.hosts)
        self.assertLessEqual(plan.lower_bound_s, plan.cost_s * (1 + 1e-9))
        # c2 is smaller than any image.
        kinds = {item.kind for item in plan.items if item.host == 'c2'}
        self.assertLessEqual(kinds, {objects.PATCHES})
        # What c1 asked for all the time is what it gets first.
        first = [item for item in plan.items if item.host == 'c1'][0]
        self.assertEqual((objects.IMAGES, site.content(3)),
                         (first.kind, first.id))
        generation, items = agent.plans.get(timeout=waiting.SECONDS)
        self.assertEqual(plan.generation, generation)
        self.assertEqual(
            [(item.kind, item.id, item.priority) for item in plan.items
             if item.host == 'c1'], items)
        self.assertEqual(plan, self.api.get_plan(self.ctxt, site.SITE))

    def test_map_shows_changes_and_agents_are_told(self):
        agent = self.listen('c1')
        self.site.start_conductor()
        site.register_all(self.api, self.ctxt, images=2)
        before = self.settled_map()
        self.assertEqual(['c1', 'c2', 'hub'],
                         [host.name for host in before.hosts])
        held = [objects.Holding(kind=objects.IMAGES, id=site.content(1),
                                bytes=2 * site.GB)]
        self.api.report_holdings(self.ctxt, 'c2', held)
        after = self.api.update_site_map(self.ctxt, site.SITE)
        self.assertGreater(after.generation, before.generation)
        holdings = {host.name: host.holdings for host in after.hosts}
        self.assertEqual(held, holdings['c2'])
        told = agent.maps.get(timeout=waiting.SECONDS)
        while told < after.generation:
            told = agent.maps.get(timeout=waiting.SECONDS)

    def test_error_arrives_as_it_was_raised(self):
        self.site.start_conductor()
        error = self.assertRaises(
            exceptions.NotFound, self.api.get_image, self.ctxt, 'nothing')
        self.assertEqual(
            'Image nothing is not registered; see "diffcache-manage'
            ' image list".', str(error))
        self.api.register_image(self.ctxt, site.image(1))
        changed = site.image(1)
        changed.content_id = site.content(7)
        self.assertRaises(exceptions.Conflict, self.api.register_image,
                          self.ctxt, changed)

    def test_host_that_missed_its_plan_gets_it_with_its_heartbeat(self):
        self.site.start_conductor()
        site.register_all(self.api, self.ctxt)
        plan = self.api.plan_now(self.ctxt, site.SITE)
        agent = self.listen('c2')
        # What was sent before the agent listened may still be in its queue.
        self.api.register_host(self.ctxt, site.host('c2', site.GB))
        generation, _items = agent.plans.get(timeout=waiting.SECONDS)
        self.assertEqual(plan.generation, generation)

    def test_stops_at_sigterm(self):
        conductor = self.site.start_conductor()
        self.assertEqual(0, conductor.stop(signal.SIGTERM))
        self.assertIn('SIGTERM: stopping', conductor.printed())
        self.assertNotIn('Traceback', conductor.printed())

    def test_workers_stop_with_their_master(self):
        conductor = self.site.start_conductor(conductor={'workers': 2})
        self.api.register_host(self.ctxt, site.host('c1'))
        self.assertEqual(0, conductor.stop(signal.SIGTERM))


class TestSeveralConductors(ConductorTest):

    OPTIONS = {'conductor': {'rpc_timeout': 20}}

    def test_survivor_answers_after_kill(self):
        first = self.site.start_conductor('first')
        self.site.start_conductor('second')
        site.register_all(self.api, self.ctxt)
        first.stop(signal.SIGKILL)
        # A call that was already given to the dead one is lost; every call
        # may be repeated.
        for number in range(10):
            try:
                self.api.register_image(self.ctxt, site.image(number))
            except exceptions.ServiceUnavailable:
                self.api.register_image(self.ctxt, site.image(number))
        known = self.api.update_site_map(self.ctxt, site.SITE)
        self.assertEqual(10, len(known.images))

    def test_concurrent_plans_have_generations_of_their_own(self):
        self.site.start_conductor('first')
        self.site.start_conductor('second')
        site.register_all(self.api, self.ctxt)
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            plans = [future.result() for future in [
                pool.submit(self.api.plan_now, self.ctxt, site.SITE)
                for _ in range(6)]]
        contents = {}
        for plan in plans:
            items = contents.setdefault(plan.generation, plan.items)
            self.assertEqual(items, plan.items)
        current = self.api.get_plan(self.ctxt, site.SITE)
        self.assertEqual(max(contents), current.generation)

    def test_state_outlives_all_conductors(self):
        first = self.site.start_conductor('first')
        site.register_all(self.api, self.ctxt)
        plan = self.api.plan_now(self.ctxt, site.SITE)
        before = self.api.update_site_map(self.ctxt, site.SITE)
        self.assertEqual(0, first.stop())
        self.site.conf.set_override('rpc_timeout', 2, 'conductor')
        hasty = conductor_api.ConductorAPI(self.site.bus, self.site.conf)
        self.assertRaises(
            exceptions.ServiceUnavailable, hasty.get_plan, self.ctxt,
            site.SITE)
        self.site.start_conductor('second')
        self.assertEqual(plan, self.api.get_plan(self.ctxt, site.SITE))
        after = self.api.update_site_map(self.ctxt, site.SITE)
        self.assertEqual(before.images, after.images)
        self.assertEqual(before.patches, after.patches)

    def test_silent_host_is_dead_until_it_speaks(self):
        self.site.start_conductor('first', conductor={'host_timeout': 3})
        self.site.start_conductor('second', conductor={'host_timeout': 3})
        self.api.register_host(self.ctxt, site.host('c2'))

        def is_dead():
            self.api.register_host(self.ctxt, site.host('c1'))
            known = self.api.update_site_map(self.ctxt, site.SITE)
            return not {each.name: each.alive for each in known.hosts}['c2']

        def speaks():
            # More than once, should it fall silent before it is looked at.
            self.api.report_holdings(self.ctxt, 'c2', [])
            return not is_dead()

        waiting.until(is_dead, 'the silent host to be dead')
        waiting.until(speaks, 'the host that speaks to be alive')


class TestPlanningByItself(ConductorTest):

    OPTIONS = {'planner': {'interval': 3600}}

    def test_new_host_is_planned_for(self):
        agent = self.listen('c1')
        self.site.start_conductor()
        site.register_all(self.api, self.ctxt)
        generation, items = agent.plans.get(timeout=waiting.SECONDS)
        plan = self.api.get_plan(self.ctxt, site.SITE)
        self.assertGreaterEqual(plan.generation, generation)
        self.api.register_host(self.ctxt, site.host('c3'))
        while 'c3' not in plan.hosts:
            agent.plans.get(timeout=waiting.SECONDS)
            plan = self.api.get_plan(self.ctxt, site.SITE)


class TestStart(ConductorTest):

    def test_database_without_schema_is_refused(self):
        empty = deployment.mariadb.MariaDB.shared().connection()
        conductor = self.site.run_script('diffcache-conductor', 'conductor',
                                         database={'connection': empty})
        self.assertEqual(1, conductor.wait())
        self.assertIn('run "diffcache-manage db sync"', conductor.printed())
        self.assertNotIn('Traceback', conductor.printed())

    def test_unknown_option_value_is_named(self):
        conductor = self.site.run_script('diffcache-conductor', 'conductor',
                                         conductor={'workers': 'many'})
        self.assertEqual(1, conductor.wait())
        self.assertIn('workers', conductor.printed())
        self.assertNotIn('Traceback', conductor.printed())
