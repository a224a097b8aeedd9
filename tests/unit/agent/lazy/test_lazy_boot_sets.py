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
"""Boot sets that the agent has served, and what becomes of them."""

from unittest import mock

from diffcache_openstack.agent.lazy import lazy_boot_sets
from diffcache_openstack.agent.lazy import lazy_images
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.agent.lazy import planned_boot_sets
from diffcache_openstack.common import exceptions
from diffcache_openstack.objects import boot_set
from diffcache_openstack.rpc import conductor_lazy_api
from tests.unit.agent import fakes
from tests.unit.agent.lazy import lazy_case

KEY, SIZE = lazy_case.KEY, lazy_case.SIZE
CONTENT = lazy_case.CONTENT
SET = SIZE // 4
CHUNK = 256 << 10


class ServedSetsTest(lazy_case.LazyImagesCase):

    def setUp(self):
        self.now = 1000.0
        super().setUp()
        self.use_sets()
        self.lazy = self.new_lazy(worth_seconds=0.0)

    def use_sets(self):
        self.boot_sets = planned_boot_sets.PlannedBootSets(
            self.directory / 'boot_sets.json', self.directory / 'boot_sets')

    def want(self, *contents, generation=1, size=SET):
        self.boot_sets.replace(generation, [conductor_lazy_api.BootSet(
            content_id, 'image', size, {1: (2, 100), 9: (1, 50)})
            for content_id in contents])

    def look(self, **status):
        """Look, after diffcached has some status of the image."""
        if status:
            self.daemon.served[KEY.id].update(status)
        self.lazy.look()

    def standing(self):
        [(content_id, *values)] = self.boot_sets.report()
        self.assertEqual(KEY.id, content_id)
        return values

    def serve(self):
        self.want(KEY.id)
        self.look()
        self.look(hydration={**self.served()['hydration'],
                             'mode': 'profile'},
                  profile={'chunks': 2, 'present': 1}, present=0)


class TestServing(ServedSetsTest):

    def test_a_set_is_served_with_its_profile_and_room(self):
        self.want(KEY.id)
        self.look()
        wanted = self.served()['wanted']
        self.assertEqual('profile', wanted['hydrate'])
        self.assertEqual(str(self.boot_sets.profile(KEY.id)),
                         wanted['profile'])
        self.assertEqual([{'peer': 'http://repo', 'wan': True}],
                         wanted['sources'])
        self.assertEqual(3 * SIZE - SET, self.host.held.spare())
        self.assertEqual({KEY: self.directory}, self.host.plane.attached)
        # Fills bring the image whole, if the plan wants that.
        self.assertEqual([], self.expected)
        self.look()
        self.assertEqual(1, self.lazy.boot_set_counts()['served'])

    def test_how_far_it_is(self):
        self.want(KEY.id)
        self.assertIsNone(self.boot_sets.report())
        self.look()
        self.assertEqual([0, 'waiting', None], self.standing())
        self.look(profile={'chunks': 2, 'present': 1}, present=1)
        self.assertEqual([CHUNK, 'fetching', None], self.standing())
        self.look(profile={'chunks': 2, 'present': 2}, present=2)
        self.assertEqual([2 * CHUNK, 'ready', None], self.standing())

    def test_nothing_that_arrives_is_told(self):
        self.serve()
        self.lazy._sets._served[KEY.id].since -= lazy_boot_sets.STALLED_SECONDS
        self.look()
        held, state, message = self.standing()
        self.assertEqual((0, boot_set.FAILED), (held, state))
        self.assertIn('Nothing arrived', message)
        self.look(present=1)
        self.assertEqual('fetching', self.standing()[1])

    def test_nova_does_not_release_it(self):
        self.serve()
        self.assertTrue(self.lazy.describe_served()[0]['boot_set'])
        self.lazy.release(KEY.id)
        self.look()
        self.assertIn(KEY.id, self.daemon.served)

    def test_it_is_dropped_when_it_is_not_wanted(self):
        self.serve()
        self.want(generation=2)
        self.look()
        self.assertEqual({}, self.daemon.served)
        self.assertEqual(3 * SIZE, self.host.held.spare())
        self.assertEqual({}, self.host.plane.attached)
        self.assertEqual({}, self.boot_sets.alone())
        self.assertEqual([], self.boot_sets.report())

    def test_one_that_a_process_has_open_is_dropped_later(self):
        self.serve()
        self.want(generation=2)
        self.daemon.busy.add(KEY.id)
        self.look()
        self.assertIn(KEY.id, self.daemon.served)
        self.daemon.busy.clear()
        self.look()
        self.assertEqual({}, self.daemon.served)

    def test_another_profile_replaces_the_first(self):
        self.serve()
        self.boot_sets.replace(2, [conductor_lazy_api.BootSet(
            KEY.id, 'image', 2 * SET, {4: (1, 1)})])
        self.look()
        self.assertEqual([(KEY.id, {
            'hydrate': 'profile',
            'profile': str(self.boot_sets.profile(KEY.id))})],
            self.daemon.changes)
        self.assertEqual(3 * SIZE - 2 * SET, self.host.held.spare())
        self.look()
        self.assertEqual(1, len(self.daemon.changes))

    def test_what_peers_made_grow_is_fetched_anew(self):
        self.serve()
        self.look(present=1 + 2 * max(SET, CHUNK) // CHUNK)
        self.assertNotIn(KEY.id, self.boot_sets.alone())
        self.look()
        self.assertEqual('profile', self.served()['wanted']['hydrate'])
        self.assertEqual(0, self.lazy.boot_set_counts()['dropped'])


class TestRestarts(ServedSetsTest):

    def test_after_a_restart_it_is_accounted_for_as_a_set(self):
        self.serve()
        self.lazy.stop()
        self.assertEqual(3 * SIZE, self.host.held.spare())
        self.use_sets()
        self.lazy = self.new_lazy(worth_seconds=0.0)
        self.look()
        self.assertEqual(3 * SIZE - SET, self.host.held.spare())
        self.assertEqual({KEY: self.directory}, self.host.plane.attached)

    def test_what_diffcached_lost_is_served_anew(self):
        self.serve()
        self.daemon.served.clear()
        self.look()
        self.assertEqual('profile', self.served()['wanted']['hydrate'])
        self.assertEqual(3 * SIZE - SET, self.host.held.spare())

    def test_an_agent_that_ended_before_it_hydrated_does_so(self):
        self.serve()
        self.boot_sets.forget_alone(KEY.id)
        self.lazy.stop()
        self.lazy = self.new_lazy(worth_seconds=0.0)
        self.look()
        self.assertIn((KEY.id, {'hydrate': 'idle', 'rate': None}),
                      self.daemon.changes)


class TestUse(ServedSetsTest):

    def test_a_server_finds_it_and_hydration_begins(self):
        self.serve()
        self.assertEqual(f'/mount/{KEY.id}', self.lazy.open('image')['path'])
        self.assertEqual([(KEY.id, {'hydrate': 'idle', 'rate': None})],
                         self.daemon.changes)
        self.assertEqual({}, self.boot_sets.alone())
        # All of the image is accounted for now.
        self.assertEqual(2 * SIZE, self.host.held.spare())
        self.assertEqual({KEY: self.directory}, self.host.plane.attached)
        self.look(hydration={**self.served()['hydration'], 'mode': 'idle'})
        self.assertEqual(boot_set.USED, self.standing()[1])

    def test_a_server_that_diffcached_refuses_leaves_it_a_set(self):
        self.serve()
        with mock.patch.object(self.daemon, 'add', side_effect=exceptions
                               .ServiceUnavailable('down')):
            self.assertRaises(exceptions.ServiceUnavailable, self.lazy.open,
                              'image')
        self.assertEqual({KEY.id}, set(self.boot_sets.alone()))
        self.look()
        self.assertEqual(3 * SIZE - SET, self.host.held.spare())

    def test_one_in_use_is_not_dropped(self):
        self.serve()
        self.lazy.open('image')
        self.want(generation=2)
        self.look()
        self.assertIn(KEY.id, self.daemon.served)

    def test_after_its_last_server_it_is_a_set_again(self):
        self.serve()
        self.lazy.open('image')
        self.lazy.release(KEY.id)
        self.look()
        self.look()
        self.assertEqual('profile', self.served()['wanted']['hydrate'])
        self.assertEqual(3 * SIZE - SET, self.host.held.spare())

    def test_a_server_shows_a_hydration_that_is_off(self):
        self.serve()
        self.lazy._servers.follow(KEY.id)
        self.lazy._servers.add(KEY.id,
                               lazy_servers.LazyServer('s1', 'p', 'image'))
        [found] = self.hydrations.collect()
        self.assertEqual('none', found.mode)

    def test_a_host_with_the_image_needs_no_set(self):
        self.host.put(CONTENT)
        self.see()
        self.want(KEY.id)
        self.look()
        self.assertEqual({}, self.daemon.served)
        self.assertEqual([0, boot_set.READY, None], self.standing())
        self.assertEqual(lazy_images.HELD, self.lazy.open('image')['reason'])


class TestFaults(ServedSetsTest):

    def fail(self, message):
        held, state, found = self.standing()
        self.assertEqual((0, boot_set.FAILED), (held, state))
        self.assertIn(message, found)
        self.assertEqual(1, self.lazy.boot_set_counts()['failed'])
        # Not again at once.
        self.look()
        self.assertEqual(1, self.lazy.boot_set_counts()['failed'])
        self.lazy._sets._failures[KEY.id].due = 0.0

    def test_a_full_cache(self):
        self.host.held.capacity = SET - 1
        self.want(KEY.id)
        self.look()
        self.fail('cache')
        self.host.held.capacity = 3 * SIZE
        self.look()
        self.assertIn(KEY.id, self.daemon.served)

    def test_a_diffcached_that_refuses(self):
        def refuse(content_id, wanted):
            raise exceptions.InvalidInput('unknown variant profile')

        add, self.daemon.add = self.daemon.add, refuse
        self.want(KEY.id)
        self.look()
        self.fail('unknown variant')
        self.assertEqual(3 * SIZE, self.host.held.spare())
        self.daemon.add = add
        self.look()
        self.assertIn(KEY.id, self.daemon.served)

    def test_no_source(self):
        self.host.view = fakes.site_view([self.host, self.peer],
                                         {'image': CONTENT}, [])
        self.want(KEY.id)
        self.look()
        self.assertEqual(boot_set.FAILED, self.standing()[1])

    def test_a_diffcached_that_is_down(self):
        self.want(KEY.id)
        self.daemon.down = True
        self.assertRaises(exceptions.ServiceUnavailable, self.lazy.look)
        self.daemon.down = False
        self.look()
        self.assertIn(KEY.id, self.daemon.served)

    def test_few_are_fetched_at_once(self):
        self.want(KEY.id)
        with mock.patch.object(lazy_boot_sets, 'MOST_FETCHING', 0):
            self.look()
        self.assertEqual({}, self.daemon.served)
        self.look()
        self.assertIn(KEY.id, self.daemon.served)

    def test_manifests_of_sets_in_use_are_not_brought(self):
        self.serve()
        self.lazy.open('image')
        self.look()
        sets, brought = self.lazy._sets, []
        sets._means = sets._means._replace(bring_manifest=brought.append)
        sets.prepare()
        self.assertEqual([], brought)

    def test_windows_of_fills(self):
        self.lazy._sets._means = self.lazy._sets._means._replace(
            may_fetch=lambda: False)
        self.want(KEY.id)
        self.look()
        self.assertEqual({}, self.daemon.served)

    def test_the_set_of_a_withdrawn_image_is_dropped(self):
        self.serve()
        self.host.view = fakes.site_view([self.repository, self.host], {}, [])
        self.look()
        self.assertEqual({}, self.daemon.served)

    def test_a_cache_that_the_plan_needs_drops_it(self):
        self.serve()
        self.lazy.stop()
        self.host.held.capacity = SET - 1
        self.use_sets()
        self.lazy = self.new_lazy(worth_seconds=0.0)
        self.look()
        self.assertEqual({}, self.daemon.served)
