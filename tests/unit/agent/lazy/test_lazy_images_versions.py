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
"""Versions served while they arrive, and wishes of servers."""

from diffcache_openstack.agent.lazy import lazy_images
from diffcache_openstack.agent.lazy import lazy_servers
from tests.unit.agent.lazy import lazy_case


class TestWishes(lazy_case.LazyImagesCase):

    def add(self, wish, name='s1'):
        self.lazy.add_server(lazy_servers.LazyServer(name, 'p', 'image'), wish)

    def test_a_new_server_is_asked_when_its_image_is_to_be_whole(self):
        self.lazy.open('image')
        self.host.state.report_due.clear()
        self.add(lazy_servers.Wish(60, 5000))
        [(content_id, changed)] = self.daemon.changes
        self.assertEqual((lazy_case.KEY.id, 5000),
                         (content_id, changed['rate']))
        self.assertAlmostEqual(60, changed['hydrate']['seconds'], delta=5)
        self.assertTrue(self.host.state.report_due.is_set())

    def test_a_server_that_boots_again_does_not_prolong_its_deadline(self):
        self.lazy.open('image')
        self.add(None)
        self.add(lazy_servers.Wish(60))
        self.assertEqual([], self.daemon.changes)

    def test_a_wish_that_cannot_be_set_keeps_no_server_from_booting(self):
        self.lazy.open('image')
        self.daemon.down = True
        with self.assertLogs(lazy_images.LOG, 'WARNING'):
            self.add(lazy_servers.Wish(60))
        self.assertEqual([], self.daemon.changes)


class TestVersions(lazy_case.LazyImagesCase):

    def open(self, rate=None):
        return self.lazy.open_version('v', 'p', 'stand-in', rate)

    def described(self):
        [found] = self.lazy.describe_served()
        return found

    def base_path(self):
        """Return where the base image of the version is served."""
        return self.versions.served[lazy_case.VERSION_CONTENT].base_path

    def test_one_is_served_from_the_agent(self):
        self.assertEqual(
            {'path': f'/mount/{lazy_case.VERSION_CONTENT}', 'reason': None},
            self.open())
        wanted = self.daemon.served[lazy_case.VERSION_CONTENT]['wanted']
        self.assertEqual(
            ([{'name': 'version', 'socket': '/s', 'path': '/p'}], 'idle'),
            (wanted['sources'], wanted['hydrate']))
        found = self.described()
        self.assertEqual(
            (['stand-in'], {'id': 'v', 'project_id': 'p'}, False),
            (found['image_ids'], found['version'], found['held']))

    def test_the_rate_that_its_first_server_asks_for(self):
        self.versions.base_id = lazy_case.KEY.id
        self.open(1000)
        self.assertEqual([1000, 1000], [
            self.daemon.served[content_id]['wanted']['rate']
            for content_id in (lazy_case.VERSION_CONTENT, lazy_case.KEY.id)])

    def test_its_base_image_arrives_too(self):
        self.versions.base_id = lazy_case.KEY.id
        self.open()
        self.assertEqual({lazy_case.KEY.id, lazy_case.VERSION_CONTENT},
                         set(self.daemon.served))
        self.assertEqual(f'/mount/{lazy_case.KEY.id}',
                         self.base_path())

    def test_a_base_image_that_is_here_is_not_served(self):
        self.versions.base_id = lazy_case.KEY.id
        self.host.put(lazy_case.CONTENT)
        self.see()
        self.open()
        self.assertIsNone(self.base_path())

    def test_a_base_image_that_is_nowhere_is_looked_for_elsewhere(self):
        self.versions.base_id = 'f' * 64
        self.open()
        self.assertIsNone(self.base_path())

    def test_without_a_manifest_it_is_restored(self):
        self.versions.has_manifest = False
        self.assertEqual({'path': None, 'reason': 'no_manifest'},
                         self.open())
        self.assertEqual({}, self.daemon.served)

    def test_without_diffcached_it_is_restored(self):
        self.lazy = self.new_lazy(socket=None)
        self.assertEqual({'path': None, 'reason': 'disabled'}, self.open())
        self.assertIsNone(self.lazy.whole_version('v', 'p'))

    def test_no_room_of_the_cache_is_taken(self):
        before = self.host.state.held.used()
        self.open()
        self.lazy.look()
        self.assertEqual(before, self.host.state.held.used())
        self.assertEqual([], self.expected)

    def test_it_is_kept_from_being_deleted_until_it_is_whole(self):
        self.open()
        self.lazy.look()
        self.assertEqual([lazy_case.VERSION_CONTENT], self.versions.renewed)
        self.daemon.complete(lazy_case.VERSION_CONTENT, b'disk')
        self.lazy.look()
        self.assertEqual([lazy_case.VERSION_CONTENT], self.versions.renewed)
        self.assertEqual([lazy_case.VERSION_CONTENT], self.versions.closed)
        self.assertTrue(self.described()['held'])

    def test_a_whole_one_is_copied_from_its_file(self):
        self.open()
        self.assertIsNone(self.lazy.whole_version('v', 'p'))
        self.daemon.complete(lazy_case.VERSION_CONTENT, b'disk')
        found = self.lazy.whole_version('v', 'p')
        self.assertEqual(b'disk', found.read_bytes())
        self.assertIsNone(self.lazy.whole_version('v', 'other'))

    def test_servers_on_it_are_known(self):
        self.open()
        self.lazy.add_server(lazy_servers.LazyServer('s', 'p', 'stand-in', ''))
        self.assertEqual(['s'], self.described()['servers'])

    def test_no_other_host_learns_from_them(self):
        self.open()
        self.lazy.add_server(lazy_servers.LazyServer('s', 'p', 'stand-in', ''))
        self.assertEqual([], self.lazy._servers.contents())

    def test_it_goes_when_nobody_has_it_open(self):
        self.open()
        self.daemon.busy.add(lazy_case.VERSION_CONTENT)
        self.lazy.release(lazy_case.VERSION_CONTENT)
        self.lazy.look()
        self.assertIn(lazy_case.VERSION_CONTENT, self.versions.served)
        self.daemon.busy.clear()
        self.lazy.look()
        self.assertEqual(({}, {}), (self.daemon.served,
                                    self.versions.served))

    def test_an_agent_that_restarted_takes_it_up(self):
        self.open()
        self.lazy = self.new_lazy()
        self.lazy.look()
        self.assertEqual(['stand-in'], self.described()['image_ids'])
        self.lazy.release(lazy_case.VERSION_CONTENT)
        self.lazy.look()
        self.assertEqual({}, self.daemon.served)

    def test_what_diffcached_lost_is_forgotten(self):
        self.open()
        self.daemon.served.clear()
        self.lazy.look()
        self.assertEqual({}, self.versions.served)
