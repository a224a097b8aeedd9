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
"""Whatever changes a map is in the difference between its generations."""

import random
from unittest import mock

import sqlalchemy as sa

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.sites import map_changes
from diffcache_openstack.db.sites import networks
from diffcache_openstack import objects
from diffcache_openstack.sites import map_state
from diffcache_openstack.sites import maps
from tests.unit.db import database

HUB = 'hub'


class ChangesTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.add_hosts()

    def add_hosts(self):
        self.write(host_rows.put_host, database.host('h1'), database.at(0))
        self.write(host_rows.put_host, database.host(
            HUB, site='centre', role=objects.REPOSITORY), database.at(0))
        self.maps = maps.Maps(self.conf, self.database)
        self.follow()

    def follow(self):
        """Begin with the whole map."""
        found = self.maps.update(database.SITE, None)
        self.state = map_state.MapState(found)

    def whole(self):
        return map_state.MapState(maps.Maps(
            self.conf, self.database).update(database.SITE, None))

    def change(self):
        return self.maps.update(database.SITE, self.state.generation)

    def check(self):
        """Apply the difference; the result is the whole map."""
        change = self.change()
        if change is not None:
            self.assertIsInstance(change, objects.MapChange)
            self.assertTrue(self.state.apply(change))
        whole = self.whole()
        self.assertEqual(whole.view(), self.state.view())
        self.assertEqual(whole.digest, self.state.digest)
        self.assertEqual(whole.view(), self.maps.view(database.SITE))
        return change

    def add(self, *numbers):
        for number in numbers:
            self.write(catalogue.put_image, database.image(number),
                       database.at(0))


class TestEachChange(ChangesTest):

    def test_what_is_borrowed_and_maybe_held_too(self):
        held = database.holding(1)
        for function, *arguments in (
                (held_rows.put_borrowed, 'h1', [held]),
                (held_rows.put_holdings, 'h1', [held], database.at(0)),
                (held_rows.put_borrowed, 'h1', []),
                (held_rows.put_borrowed, 'h1', [held]),
                (held_rows.put_holdings, 'h1', [], database.at(0))):
            self.write(function, *arguments)
            self.check()
            self.assertEqual([held.id], [
                key.id for key in self.state.view().holdings('h1')])

    def test_images_and_patches(self):
        self.add(1, 2)
        change = self.check()
        self.assertEqual(['t1', 't2'], [each.id for each in change.images])
        self.write(catalogue.put_patch, database.patch(1, 2), database.at(0))
        change = self.check()
        self.assertEqual(([], [database.patch(1, 2)]),
                         (change.images, change.patches))

    def test_a_compressed_size(self):
        self.write(catalogue.put_image,
                   database.image(1, compressed_size=30), database.at(0))
        self.check()
        self.assertEqual(30, self.state.view().image('t1').wire_size)

    def test_a_withdrawn_image_takes_its_patches_along_and_back(self):
        self.add(1, 2)
        self.write(catalogue.put_patch, database.patch(1, 2), database.at(0))
        for status in (objects.DEACTIVATED, objects.ACTIVE, objects.DELETED):
            self.check()
            self.write(catalogue.put_image, database.image(
                1, status=status), database.at(0))
        change = self.check()
        self.assertEqual([database.patch(1, 2).id], change.gone_patches)
        self.write(catalogue.restore_image, 't1')
        self.check()

    def test_a_removed_image(self):
        self.add(1, 2)
        self.write(catalogue.put_patch, database.patch(1, 2), database.at(0))
        self.check()
        self.write(catalogue.remove_image, 't2')
        change = self.check()
        self.assertEqual((['t2'], [database.patch(1, 2).id]),
                         (change.gone_images, change.gone_patches))

    def test_deleted_images_that_are_forgotten(self):
        self.add(1)
        self.write(catalogue.put_image, database.image(
            1, status=objects.DELETED), database.at(0))
        self.check()
        self.write(catalogue.forget_deleted, database.at(1))
        self.assertEqual(['t1'], self.check().gone_images)

    def test_a_measured_time_is_sent_with_the_next_change(self):
        self.add(1, 2)
        self.write(catalogue.put_patch, database.patch(1, 2), database.at(0))
        self.check()
        self.write(catalogue.time_patch, database.patch(1, 2).id, 7.0)
        self.assertIsNone(self.change())
        self.add(3)
        self.assertEqual(7.0, self.check().patches[0].apply_seconds)

    def test_hosts(self):
        self.write(host_rows.put_host, database.host('h2'), database.at(9))
        self.check()
        self.write(host_rows.expire_hosts, database.at(5))
        self.check()
        self.write(host_rows.put_host, database.host('h1'), database.at(10))
        self.check()
        self.write(host_rows.remove_host, 'h1')
        self.assertEqual(['h1'], self.check().gone_hosts)

    def test_holdings_by_difference(self):
        for host in ('h1', HUB):
            for numbers in ([1, 2, 3], [2, 3, 4]):
                self.write(held_rows.put_holdings, host, [
                    database.holding(number) for number in numbers],
                    database.at(0))
                change = self.check()
        self.assertEqual([], change.hosts)
        found, = change.holdings
        self.assertEqual((HUB, [database.holding(4)], [database.content(1)]),
                         (found.host, found.held,
                          [gone.id for gone in found.gone]))

    def test_very_many_holdings(self):
        with mock.patch.object(held_rows, '_NOTED_HOLDINGS', 3):
            self.write(held_rows.put_holdings, 'h1', [
                database.holding(number) for number in range(1, 9)],
                database.at(0))
        self.assertEqual([True], [each.whole for each in
                                  self.check().holdings])

    def test_a_host_that_moves_to_another_site_and_back(self):
        self.write(held_rows.put_holdings, 'h1', [database.holding(1)],
                   database.at(0))
        for site in ('other', database.SITE):
            self.write(host_rows.put_host, database.host('h1', site=site),
                       database.at(0))
            self.check()

    def test_options(self):
        self.maps.note_options()
        self.check()
        self.conf.set_override('hops', 3, 'planner')
        self.maps.note_options()
        self.assertEqual(3, self.check().hops)

    def test_links_of_single_hosts(self):
        self.conf.set_override('measured_bandwidths', True, 'planner')
        self.write(networks.put, 'h1', objects.HostNetwork(
            repositories=[objects.RepositoryStanding(name='hub', mbps=2.5)]))
        self.assertEqual({database.SITE, 'centre'}, self.maps.note_options())
        self.check()
        links = self.state.view().links
        self.assertEqual((20.0, 2.5, 20.0), (
            links.repo, links.of('h1').repo, links.of('h2').repo))
        self.assertEqual(set(), self.maps.note_options())
        again = map_state.MapState(self.state.to_map())
        self.assertEqual(links, again.view().links)

    def test_any_sequence_of_changes(self):
        chance = random.Random(7)
        actions = [
            lambda n: self.add(n),
            lambda n: self.write(catalogue.put_image, database.image(
                n, status=chance.choice(objects.catalogue.STATUSES)),
                database.at(0)),
            lambda n: self.write(catalogue.put_patch, database.patch(
                n, n % 6 + 1), database.at(0)),
            lambda n: self.write(catalogue.remove_image, f't{n}'),
            lambda n: self.write(held_rows.put_holdings, chance.choice(
                ['h1', HUB]), [database.holding(chance.randrange(1, 9))],
                database.at(n)),
            lambda n: self.write(host_rows.put_host, database.host(
                'h1', site=chance.choice(['other', database.SITE]),
                url=f'http://{n}'), database.at(n)),
            lambda n: self.write(host_rows.expire_hosts, database.at(n)),
        ]
        for _ in range(25):
            for _ in range(chance.randrange(4)):
                try:
                    chance.choice(actions)(chance.randrange(1, 7))
                except (exceptions.NotFound, exceptions.Conflict):
                    continue
            self.check()


class TestBounds(ChangesTest):

    def test_a_burst_is_one_difference_with_the_present_state(self):
        for size in range(20):
            self.write(catalogue.put_image, database.image(
                1, data_size=size), database.at(0))
        change = self.check()
        self.assertEqual([19], [each.data_size for each in change.images])

    def test_a_conductor_that_never_saw_the_generation_answers(self):
        known = self.state.generation
        self.add(1)
        self.add(2)
        other = maps.Maps(self.conf, self.database)
        change = other.update(database.SITE, known)
        self.assertEqual(known, change.previous)
        self.assertTrue(self.state.apply(change))

    def test_hosts_with_the_same_generation_cost_one_difference(self):
        self.add(1)
        first = self.change()
        with mock.patch.object(map_changes, 'since', side_effect=ValueError):
            self.assertIs(first, self.change())

    def test_pruned_changes_are_answered_with_the_whole_map(self):
        self.add(*range(1, 10))
        self.write(map_changes.prune, 3)
        self.assertIsInstance(self.change(), objects.SiteMap)
        self.follow()
        self.write(map_changes.prune, 3)
        self.add(11)
        self.check()
        count = self.read(lambda session: session.scalar(
            sa.select(sa.func.count()).where(
                models.MapChange.site == database.SITE)
            .select_from(models.MapChange)))
        self.assertEqual(4, count)

    def test_too_many_changes_are_answered_with_the_whole_map(self):
        self.add(1, 2, 3)
        with mock.patch.object(map_changes, 'KEPT', 2):
            self.assertIsInstance(self.change(), objects.SiteMap)

    def test_a_generation_of_another_database(self):
        for known in (1, self.state.generation + 5):
            self.assertIsInstance(self.maps.update(database.SITE, known),
                                  objects.SiteMap)

    def test_unknown_site(self):
        self.assertRaises(exceptions.NotFound, self.maps.update, 'nowhere', 1)
        self.assertRaises(exceptions.NotFound, self.maps.view, 'nowhere')


class TestHoldingsDelta(ChangesTest):

    def change_holdings(self, added=(), removed=(), count=0, total=0):
        return self.write(
            held_rows.change_holdings, 'h1', held_rows.HoldingsDelta(
                [database.holding(number) for number in added],
                [database.holding(number) for number in removed], count,
                total), database.at(0))

    def test_a_difference(self):
        self.assertEqual({database.SITE},
                         self.change_holdings([1, 2], [], 2, 100))
        self.assertEqual({database.SITE},
                         self.change_holdings([3], [1], 2, 100))
        self.assertEqual(
            [database.content(2), database.content(3)],
            [held.id for held
             in self.read(database.holding_host, 'h1').holdings])
        self.assertEqual(set(), self.change_holdings([], [], 2, 100))
        self.check()

    def test_an_object_with_another_size(self):
        self.change_holdings([1], [], 1, 50)
        self.write(held_rows.change_holdings, 'h1', held_rows.HoldingsDelta(
            [database.holding(1, bytes=70)], [], 1, 70), database.at(0))
        self.check()

    def test_a_wrong_result_changes_nothing(self):
        self.change_holdings([1], [], 1, 50)
        for wrong in (([2], [], 1, 50), ([2], [], 2, 99), ([], [1], 1, 50)):
            self.assertRaises(exceptions.Conflict, self.change_holdings,
                              *wrong)
        self.assertEqual([database.holding(1)],
                         self.read(database.holding_host, 'h1').holdings)
        self.check()

    def test_a_report_that_was_lost_and_is_repeated(self):
        for _ in range(2):
            self.change_holdings([1], [], 1, 50)
        self.check()
