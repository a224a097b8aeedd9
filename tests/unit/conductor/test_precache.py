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
"""Rounds over precache jobs, without RPC."""

import datetime
from unittest import mock

from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor import compute
from diffcache_openstack.conductor import precache
from diffcache_openstack.conf import opts
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import listing
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.planning import precache as db
from diffcache_openstack.db.sites import fills
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from tests import openstack_apis
from tests.unit.db import database

JOB = '00000000-0000-4000-8000-000000000001'
MONDAY = datetime.datetime(2026, 1, 5, 12)


class Planner:
    """Notes what it was asked to plan."""

    def __init__(self):
        self.planned = []
        self.error = None

    def plan(self, site):
        if self.error is not None:
            raise self.error
        self.planned.append(site)


class Notifier:
    """Sends nothing."""

    def send_plan(self, plan):
        pass


class RoundTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.planner = Planner()
        self.precacher = precache.Precacher(
            self.conf, self.database, self.planner, Notifier(), 'me')
        self.write(host_rows.put_host, database.host('h1'), versioned.now())

    def create(self, **values):
        self.precacher.create_precache_job(None, objects.PrecacheJob(
            **{'id': JOB, 'images': ['t1'], 'hosts': ['h1'], **values}))


class TestRounds(RoundTest):

    def test_site_is_planned_once(self):
        self.create()
        for _round in range(3):
            self.precacher.round()
        self.assertEqual(['edge'], self.planner.planned)

    def test_a_site_without_hosts_has_no_other_planned_again_and_again(self):
        self.write(host_rows.put_host, database.host(
            'hub', site='centre', role=objects.REPOSITORY),
            versioned.now())
        self.create(hosts=['h1', 'hub'])
        planned, self.empty = self.planner.planned, {'centre'}
        plan = self.planner.plan

        def plan_unless_empty(site):
            if site in self.empty:
                raise exceptions.NotFound(f'{site} has no compute host')
            plan(site)

        self.planner.plan = plan_unless_empty
        with mock.patch.object(precache.LOG, 'warning') as warning:
            for _round in range(3):
                self.precacher.round()
        self.assertEqual(['edge'], planned)
        self.assertEqual(1, warning.call_count)
        self.assertIn('centre has no compute host', str(warning.call_args))
        # Once it has hosts, it is planned.
        self.empty = set()
        for _round in range(2):
            self.precacher.round()
        self.assertEqual(['edge', 'centre'], planned)

    def test_site_that_could_not_be_planned_is_tried_again(self):
        self.create()
        self.planner.error = exceptions.Busy('somebody plans it')
        self.precacher.round()
        self.planner.error = None
        self.precacher.round()
        self.assertEqual(['edge'], self.planner.planned)

    def test_another_conductor_has_its_turn(self):
        now = versioned.now()
        self.write(plans.take_lease, precache.LEASE, 'other', now,
                   now + datetime.timedelta(hours=1))
        self.create()
        self.precacher.round()
        self.assertEqual([], self.planner.planned)

    def test_end_of_a_job_is_planned_for(self):
        self.create()
        self.precacher.round()
        self.precacher.cancel_precache_job(None, JOB, None)
        self.precacher.round()
        self.assertEqual(['edge', 'edge'], self.planner.planned)

    def test_new_name_is_no_reason_to_plan(self):
        self.create()
        self.precacher.round()
        self.precacher.update_precache_job(None, JOB, 1, {'name': 'x'})
        self.precacher.round()
        self.assertEqual(['edge'], self.planner.planned)

    def test_old_jobs_are_forgotten(self):
        self.create()
        self.precacher.cancel_precache_job(None, JOB, None)
        self.write(db.prune, versioned.now() + datetime.timedelta(days=1))
        self.assertRaises(exceptions.NotFound, self.read, db.get, JOB)

    def test_creation_twice_is_creation(self):
        for _answer_that_was_lost in range(2):
            self.create()
        self.assertEqual(1, len(self.read(db.living)))


class TestWindows(RoundTest):

    def test_open_and_closed(self):
        job = objects.PrecacheJob(id=JOB, window='mon-fri 22:00-06:00')
        for hour, expected in ((12, False), (23, True)):
            self.assertEqual(expected, precache.is_open(
                job, MONDAY.replace(hour=hour)))

    def test_unreadable_one_is_refused(self):
        self.assertRaises(exceptions.InvalidInput, self.create,
                          window='at night')


class TestProgress(RoundTest):
    """How far targets are, by what agents say."""

    def setUp(self):
        super().setUp()
        self.content = database.content(1)
        self.write(catalogue.put_image, database.image(
            1, data_size=1000), versioned.now())
        self.create()
        self.precacher.round()
        plan = objects.Plan(
            site=database.SITE, generation=0, solver='greedy', cost_s=0.0,
            lower_bound_s=0.0, proved_optimal=False, solver_seconds=0.0,
            created_at=versioned.now(), hosts=['h1'],
            items=[objects.PlanItem(host='h1', kind=objects.IMAGES,
                                    id=self.content, bytes=1000,
                                    priority=0)])
        self.write(plans.put_plan, plan, 0)

    def target(self, **values):
        """The target after the host said this of its fill."""
        self.write(fills.put, 'h1', [objects.Fill(
            kind=objects.IMAGES, id=self.content, **values)])
        self.precacher.round()
        [found] = self.read(
            db.list_targets, JOB, {}, listing.Page(10)).entries
        return found

    def borrow(self):
        self.write(held_rows.put_borrowed, 'h1', [objects.Holding(
            kind=objects.IMAGES, id=self.content, bytes=1000)])
        self.precacher.round()
        [found] = self.read(
            db.list_targets, JOB, {}, listing.Page(10)).entries
        return found['state'], found['way']

    def test_what_nova_has_cached_is_ready(self):
        self.assertEqual(('ready', 'local'), self.borrow())

    def test_what_nova_has_cached_is_ready_beside_a_small_cache(self):
        self.write(host_rows.put_host, database.host('h1', capacity=10),
                   versioned.now())
        self.assertEqual(('ready', 'local'), self.borrow())

    def test_what_is_pinned_has_to_be_in_the_cache(self):
        self.precacher.update_precache_job(None, JOB, 1, {'pinned': True})
        self.assertEqual('fetching', self.borrow()[0])

    def test_bytes_that_came(self):
        found = self.target(active=True, bytes_done=50, bytes_total=200)
        self.assertEqual(('fetching', 250, 0), (
            found['state'], found['bytes_done'], found['attempts']))

    def test_a_manifest_is_not_the_image(self):
        self.write(held_rows.put_holdings, 'h1', [objects.Holding(
            kind=objects.MANIFESTS, id=self.content, bytes=1)],
            versioned.now())
        self.assertEqual('fetching', self.target(active=True)['state'])

    def test_a_try_that_failed_is_told(self):
        found = self.target(attempts=1, error='It is gone.',
                            retry_at=database.at(60))
        self.assertEqual(('fetching', 1, 'Try 1 failed: It is gone.'), (
            found['state'], found['attempts'], found['message']))
        self.assertTrue(found['retry_at'].endswith('Z'))

    def test_after_some_tries_it_counts_as_failed(self):
        tries = {'attempts': precache.PATIENCE, 'error': 'No.'}
        self.assertEqual('failed', self.target(**tries)['state'])
        job = self.read(db.get_job, listing.Viewer(None, True), JOB)
        self.assertEqual(1, job['progress']['failed'])
        # The host does not give up.
        self.assertEqual('fetching', self.target(
            active=True, bytes_done=1, bytes_total=2, **tries)['state'])

    def test_ready_is_all_of_it(self):
        self.target(attempts=2, error='No.')
        self.write(held_rows.put_holdings, 'h1', [database.holding(1)],
                   versioned.now())
        self.precacher.round()
        [found] = self.read(
            db.list_targets, JOB, {}, listing.Page(10)).entries
        self.assertEqual(('ready', 1000, 0, None), (
            found['state'], found['bytes_done'], found['attempts'],
            found['message']))


class TestEndMeanwhile(RoundTest):
    """A job that is cancelled while another conductor's round works on it."""

    def setUp(self):
        super().setUp()
        self.create()

    def cancel(self, *_arguments):
        self.precacher.cancel_precache_job(None, JOB, None)

    def states(self):
        return {(row['host'], row['state']) for row in self.read(
            db.list_targets, JOB, {}, listing.Page(10)).entries}

    def test_its_targets_stay_cancelled(self):
        with mock.patch.object(self.planner, 'plan', self.cancel):
            self.precacher.round()
        self.assertEqual({('h1', 'cancelled')}, self.states())

    def test_it_gets_no_target(self):
        self.precacher.round()
        with mock.patch.object(db, 'wanted_images', lambda *_arguments: (
                self.cancel(), [db.WantedImage('t2', None, None)])[1]):
            self.precacher.round()
        self.assertEqual({('h1', 'cancelled')}, self.states())
        [row] = self.read(db.targets, JOB)
        self.assertEqual('t1', row.image_id)


class TestCompute(RoundTest):

    def setUp(self):
        super().setUp()
        self.cloud = self.useFixture(openstack_apis.Cloud())
        self.compute = compute.Compute(opts.new_config(files=[str(
            self.write_file('conf', self.cloud.options('nova').encode()))]))
        for path, document in (
                ('os-aggregates', {'aggregates': [
                    {'id': 7, 'name': 'racks', 'hosts': ['h1', 'h2']}]}),
                ('os-services', {'services': [
                    {'id': 'a', 'host': 'h1', 'zone': 'edge-1'},
                    {'id': 'b', 'host': 'h3', 'zone': 'edge-2'}]})):
            self.cloud.answer('GET', f'/compute/v2.1/{path}',
                              openstack_apis.Answer(document=document))

    def test_aggregates_by_name_or_id_and_zones(self):
        self.assertEqual({'h1', 'h2'}, self.compute.hosts(['racks'], []))
        self.assertEqual({'h1', 'h2', 'h3'},
                         self.compute.hosts(['7'], ['edge-2']))

    def test_answers_are_kept_a_while(self):
        for _again in range(3):
            self.compute.hosts(['racks'], [])
        self.assertEqual(1, len(self.cloud.requests))

    def test_unknown_ones_are_named(self):
        for arguments in ((['none'], []), ([], ['none'])):
            error = self.assertRaises(exceptions.NotFound,
                                      self.compute.hosts, *arguments)
            self.assertIn('none', str(error))

    def test_nova_that_is_gone(self):
        for answer in (openstack_apis.DROP, openstack_apis.Answer(403, {})):
            self.cloud.answer('GET', '/compute/v2.1/os-aggregates', answer)
            self.assertRaises(exceptions.ServiceUnavailable,
                              self.compute.hosts, ['racks'], [])

    def test_without_options_nova_is_not_asked(self):
        error = self.assertRaises(
            exceptions.ServiceUnavailable,
            compute.Compute(self.conf).hosts, ['racks'], [])
        self.assertIn('[nova]', str(error))

    def test_nothing_to_ask(self):
        self.assertEqual(set(), compute.Compute(self.conf).hosts([], []))
