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
import datetime
import re

import sqlalchemy as sa

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import generations
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from tests.unit.db import database

EDGE, OTHER, CENTRE = 'edge', 'other', 'centre'


class SitesTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.add_hosts()

    def add_hosts(self):
        for host in (database.host('h1'), database.host('h2'),
                     database.host('o1', site=OTHER),
                     database.host('hub', site=CENTRE,
                                   role=objects.REPOSITORY)):
            self.put(host)

    def put(self, host, seconds=0):
        return self.write(host_rows.put_host, host, database.at(seconds))

    def hold(self, host, *holdings, seconds=0):
        return self.write(held_rows.put_holdings, host, list(holdings),
                          database.at(seconds))

    def generations(self):
        return {site: self.read(generations.map_generation, site)
                for site in (EDGE, OTHER, CENTRE)}

    def assert_changes(self, expected, function, *args, **kwargs):
        """A call returns the sites whose generation it raised."""
        before = self.generations()
        changed = function(*args, **kwargs)
        after = self.generations()
        self.assertEqual(set(expected), changed)
        self.assertEqual(set(expected),
                         {s for s in before if after[s] > before[s]})


class TestHosts(SitesTest):

    def test_known_as_registered(self):
        known, _ = self.put(database.host('h3', url='http://h3:1',
                                          capacity=7), 5)
        self.assertEqual(known, self.read(database.holding_host, 'h3'))
        self.assertEqual(('http://h3:1', 7, True, database.at(5)),
                         (known.url, known.capacity, known.alive,
                          known.seen_at))

    def test_heartbeat_changes_no_map(self):
        self.assert_changes([], lambda: self.put(database.host('h1'), 9)[1])
        self.assertEqual(database.at(9),
                         self.read(database.holding_host, 'h1').seen_at)

    def test_new_address_changes_the_map_of_the_site(self):
        self.assert_changes(
            [EDGE],
            lambda: self.put(database.host('h1', url='http://new:1'))[1])

    def test_move_changes_both_sites(self):
        self.assert_changes(
            [EDGE, OTHER],
            lambda: self.put(database.host('h1', site=OTHER))[1])

    def test_repository_is_on_every_map(self):
        self.assert_changes(
            [EDGE, OTHER, CENTRE],
            lambda: self.put(database.host(
                'hub', site=CENTRE, role=objects.REPOSITORY,
                url='http://hub:2'))[1])
        self.assertEqual(
            ['h1', 'h2', 'hub'],
            [host.name for host in self.read(held_rows.map_hosts, EDGE)])

    def test_names_differ_by_case(self):
        self.put(database.host('H1'))
        self.assertIn('H1', [h.name for h in self.read(host_rows.list_hosts)])
        self.assertEqual('h1', self.read(database.holding_host, 'h1').name)

    def test_removed_host_is_gone_with_its_holdings(self):
        self.hold('h1', database.holding(1))
        self.assert_changes([EDGE], self.write, host_rows.remove_host, 'h1')
        self.assertRaises(exceptions.NotFound, self.read,
                          database.holding_host, 'h1')
        self.put(database.host('h1'))
        self.assertEqual([], self.read(database.holding_host, 'h1').holdings)

    def test_only_a_dead_host_is_removed_as_one(self):
        error = self.assertRaises(exceptions.Conflict, self.write,
                                  host_rows.remove_dead_host, 'h1')
        seen = self.read(database.holding_host, 'h1').seen_at
        for word in ('h1', seen.isoformat(timespec='seconds')):
            self.assertIn(word, str(error))
        self.write(host_rows.expire_hosts,
                   seen + datetime.timedelta(seconds=1))
        self.assert_changes([EDGE], self.write, host_rows.remove_dead_host,
                            'h1')
        self.assertRaises(exceptions.NotFound, self.read,
                          database.holding_host, 'h1')

    def test_unknown_names_are_told(self):
        for function, name in ((database.holding_host, 'h9'),
                               (host_rows.remove_dead_host, 'h9'),
                               (host_rows.remove_host, 'h9'),
                               (generations.map_generation, 'nowhere')):
            error = self.assertRaises(exceptions.NotFound, self.write,
                                      function, name)
            self.assertIn(name, str(error))

    def test_generation_of_a_new_database_is_no_old_one(self):
        self.assertGreater(self.read(generations.map_generation, EDGE),
                           database.START.timestamp() - 1)


class TestBorrowed(SitesTest):

    def borrow(self, host, *holdings):
        return self.write(held_rows.put_borrowed, host, list(holdings))

    def on_map(self):
        return {host.name: [held.id for held in host.holdings]
                for host in self.read(held_rows.map_hosts, EDGE)}

    def test_they_are_on_the_map_like_what_is_held(self):
        held, borrowed = database.holding(1), database.holding(2)
        self.hold('h1', held)
        self.assert_changes([EDGE], self.borrow, 'h1', borrowed)
        self.assert_changes([], self.borrow, 'h1', borrowed)
        self.assertEqual({'h1': [held.id, borrowed.id], 'h2': [], 'hub': []},
                         self.on_map())
        self.assertEqual([held],
                         self.read(database.holding_host, 'h1').holdings)
        self.assertEqual([1, 0], [
            len(host.holdings) for host in self.read(held_rows.holding_hosts)
            if host.site == EDGE and host.role == objects.COMPUTE])

    def test_an_image_that_is_held_too_is_once_on_the_map(self):
        self.borrow('h1', database.holding(1))
        self.hold('h1', database.holding(1))
        self.assertEqual([database.content(1)], self.on_map()['h1'])
        self.hold('h1')
        self.assertEqual([database.content(1)], self.on_map()['h1'])
        self.assert_changes([EDGE], self.borrow, 'h1')
        self.assertEqual([], self.on_map()['h1'])

    def test_they_do_not_disturb_differences_of_holdings(self):
        self.borrow('h1', database.holding(1))
        held = database.holding(2)
        self.assert_changes(
            [EDGE], self.write, held_rows.change_holdings, 'h1',
            held_rows.HoldingsDelta([held], [], 1, held.bytes), database.at(0))

    def test_they_go_with_their_host(self):
        self.borrow('h1', database.holding(1))
        self.write(host_rows.remove_host, 'h1')
        self.put(database.host('h1'))
        self.assertEqual([], self.on_map()['h1'])
        self.assertRaises(exceptions.NotFound, self.borrow, 'h9')


class TestHoldings(SitesTest):

    def test_snapshot_replaces(self):
        self.hold('h1', database.holding(1), database.holding(2))
        self.hold('h1', database.holding(2, bytes=77), database.holding(3))
        self.assertEqual(
            [database.holding(2, bytes=77), database.holding(3)],
            self.read(database.holding_host, 'h1').holdings)

    def test_change_raises_the_generation(self):
        self.assert_changes([EDGE], self.hold, 'h1', database.holding(1))

    def test_same_again_changes_nothing(self):
        self.hold('h1', database.holding(1))
        self.assert_changes([], self.hold, 'h1', database.holding(1))

    def test_repositorys_are_on_every_map(self):
        self.assert_changes([EDGE, OTHER, CENTRE], self.hold, 'hub',
                            database.holding(1))
        held = {
            h.name: h.holdings for h in self.read(held_rows.map_hosts, EDGE)}
        self.assertEqual([database.holding(1)], held['hub'])

    def test_host_has_to_be_registered(self):
        self.assertRaises(exceptions.NotFound, self.hold, 'h9')

    def test_many_at_once(self):
        many = [database.holding(n) for n in range(1300)]
        self.hold('h1', *many)
        self.hold('h1', *many[1200:])
        self.assertEqual(many[1200:],
                         self.read(database.holding_host, 'h1').holdings)

    def change(self, host, added, removed, count, total):
        return self.write(
            held_rows.change_holdings, host, held_rows.HoldingsDelta(
                added, removed, count, total), database.at(0))

    def test_changes_are_compared_with_the_sums_of_all(self):
        one, two, three = (database.holding(n) for n in (1, 2, 3))
        self.hold('h1', one, two)
        # One is larger now, one is new, one that is gone was never known.
        self.change('h1', [database.holding(1, bytes=70), three],
                    [database.holding(9)], 3, 170)
        self.change('h1', [], [two, database.holding(1)], 1, 50)
        self.assertEqual([three],
                         self.read(database.holding_host, 'h1').holdings)
        self.assertRaises(exceptions.Conflict, self.change, 'h1', [one], [],
                          3, 100)
        self.assertEqual([three],
                         self.read(database.holding_host, 'h1').holdings)

    def test_one_object_in_several_batches_is_counted_once(self):
        many = [database.holding(n) for n in range(700)]
        self.hold('h1', *many)
        self.change('h1', many, many, 700, 700 * 50)

    def test_no_statement_of_a_change_reads_all_holdings(self):
        self.hold('h1', database.holding(1), database.holding(2))
        statements = []
        sa.event.listen(
            self.database.engine, 'before_cursor_execute',
            lambda _connection, _cursor, text, *_: statements.append(text))
        self.change('h1', [database.holding(3)], [database.holding(1)], 2,
                    100)
        touching = [text for text in statements
                    if re.search(r'(FROM|UPDATE) holdings', text)]
        self.assertTrue(touching)
        self.assertEqual([], [text for text in touching
                              if 'object_id IN' not in text])

    def test_sums_of_another_release_are_mended_by_a_whole_report(self):
        held = database.holding(1)
        self.hold('h1', held)
        # As a conductor that does not know the sums leaves them.
        self.write(lambda session: session.execute(
            sa.update(models.Host).values(held_objects=0, held_bytes=0)))
        self.assertRaises(exceptions.Conflict, self.change, 'h1', [], [], 1,
                          50)
        self.assert_changes([], self.hold, 'h1', held)
        self.assertEqual(set(), self.change('h1', [], [], 1, 50))


class TestLiveness(SitesTest):

    def test_silent_hosts_die_once(self):
        self.put(database.host('h1'), 50)
        self.put(database.host('hub', site=CENTRE,
                               role=objects.REPOSITORY), 50)
        self.assert_changes(
            [EDGE, OTHER],
            lambda: self.write(host_rows.expire_hosts, database.at(10))[1])
        alive = {h.name: h.alive for h in self.read(host_rows.list_hosts)}
        self.assertEqual({'h1': True, 'h2': False, 'hub': True, 'o1': False},
                         alive)
        self.assert_changes(
            [], lambda: self.write(host_rows.expire_hosts, database.at(10))[1])

    def test_any_sign_of_life_revives(self):
        self.write(host_rows.expire_hosts, database.at(10))
        self.assert_changes([EDGE], lambda: self.put(database.host('h1'))[1])
        self.assert_changes([EDGE], self.hold, 'h2')
        self.assertEqual(
            [True, True],
            [h.alive for h in self.read(host_rows.list_hosts, EDGE)])
