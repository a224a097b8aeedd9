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
from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.sites import views
from tests.unit.agent import fakes
from tests.unit.agent.images.delivery import test_recipes
from tests.unit.agent.images.delivery import test_serving

BASE, TARGET = test_serving.BASE, test_serving.TARGET


class TestServed(test_serving.ServeTestCase):
    """What was brought for a request stays while there is room."""

    def setUp(self):
        super().setUp()
        self.host = self.hosts['h1'] = fakes.Host(
            self.directory, self.network, 'h1', 10 ** 10, keep_requested=True)
        self.refresh()
        self.changes = 0
        self.patch(self.host.state, 'object_added', self.changed)

    def changed(self):
        self.changes += 1

    def want(self, *contents):
        self.host.held.want([holdings.PlacedObject(fakes.key_of(content), n)
                             for n, content in enumerate(contents)])

    def test_kept_and_announced(self):
        self.assertEqual('repository', self.serve().way)
        self.assertIn(fakes.key_of(TARGET), self.host.held)
        self.assertEqual(1, self.changes)
        again = self.serve()
        self.assertEqual(('local', 0), (again.way, again.wan_bytes))
        self.assertEqual(1, self.changes)

    def test_a_base_that_was_requested_makes_the_next_a_patch(self):
        self.server().deliver(
            self.host.view.image('base'),
            outputs.LocalOutput(self.output), building.ON_THE_FLY)
        served = self.serve()
        self.assertEqual('build', served.way)
        self.assertEqual(len(test_serving.PATCH), served.wan_bytes)

    def test_the_plan_comes_first(self):
        self.host.put(BASE)
        self.want(BASE)
        self.host.held.capacity = self.host.held.used() + 10
        self.serve()
        self.assertIn(fakes.key_of(BASE), self.host.held)
        self.assertNotIn(fakes.key_of(TARGET), self.host.held)
        self.assertEqual(0, self.changes)

    def test_the_plan_takes_the_room_back(self):
        self.serve()
        self.want(BASE)
        held, key = self.host.held, fakes.key_of(BASE)
        held.capacity = max(held.used(), len(BASE))
        with held.room_for(key, len(BASE)):
            self.assertNotIn(fakes.key_of(TARGET), held)

    def test_newer_requests_take_the_room_of_older_ones(self):
        self.host.put(BASE)
        self.host.held.capacity = fakes.SIZE
        self.serve()
        self.assertNotIn(fakes.key_of(BASE), self.host.held)
        self.assertIn(fakes.key_of(TARGET), self.host.held)

    def test_nothing_goes_for_what_will_not_fit(self):
        self.host.put(BASE)
        self.host.held.capacity = 1
        self.serve()
        self.assertIn(fakes.key_of(BASE), self.host.held)
        self.assertNotIn(fakes.key_of(TARGET), self.host.held)

    def patched(self, room):
        """Serve by base and patch, with this much room but for the base."""
        self.host.put(BASE)
        self.want(BASE)
        self.host.held.capacity = self.host.held.used() + room
        served = self.serve(building.FETCH_AND_PATCH)
        self.assertEqual('build', served.way)
        return served.wan_bytes

    def test_a_patch_stays_where_its_content_does_not_fit(self):
        size = len(test_serving.PATCH)
        key = fakes.key_of(test_serving.PATCH, views.PATCHES)
        room = self.patch_room()
        self.assertEqual(size, self.patched(room))
        self.assertIn(key, self.host.held)
        self.assertEqual(1, self.changes)
        self.assertEqual(0, self.serve(building.FETCH_AND_PATCH).wan_bytes)

    def test_no_patch_stays_where_its_content_does(self):
        self.patched(2 * fakes.SIZE)
        self.assertEqual(
            {fakes.key_of(BASE), fakes.key_of(TARGET)},
            {key for key in self.host.held.keys()
             if key.kind != views.MANIFESTS})

    def test_nothing_goes_for_a_patch(self):
        self.patched(self.patch_room() - 1)
        self.assertNotIn(fakes.key_of(test_serving.PATCH, views.PATCHES),
                         self.host.held)
        self.assertEqual(0, self.changes)

    def patch_room(self):
        """Bytes that the patch takes on this disk."""
        path = self.directory / 'patch'
        path.write_bytes(test_serving.PATCH)
        return holdings.disk_bytes(path)

    def test_released_unless_the_plan_wants_it(self):
        self.serve()
        key = fakes.key_of(TARGET)
        self.want(TARGET)
        self.assertFalse(self.host.held.release(key))
        self.want()
        with self.host.held.lease(key):
            self.assertFalse(self.host.held.release(key))
        self.assertTrue(self.host.held.release(key))
        self.assertNotIn(key, self.host.held)


class TestPlanned(test_serving.ServeTestCase):
    """The plan's own objects stay, also where nothing else is kept."""

    def kept(self, *wanted, mode=building.FETCH_AND_PATCH):
        """What is held besides manifests after a request with this plan."""
        held = self.hosts['h1'].held
        held.want([holdings.PlacedObject(key, 1) for key in wanted])
        self.serve(mode)
        return {key for key in held.keys() if key.kind != views.MANIFESTS}

    def test_an_image_that_was_requested(self):
        key = fakes.key_of(TARGET)
        self.assertEqual({key}, self.kept(key, mode=building.ON_THE_FLY))
        self.assertEqual('local', self.serve().way)

    def test_a_base_and_a_patch_that_were_fetched(self):
        self.hosts['h2'].put(BASE)
        self.refresh()
        wanted = {fakes.key_of(BASE), self.patch_keys[0]}
        self.assertEqual(wanted, self.kept(*wanted))
        self.assertEqual(0, self.serve(building.FETCH_AND_PATCH).wan_bytes)

    def test_what_the_plan_does_not_want_goes(self):
        self.hosts['h2'].put(BASE)
        self.refresh()
        self.assertEqual(set(), self.kept())

    def test_nothing_in_use_gives_way(self):
        held = self.hosts['h1'].held
        other = self.hosts['h1'].put(BASE)
        held.capacity = held.used()
        with held.lease(other):
            self.assertEqual({other}, self.kept(
                fakes.key_of(TARGET), mode=building.ON_THE_FLY))


class TestFiles(test_recipes.RecipesTestCase):
    """The same for what image services ask for."""

    keep_requested = True

    def test_raw_content_is_not_stored_twice(self):
        for _ in range(2):
            self.assertEqual(test_recipes.TARGET, self.read('raw'))
        self.assertIn(fakes.key_of(test_recipes.TARGET), self.hosts['h1'].held)
        self.assertEqual([], self.store.oldest_first())
        self.assertEqual(1, len(self.fetched()))

    def test_content_of_a_packed_image_is_there_for_others(self):
        self.assertEqual(test_recipes.PACKED, self.read('packed'))
        self.refresh()
        self.assertIn(fakes.key_of(test_recipes.TARGET),
                      self.hosts['h2'].view.holdings('h1'))
        self.assertEqual(views.ACTIVE, self.image('packed').status)
