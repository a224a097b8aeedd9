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
from diffcache_openstack.common import exceptions
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from tests.unit.db import database
from tests.unit.db import test_engine


class TestPlans(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.add_host()

    def add_host(self):
        self.write(host_rows.put_host, database.host('h1'), database.at(0))

    def put(self, number, expected, **values):
        return self.write(plans.put_plan,
                          test_engine.new_plan(number, **values), expected)

    def current(self):
        return self.read(plans.current_plan, database.SITE)

    def test_none_at_first(self):
        self.assertIsNone(self.current())
        self.assertEqual(0, self.read(plans.generation, database.SITE))

    def test_known_as_made(self):
        items = [objects.PlanItem(
            host='h1', kind=objects.IMAGES, id=database.content(n),
            bytes=5, priority=n, saved_seconds=1.5) for n in range(3)]
        plan = self.put(1, 0, items=items, hosts=['h1', 'h2'])
        self.assertEqual(plan, self.current())
        self.assertEqual(['h1', 'h2'], self.current().hosts)

    def test_generations_grow(self):
        first = self.put(1, 0)
        second = self.put(0, first.generation)
        self.assertEqual(first.generation + 1, second.generation)
        self.assertEqual(second, self.current())

    def test_generation_of_a_new_database_is_no_old_one(self):
        self.assertGreaterEqual(self.put(5, 0).generation,
                                database.at(5).timestamp())

    def test_late_plan_is_refused(self):
        first = self.put(1, 0)
        error = self.assertRaises(exceptions.Busy, self.put, 2, 0)
        self.assertIn(database.SITE, str(error))
        self.assertEqual(first, self.current())

    def test_unknown_site(self):
        self.assertRaises(exceptions.NotFound, self.read,
                          plans.current_plan, 'nowhere')

    def test_prune_keeps_the_latest(self):
        generation = 0
        for number in range(5):
            generation = self.put(number, generation, hosts=['h1']).generation
        self.write(plans.prune, database.SITE, 2)
        self.assertEqual(generation, self.current().generation)
        kept = self.read(lambda session: session.query(
            plans.models.Plan).count())
        hosts = self.read(lambda session: session.query(
            plans.models.PlanHost).count())
        self.assertEqual((2, 2), (kept, hosts))

    def test_due_sites(self):
        self.assertEqual([database.SITE],
                         self.read(plans.due_sites, database.at(0)))
        self.put(10, 0)
        self.assertEqual([], self.read(plans.due_sites, database.at(10)))
        self.assertEqual([database.SITE],
                         self.read(plans.due_sites, database.at(11)))
        self.write(plans.set_planned, database.SITE, database.at(20))
        self.assertEqual([], self.read(plans.due_sites, database.at(11)))
        self.write(plans.set_planned, database.SITE, None)
        self.assertEqual([database.SITE],
                         self.read(plans.due_sites, database.at(0)))

    def test_sites_whose_hosts_are_dead_are_not_due(self):
        database.silence(self.database, 'h1')
        self.assertEqual([], self.read(plans.due_sites, database.at(0)))


class TestLeases(database.DatabaseTest):

    def take(self, owner, now, until):
        return self.write(plans.take_lease, 'x', owner, database.at(now),
                          database.at(until))

    def test_second_is_told_who_has_it(self):
        self.assertIsNone(self.take('a', 0, 10))
        self.assertEqual('a', self.take('b', 5, 15))

    def test_owner_renews(self):
        self.take('a', 0, 10)
        self.assertIsNone(self.take('a', 5, 20))
        self.assertEqual('a', self.take('b', 15, 25))

    def test_expired_lease_is_free(self):
        self.take('a', 0, 10)
        self.assertIsNone(self.take('b', 10, 20))
        self.assertEqual('b', self.take('a', 11, 21))

    def test_given_back(self):
        self.take('a', 0, 10)
        self.write(plans.drop_lease, 'x', 'a')
        self.assertIsNone(self.take('b', 1, 11))

    def test_only_the_owner_gives_back(self):
        self.take('a', 0, 10)
        self.write(plans.drop_lease, 'x', 'b')
        self.assertEqual('a', self.take('b', 1, 11))
