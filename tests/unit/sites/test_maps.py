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
import threading
from unittest import mock

from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.conductor.endpoints import agents
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.sites import maps
from tests.unit.db import database


SECONDS = 30


class TestMaps(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.maps = maps.Maps(self.conf, self.database)
        self.write(host_rows.put_host, database.host('h1'), database.at(0))

    def get(self, known=None):
        return self.maps.update(database.SITE, known)

    def test_made_once_per_generation(self):
        self.assertIs(self.get(), self.get())

    def test_whole_maps_are_forgotten_when_none_asks_for_them(self):
        now = 100.0
        self.patch(maps.time, 'monotonic', lambda: now)
        first = self.get()
        now += maps._KEPT_SECONDS - 1
        self.maps.forget_whole()
        self.assertIs(first, self.get())
        now += maps._KEPT_SECONDS + 1
        self.maps.forget_whole()
        self.assertIsNot(first, self.get())

    def test_reading_one_site_holds_no_other_up(self):
        self.write(host_rows.put_host, objects.Host(
            name='far', site='far', role='compute', url='http://far:1',
            capacity=1), database.at(0))
        begun, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)
        advance = self.maps._advance

        def advance_slowly(site):
            if site == 'far':
                begun.set()
                self.assertTrue(go_on.wait(SECONDS))
            return advance(site)

        self.patch(self.maps, '_advance', advance_slowly)
        thread = threading.Thread(target=self.maps.view, args=['far'],
                                  daemon=True)
        thread.start()
        self.assertTrue(begun.wait(SECONDS))
        self.assertIsNotNone(self.maps.update(database.SITE, None))
        go_on.set()
        thread.join(SECONDS)

    def test_change_makes_a_new_one(self):
        before = self.get()
        self.write(catalogue.put_image, database.image(1),
                   database.at(0))
        after = self.get()
        self.assertGreater(after.generation, before.generation)
        self.assertEqual([database.image(1)], after.images)

    def test_says_how_many_patches_plans_count_on(self):
        self.conf.set_override('hops', 3, 'planner')
        self.assertEqual(3, self.get().hops)

    def test_options_that_change_make_a_new_one(self):
        self.maps.note_options()
        before = self.get()
        self.conf.set_override('hops', 2, 'planner')
        self.conf.set_override('repository_bandwidth', 7.0, 'planner')
        self.assertEqual({database.SITE}, self.maps.note_options())
        after = self.get(before.generation)
        self.assertEqual((2, 7.0), (after.hops, after.links.repo))
        self.assertEqual(set(), self.maps.note_options())
        self.assertIsNone(self.get(after.generation))

    def test_measured_links_that_change_make_a_new_one_if_used(self):
        changed = []
        manager = agents.ConductorManager(
            self.database, self.maps, None,
            mock.Mock(maps_changed=changed.append), signatures.Security(),
            None)

        def report(mbps, **values):
            manager.report_network(None, 'h1', objects.HostNetwork(
                peer_mbps=mbps, **values))
            return changed.pop()

        before = self.get()
        self.assertEqual(set(), report(125.0))
        self.assertIsNone(self.get(before.generation))
        self.conf.set_override('measured_bandwidths', True, 'planner')
        self.assertEqual(set(), report(125.0))
        self.assertEqual({database.SITE}, report(250.0))
        after = self.get(before.generation)
        self.assertEqual([('h1', 250.0, 20.0)], [
            (each.host, each.peer, each.repo) for each in after.links.hosts])
        difference = self.maps.update(database.SITE, before.generation)
        self.assertEqual(after.links, difference.links)
        self.assertEqual(set(), report(250.0, fill_rate=1))

    def test_options_are_marked_again_after_a_failed_write(self):
        with mock.patch.object(self.database, 'write',
                               side_effect=exceptions.ServiceUnavailable):
            self.assertRaises(exceptions.ServiceUnavailable,
                              self.maps.note_options)
        self.assertEqual({database.SITE}, self.maps.note_options())

    def test_conductor_that_begins_sends_it_once_more(self):
        known = self.get().generation
        other = maps.Maps(self.conf, self.database)
        self.assertEqual({database.SITE}, other.note_options())
        self.assertGreater(other.update(database.SITE, None).generation, known)

    def test_known_generation_is_not_sent(self):
        self.assertIsNone(self.get(self.get().generation))

    def test_unknown_generation_is_answered_with_the_present(self):
        present = self.get()
        self.assertEqual(present, self.get(present.generation + 9))

    def test_unknown_site(self):
        self.assertRaises(exceptions.NotFound, self.maps.update, 'nowhere', 1)


class TestViews(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.views = maps.Maps(self.conf, self.database)
        self.write(host_rows.put_host, database.host('h1'), database.at(0))

    def test_made_once_per_generation(self):
        self.assertIs(self.views.view(database.SITE),
                      self.views.view(database.SITE))

    def test_change_makes_a_new_one(self):
        before = self.views.view(database.SITE)
        self.write(catalogue.put_image, database.image(1),
                   database.at(0))
        after = self.views.view(database.SITE)
        self.assertGreater(after.generation, before.generation)
        self.assertEqual([], list(before.images))
        self.assertEqual([database.image(1).id],
                         [image.id for image in after.images])

    def test_host_that_the_map_does_not_have_holds_nothing(self):
        self.assertEqual(
            frozenset(), self.views.view(database.SITE).holdings('h9'))
