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
"""Boot sets beside the plans of a site."""

from unittest import mock

from diffcache_openstack.conductor import proposals
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.lazy import profiles as profile_table
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.planning import precache
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import boot_set
from diffcache_openstack.objects import versioned
from diffcache_openstack.planning import model
from diffcache_openstack.prefetch import profiles
from tests.unit.db import database
from tests.unit.planning import test_planners

MB = test_planners.MB
CHUNKS = 20
SET = CHUNKS * profiles.CHUNK


class TestBootSetPlans(test_planners.PlannerTest):
    """A host with a cache of 130 MB, and images of 100 MB and 1 GB."""

    def setUp(self):
        super().setUp()
        for number, size in ((1, 100 * MB), (2, 1000 * MB)):
            self.write(catalogue.put_image, database.image(
                number, size=size, data_size=size), versioned.now(),
                lambda *_: False)
        self.conf.set_override('boot_set_share', 0.1, 'lazy')

    def learn(self, image, chunks=CHUNKS):
        self.write(profile_table.report,
                   profile_table.Subject(image, '', ''), 'h1', (1, 1),
                   [[chunk, 2, 10] for chunk in range(chunks)],
                   versioned.now())

    def exchange(self, *reports, host='h1'):
        return self.write(boot_sets.exchange, host, [
            boot_sets.HeldSet(*each) for each in reports], None,
            versioned.now())['sets']

    def sets(self):
        return {key: row for key, row
                in self.read(boot_sets.by_object).items() if row.wanted}

    def test_a_host_gets_the_set_of_an_image_that_it_has_no_room_for(self):
        self.learn('t2')
        self.exchange()
        self.add_requests('t2', 1, 5)
        plan = self.plan()
        self.assertNotIn(database.content(2), self.held(plan))
        [(key, row)] = self.sets().items()
        self.assertEqual(('h1', database.content(2)), key)
        self.assertEqual((SET, 't2', False, False), (
            row.bytes, row.image_id, row.pinned, row.from_peer))
        # At 20 Mbit/s.
        self.assertAlmostEqual(SET * 8 / 20e6, row.wait_seconds, 3)
        self.assertAlmostEqual(row.requests * row.wait_seconds,
                               row.saved_seconds, 3)
        [sent] = self.exchange()
        self.assertEqual(SET, sent['bytes'])

    def test_a_set_has_what_enough_instances_read(self):
        self.learn('t2')
        self.exchange()
        self.add_requests('t2', 1, 5)
        for threshold, sets in ((3.0, 0), (2.0, 1)):
            self.conf.set_override('threshold', threshold, 'lazy')
            self.plan()
            self.assertEqual(sets, len(self.sets()))

    def test_hosts_have_few_sets(self):
        self.learn('t2')
        self.exchange()
        self.add_requests('t2', 1, 5)
        self.conf.set_override('most_boot_sets', 0, 'lazy')
        self.plan()
        self.assertEqual({}, self.sets())

    def test_a_plan_that_is_applied_has_sets(self):
        proposed = proposals.Proposals(self.conf, self.database, self.planner,
                                       mock.Mock(), 'me')
        self.addCleanup(proposed.stop)
        self.learn('t2')
        self.add_requests('t2', 1, 5)
        plan_id = proposed.propose_plan(None, database.SITE, None, None)
        proposed.stop()
        self.exchange()
        self.assertEqual({}, self.sets())
        proposed.apply_plan(None, plan_id, None)
        self.assertEqual([('h1', database.content(2))], list(self.sets()))

    def test_sets_beside_a_plan_that_was_replaced_meanwhile_are_dropped(self):
        """Another conductor stores a plan between reading and writing."""
        self.learn('t2')
        self.exchange()
        self.add_requests('t2', 1, 5)
        self.plan()
        before = self.sets().keys()
        self.conf.set_override('most_boot_sets', 0, 'lazy')
        real = self.database.write

        def write(work, *args):
            if work is boot_sets.put_wanted:
                held = self.read(plans.generation, database.SITE)
                real(plans.advance, database.SITE, held, held + 1,
                     versioned.now())
            return real(work, *args)

        with mock.patch.object(self.database, 'write', write):
            self.planner.place_boot_sets(database.SITE)
        self.assertEqual([('h1', database.content(2))], list(before))
        self.assertEqual(before, self.sets().keys())

    def test_room_is_set_aside_for_what_there_is(self):
        self.learn('t2')
        self.write(catalogue.put_image, database.image(
            3, size=128 * MB, data_size=128 * MB), versioned.now(),
            lambda *_: False)
        self.add_requests('t3', 1, 50)
        # No host serves what arrives: all of the cache is for images.
        self.assertEqual([database.content(3)], self.held(self.plan()))
        self.exchange()
        self.assertEqual([database.content(1)], self.held(self.plan()))
        self.conf.set_override('boot_set_share', 0.0, 'lazy')
        self.assertEqual([database.content(3)], self.held(self.plan()))
        self.assertEqual({}, self.sets())

    def test_what_a_host_holds_needs_no_set(self):
        self.learn('t1')
        self.exchange()
        self.add_requests('t1', 1, 5)
        self.assertEqual([database.content(1)], self.held(self.plan()))
        self.assertEqual({}, self.sets())

    def test_a_set_is_dropped_when_the_plan_changes(self):
        self.learn('t2')
        self.exchange()
        self.add_requests('t2', 1, 5)
        first = self.plan()
        self.exchange((database.content(2), SET, boot_set.READY))
        self.conf.set_override('boot_set_share', 0.03, 'lazy')
        self.assertEqual(first, self.plan())
        self.assertEqual({}, self.sets())
        self.assertEqual([], self.exchange(
            (database.content(2), SET, boot_set.READY)))

    def test_jobs_pin_sets_that_nobody_asked_for(self):
        self.patch(model, 'PRIOR', 0.0)
        self.learn('t2')
        self.exchange()
        self.plan()
        self.assertEqual({}, self.sets())
        job = objects.PrecacheJob(
            id='6e2ba9ff-3dd0-4bd0-9dc2-5b6b5c9d36c5', images=['t2'],
            hosts=['h1'])
        self.write(precache.create, job, versioned.now(), True)
        self.write(precache.set_open, job.id, True)
        self.write(precache.sync_targets, job.id, ['h1'],
                   [precache.WantedImage('t2', database.content(2), SET)],
                   versioned.now())
        self.assertEqual([], self.read(precache.demand, database.SITE))
        self.plan()
        [(_key, row)] = self.sets().items()
        self.assertTrue(row.pinned)
        self.write(precache.cancel, job.id, None, versioned.now())
        self.plan()
        self.assertEqual({}, self.sets())

    def test_a_dead_host_keeps_its_sets_for_its_return(self):
        self.add_host('h2')
        self.learn('t2')
        for host in ('h1', 'h2'):
            self.exchange(host=host)
        self.add_requests('t2', 1, 50)
        self.plan()
        before = set(self.sets())
        self.write(host_rows.expire_hosts, versioned.now())
        self.add_host('h1')
        self.plan()
        self.assertEqual({key for key in before if key[0] == 'h2'},
                         {key for key in self.sets() if key[0] == 'h2'})

    def test_plans_are_what_they_are_without_sets(self):
        self.add_requests('t1', 1, 5)
        plan = self.plan()
        self.assertEqual(plan, self.read(plans.current_plan, database.SITE))
        self.assertEqual({}, self.sets())
