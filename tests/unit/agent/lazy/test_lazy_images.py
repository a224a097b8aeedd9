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
"""What the agent has served, what it takes, and what becomes of it."""

import contextlib
import dataclasses
import os
import threading
import time
from unittest import mock

from diffcache_openstack.agent.lazy import lazy_hydrations
from diffcache_openstack.agent.lazy import lazy_images
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import lazy as lazy_options
from diffcache_openstack.sites import views
from tests.unit.agent import fakes
from tests.unit.agent.lazy import lazy_case


class LazyImagesTest(lazy_case.LazyImagesCase):

    def test_an_image_is_served_and_its_room_set_aside(self):
        self.assertEqual(
            {'path': f'/mount/{lazy_case.KEY.id}', 'reason': None},
            self.lazy.open('image'))
        wanted = self.served()['wanted']
        self.assertEqual([{'peer': 'http://repo', 'wan': True}],
                         wanted['sources'])
        self.assertEqual('idle', wanted['hydrate'])
        self.assertTrue(os.path.exists(wanted['manifest']))
        self.assertEqual(2 * lazy_case.SIZE, self.host.held.spare())
        self.assertEqual([lazy_case.KEY], self.expected)
        # Another server of the same image takes nothing more.
        self.lazy.open('image')
        self.assertEqual(2 * lazy_case.SIZE, self.host.held.spare())

    def test_another_image_is_opened_while_a_manifest_crosses_the_wan(self):
        """Regression: all images waited for one lock."""
        other = b'content of another image'
        self.repository.put(other)
        self.host.view = fakes.site_view(
            [self.repository, self.host, self.peer],
            {'image': lazy_case.CONTENT, 'other': other}, [])
        bring = self.lazy._bring_manifest
        arriving, go_on = threading.Event(), threading.Event()

        def bring_slowly(content_id):
            if content_id == lazy_case.KEY.id:
                arriving.set()
                go_on.wait(60)
            return bring(content_id)

        self.lazy._bring_manifest = bring_slowly
        first = threading.Thread(target=self.lazy.open, args=('image',))
        first.start()
        self.addCleanup(first.join, 60)
        self.addCleanup(go_on.set)
        self.assertTrue(arriving.wait(60))
        content = fakes.key_of(other).id
        self.assertEqual(f'/mount/{content}', self.lazy.open('other')['path'])
        self.lazy.release(content)
        self.lazy.look()
        self.assertNotIn(content, self.daemon.served)
        self.assertTrue(first.is_alive())
        go_on.set()
        first.join(60)
        self.assertIn(lazy_case.KEY.id, self.daemon.served)

    def test_what_is_added_while_diffcached_lists_the_others_stays(self):
        listed_before = self.daemon.images()
        self.lazy.open('image')
        with mock.patch.object(self.daemon, 'images',
                               return_value=listed_before):
            self.lazy.look()
        self.assertIn(lazy_case.KEY.id, self.lazy._served)
        del self.daemon.served[lazy_case.KEY.id]
        self.lazy.look()
        self.assertEqual({}, self.lazy._served)

    def test_the_rate_that_its_first_server_asks_for(self):
        self.lazy.open('image', 1000)
        self.assertEqual(1000, self.served()['wanted']['rate'])

    def test_no_server_has_a_higher_rate_than_the_host(self):
        lazy = self.new_lazy(hydrate_rate='1000')
        lazy.open('image', 10**9)
        self.assertEqual(1000, self.served()['wanted']['rate'])

    def test_a_server_that_asks_for_no_rate_is_considered(self):
        self.lazy.open('image', 1)
        self.served()['hydration']['rate'] = 1
        self.lazy.add_server(lazy_servers.LazyServer('s1', 'p1', 'image'))
        self.assertEqual([(lazy_case.KEY.id, {'rate': None})],
                         self.daemon.changes)

    def test_peers_come_before_the_repository(self):
        self.peer.put(lazy_case.CONTENT)
        self.see()
        self.new_lazy(worth_seconds=0.0).open('image')
        self.assertEqual([{'peer': 'http://h2', 'wan': False},
                          {'peer': 'http://repo', 'wan': True}],
                         self.served()['wanted']['sources'])

    def test_a_peer_that_gets_the_image_becomes_a_source(self):
        self.lazy.open('image')
        self.lazy.look()
        self.assertEqual([], self.daemon.changes)
        self.peer.put(lazy_case.CONTENT)
        self.see()
        self.lazy.look()
        [(content, changed)] = self.daemon.changes
        self.assertEqual(['http://h2', 'http://repo'],
                         [each['peer'] for each in changed['sources']])

    def see_base(self):
        """Have the host see a base that it has, and a patch from it."""
        base_content = b'content of the last build'
        self.host.put(base_content)
        self.repository.put(fakes.make_patch(base_content, lazy_case.CONTENT),
                            views.PATCHES)
        self.host.view = fakes.site_view(
            [self.repository, self.host, self.peer],
            {'image': lazy_case.CONTENT, 'base': base_content},
            [(base_content, lazy_case.CONTENT)])

    def test_an_image_is_read_through_a_base_that_is_here(self):
        self.see_base()
        self.new_lazy(worth_seconds=0.0).open('image')
        build, whole = self.served()['wanted']['sources']
        self.assertEqual('http://h1', build['base']['peer'])
        self.assertEqual('http://repo', build['patch']['peer'])
        self.assertEqual({'peer': 'http://repo', 'wan': True}, whole)

    def test_a_base_that_comes_or_goes_changes_the_sources(self):
        lazy = self.new_lazy(worth_seconds=0.0)
        lazy.open('image')
        without = self.host.view
        self.see_base()
        lazy.look()
        [(_, changed)] = self.daemon.changes
        self.assertEqual(['base' in each for each in changed['sources']],
                         [True, False])
        self.served()['sources'] = [lazy_case.listed(each)
                                    for each in changed['sources']]
        lazy.look()
        self.assertEqual(1, len(self.daemon.changes))
        self.host.view = without
        lazy.look()
        self.assertEqual({'sources': [{'peer': 'http://repo', 'wan': True}]},
                         self.daemon.changes[1][1])

    def test_hosts_of_the_site_are_homes_also_when_they_are_down(self):
        self.host.view = dataclasses.replace(self.host.view, hosts=tuple(
            dataclasses.replace(host, alive=host.name != 'h2')
            for host in self.host.view.hosts))
        self.lazy.open('image')
        self.assertEqual(
            {'own': 'h1', 'hosts': [{'name': 'h1', 'url': 'http://h1'},
                                    {'name': 'h2', 'url': 'http://h2'}]},
            self.served()['wanted']['homes'])
        self.lazy.look()
        self.assertEqual([], self.daemon.changes)

    def test_a_host_that_joins_the_site_becomes_a_home(self):
        hosts = self.host.view.hosts
        self.host.view = dataclasses.replace(self.host.view, hosts=tuple(
            host for host in hosts if host.name != 'h2'))
        self.lazy.open('image')
        self.host.view = dataclasses.replace(self.host.view, hosts=hosts)
        self.lazy.look()
        [(_, changed)] = self.daemon.changes
        self.assertEqual(['h1', 'h2'], sorted(
            host['name'] for host in changed['homes']['hosts']))
        self.assertNotIn('sources', changed)

    def test_of_many_hosts_those_that_diffcached_uses_are_compared(self):
        hosts = [{'name': f'h{at}', 'url': f'http://h{at}'}
                 for at in range(lazy_images.MOST_HOMES + 6)]
        used = hosts[6:]
        self.assertTrue(lazy_images._is_same(hosts, used))
        self.assertFalse(lazy_images._is_same(hosts, used[1:]))
        self.assertFalse(lazy_images._is_same(hosts[:-1], used))

    def test_peers_read_an_image_here_while_it_arrives(self):
        attached = self.host.plane.attached
        self.lazy.open('image')
        self.assertEqual({lazy_case.KEY: self.directory}, attached)
        self.lazy.stop()
        self.assertEqual({}, attached)
        again = self.new_lazy()
        again.look()
        self.assertEqual({lazy_case.KEY: self.directory}, attached)
        self.daemon.complete(lazy_case.KEY.id, lazy_case.CONTENT)
        again.look()
        # It is served as an object of this host.
        self.assertEqual({}, attached)

    def test_an_image_that_peers_cannot_read_is_served_all_the_same(self):
        plane, attach = self.host.plane, self.host.plane.attach

        def refuse(key, folder):
            raise exceptions.InvalidInput('no such folder')

        plane.attach = refuse
        self.assertEqual(f'/mount/{lazy_case.KEY.id}',
                         self.lazy.open('image')['path'])
        self.assertEqual({}, plane.attached)
        plane.attach = attach
        self.lazy.look()
        self.assertEqual({lazy_case.KEY: self.directory}, plane.attached)

    def test_an_image_that_is_removed_is_read_no_more(self):
        self.lazy.open('image')
        self.lazy.release(lazy_case.KEY.id)
        self.lazy.look()
        self.assertEqual({}, self.host.plane.attached)

    def test_what_is_held_or_quick_is_delivered_whole(self):
        lazy = self.new_lazy(worth_seconds=1e6)
        self.assertEqual({'path': None, 'reason': lazy_images.QUICK},
                         lazy.open('image'))
        self.host.put(lazy_case.CONTENT)
        self.assertEqual({'path': None, 'reason': lazy_images.HELD},
                         self.lazy.open('image'))
        self.assertEqual({}, self.daemon.served)

    def test_without_a_socket_nothing_is_served(self):
        lazy = self.new_lazy(socket=None)
        self.assertEqual({'path': None, 'reason': lazy_images.DISABLED},
                         lazy.open('image'))
        self.assertEqual([], lazy.describe_served())
        lazy.look()

    def test_an_unknown_image(self):
        self.assertRaises(exceptions.NotFound, self.lazy.open, 'other')
        self.assertRaises(exceptions.NotFound, self.lazy.release,
                          lazy_case.KEY.id)

    def test_a_service_that_is_down_takes_no_room(self):
        self.daemon.down = True
        self.assertRaises(exceptions.ServiceUnavailable, self.lazy.open,
                          'image')
        self.assertEqual(3 * lazy_case.SIZE, self.host.held.spare())
        self.assertEqual([], self.expected)

    def test_a_full_cache_keeps_no_server_from_starting(self):
        self.host.held.capacity = lazy_case.SIZE // 2
        self.assertEqual(f'/mount/{lazy_case.KEY.id}',
                         self.lazy.open('image')['path'])
        self.assertEqual(lazy_case.SIZE // 2, self.host.held.spare())
        self.assertEqual([lazy_case.KEY], self.expected)

    def test_what_has_no_room_is_held_until_nova_has_a_file(self):
        self.host.held.capacity = len(lazy_case.CONTENT) // 2
        self.lazy.open('image')
        self.daemon.complete(lazy_case.KEY.id, lazy_case.CONTENT)
        self.lazy.look()
        self.assertIn(lazy_case.KEY, self.host.held)
        # A guest keeps it open.
        self.daemon.busy.add(lazy_case.KEY.id)
        self.lazy.release(lazy_case.KEY.id)
        for _times in range(2):
            self.lazy.look()
            self.assertNotIn(lazy_case.KEY, self.host.held)
            self.assertIn(lazy_case.KEY.id, self.daemon.served)
        self.assertEqual([], self.expected)
        self.daemon.busy.clear()
        self.lazy.look()
        self.assertEqual({}, self.daemon.served)

    def test_without_hydration_fills_go_on(self):
        self.new_lazy(hydrate=lazy_options.NONE).open('image')
        self.assertEqual([], self.expected)
        self.assertEqual('none', self.served()['wanted']['hydrate'])

    def test_a_rate(self):
        self.new_lazy(hydrate_rate='2MB').open('image')
        self.assertEqual(2_000_000, self.served()['wanted']['rate'])

    def test_a_whole_image_is_held_until_nobody_has_it_open(self):
        self.lazy.open('image')
        self.daemon.complete(lazy_case.KEY.id, lazy_case.CONTENT)
        self.lazy.look()
        self.assertIn(lazy_case.KEY, self.host.held)
        self.assertEqual(lazy_case.CONTENT,
                         self.host.held.path(lazy_case.KEY).read_bytes())
        # By a second name of the same file.
        self.assertTrue(os.path.samefile(self.host.held.path(lazy_case.KEY),
                                         self.directory / lazy_case.KEY.id))
        self.assertTrue(self.host.held.in_use(lazy_case.KEY))
        self.assertEqual([], self.expected)
        self.assertEqual([], os.listdir(self.host.held.root / 'staging'))
        [found] = self.lazy.describe_served()
        self.assertEqual((True, ['image']),
                         (found['held'], found['image_ids']))
        self.daemon.busy.add(lazy_case.KEY.id)
        self.lazy.release(lazy_case.KEY.id)
        self.lazy.look()
        self.assertIn(lazy_case.KEY.id, self.daemon.served)
        self.daemon.busy.clear()
        self.lazy.look()
        self.assertEqual({}, self.daemon.served)
        self.assertFalse(self.host.held.in_use(lazy_case.KEY))

    @contextlib.contextmanager
    def verifying(self):
        """Have a whole image verified for as long as this lasts."""
        begun, go_on = threading.Event(), threading.Event()
        self.lazy.open('image')
        self.daemon.complete(lazy_case.KEY.id, lazy_case.CONTENT)
        inspector = self.host.held.inspector
        verify = inspector.deep

        def deep(*args):
            begun.set()
            self.assertTrue(go_on.wait(60))
            return verify(*args)

        looking = threading.Thread(target=self.lazy.look)
        with mock.patch.object(inspector, 'deep', deep):
            looking.start()
            try:
                self.assertTrue(begun.wait(60))
                yield
            finally:
                go_on.set()
                looking.join()

    def test_servers_do_not_wait_while_a_whole_image_is_verified(self):
        with self.verifying():
            opened = threading.Thread(target=self.lazy.open, args=['image'])
            opened.start()
            opened.join(60)
            self.assertFalse(opened.is_alive())
            self.assertFalse(self.lazy.describe_served()[0]['held'])
        self.assertTrue(self.lazy.describe_served()[0]['held'])

    def test_versions_do_not_wait_for_images_that_are_verified(self):
        # Regression: one thread did both, and versions were deleted while
        # it read images.
        self.versions.served[lazy_case.VERSION_CONTENT] = mock.sentinel.of
        self.daemon.add(lazy_case.VERSION_CONTENT, {'sources': []})
        self.lazy.open('image')
        self.daemon.complete(lazy_case.KEY.id, lazy_case.CONTENT)
        with mock.patch.object(self.host.held.inspector, 'deep') as deep:
            self.lazy.only_look()
        deep.assert_not_called()
        self.assertEqual([lazy_case.VERSION_CONTENT], self.versions.renewed)
        self.lazy.hold()
        self.assertIn(lazy_case.KEY, self.host.held)

    def test_an_image_that_is_released_while_it_is_verified(self):
        with self.verifying():
            self.lazy.release(lazy_case.KEY.id)
        self.assertNotIn(lazy_case.KEY, self.host.held)
        self.assertEqual([], os.listdir(self.host.held.root / 'staging'))
        self.lazy.look()
        self.assertEqual({}, self.daemon.served)
        self.assertEqual(3 * lazy_case.SIZE, self.host.held.spare())

    def arrive(self, *users):
        """Have an image arrive, and all leave it; returns reported states."""
        self.lazy.open('image')
        for user in users:
            self.lazy.add_server(lazy_servers.LazyServer(user, 'p1', 'image'))
        self.lazy.look()
        states = [self.states()]
        self.daemon.complete(lazy_case.KEY.id, lazy_case.CONTENT)
        self.lazy.release(lazy_case.KEY.id)
        self.lazy.look()
        self.assertEqual({}, self.daemon.served)
        return [*states, self.states()]

    def states(self):
        """What is reported of servers."""
        return [(each.server_id, each.state)
                for each in self.hydrations.collect()]

    def test_servers_whose_image_has_arrived_are_shown_for_a_while(self):
        """Who waited saw a server go, and not that its image was whole."""
        self.host.state.report_due.clear()
        self.assertEqual([[('s1', 'arriving')], [('s1', 'complete')]],
                         self.arrive('s1'))
        self.assertTrue(self.host.state.report_due.is_set())
        self.assertRaises(exceptions.Conflict, self.hydrations.change, 's1',
                          0, {'paused': True})
        later = time.monotonic() + lazy_hydrations.SHOWN_SECONDS
        with mock.patch.object(lazy_hydrations.time, 'monotonic',
                               lambda: later):
            self.assertEqual([], self.states())
            self.assertRaises(exceptions.NotFound, self.hydrations.change,
                              's1', 0, {'paused': True})

    def test_a_server_that_is_gone_is_not_shown(self):
        self.arrive('s1', 's2')
        self.lazy.remove_server('s1')
        self.assertEqual([('s2', 'complete')], self.states())

    def test_a_server_with_another_image_is_shown_with_that(self):
        self.arrive('s1')
        self.host.held.release(lazy_case.KEY)
        self.lazy.open('image')
        self.lazy.add_server(lazy_servers.LazyServer('s1', 'p1', 'image'))
        self.assertEqual([('s1', 'arriving')], self.states())

    def test_of_what_was_removed_before_it_was_whole_nothing_is_shown(self):
        self.lazy.open('image')
        self.lazy.add_server(lazy_servers.LazyServer('s1', 'p1', 'image'))
        self.lazy.release(lazy_case.KEY.id)
        self.lazy.look()
        self.assertEqual([], self.states())

    def test_a_damaged_whole_image_is_not_held(self):
        self.lazy.open('image')
        self.daemon.complete(lazy_case.KEY.id, b'something else')
        self.lazy.look()
        self.assertNotIn(lazy_case.KEY, self.host.held)
        self.assertEqual([], os.listdir(self.host.held.root / 'staging'))

    def test_diffcached_repairs_a_damaged_whole_image(self):
        # Regression: it was read every two seconds, for ever, and guests
        # read what is wrong of it.
        self.lazy.open('image')
        self.daemon.complete(lazy_case.KEY.id, b'something else')
        for _looks in range(2):
            self.lazy.look()
            self.assertEqual([(lazy_case.KEY.id, {'verify': True})],
                             self.daemon.changes)
        self.daemon.complete(lazy_case.KEY.id, lazy_case.CONTENT)
        later = time.monotonic() + lazy_images.FIRST_PAUSE
        with mock.patch.object(lazy_images.time, 'monotonic', lambda: later):
            self.lazy.look()
        self.assertIn(lazy_case.KEY, self.host.held)

    def test_what_a_fill_brought_first_is_a_source(self):
        self.lazy.open('image')
        self.host.put(lazy_case.CONTENT)
        self.lazy.look()
        [(_, changed)] = self.daemon.changes
        self.assertEqual('http://h1', changed['sources'][0]['peer'])
        self.daemon.complete(lazy_case.KEY.id, lazy_case.CONTENT)
        self.lazy.look()
        self.assertTrue(self.host.held.in_use(lazy_case.KEY))
        self.assertEqual([], os.listdir(self.host.held.root / 'staging'))

    def test_an_image_whose_sources_cannot_be_renewed_is_removed(self):
        # Regression: no look came as far as its end.
        self.lazy.open('image')
        self.lazy.release(lazy_case.KEY.id)
        failure = exceptions.InvalidInput('too many sources')
        self.peer.put(lazy_case.CONTENT)
        self.see()
        with mock.patch.object(self.daemon, 'change', side_effect=failure):
            self.lazy.look()
        self.assertEqual({}, self.daemon.served)

    def test_an_image_that_is_used_again_is_not_removed(self):
        self.lazy.open('image')
        self.lazy.release(lazy_case.KEY.id)
        self.lazy.open('image')
        self.lazy.look()
        self.assertIn(lazy_case.KEY.id, self.daemon.served)

    def test_an_image_that_was_removed_before_it_was_whole(self):
        self.lazy.open('image')
        self.lazy.release(lazy_case.KEY.id)
        self.lazy.look()
        self.assertEqual({}, self.daemon.served)
        self.assertEqual(3 * lazy_case.SIZE, self.host.held.spare())

    def test_a_restarted_agent_accounts_for_what_is_served(self):
        self.lazy.open('image')
        self.lazy.stop()
        self.assertEqual(3 * lazy_case.SIZE, self.host.held.spare())
        again = self.new_lazy()
        again.look()
        self.assertEqual(2 * lazy_case.SIZE, self.host.held.spare())
        self.daemon.complete(lazy_case.KEY.id, lazy_case.CONTENT)
        again.look()
        self.assertIn(lazy_case.KEY, self.host.held)

    def test_of_a_withdrawn_image_what_has_arrived_counts(self):
        self.lazy.open('image')
        self.lazy.stop()
        self.host.view = dataclasses.replace(self.host.view, images=())
        again = self.new_lazy()
        again.look()
        self.assertEqual(3 * lazy_case.SIZE - (1 << 20),
                         self.host.held.spare())

    def restart_without_manifest(self):
        """Restart the agent; the image is whole, its manifest deleted."""
        self.lazy.open('image')
        self.lazy.stop()
        self.daemon.complete(lazy_case.KEY.id, lazy_case.CONTENT)
        self.host.held.drop(views.Key(views.MANIFESTS, lazy_case.KEY.id),
                            'a test')
        return self.new_lazy()

    def test_a_withdrawn_image_is_not_held_without_its_manifest(self):
        """The manifest was looked for every two seconds, with a warning."""
        again = self.restart_without_manifest()
        self.host.view = dataclasses.replace(self.host.view, images=())
        with self.assertNoLogs(lazy_images.LOG, 'WARNING'):
            again.look()
        self.assertNotIn(lazy_case.KEY, self.host.held)
        again.release(lazy_case.KEY.id)
        again.look()
        self.assertEqual({}, self.daemon.served)
        self.assertEqual(3 * lazy_case.SIZE, self.host.held.spare())

    def test_the_manifest_of_a_whole_image_is_fetched_again(self):
        self.restart_without_manifest().look()
        self.assertTrue(self.host.held.manifest(lazy_case.KEY.id).exists())
        self.assertIn(lazy_case.KEY, self.host.held)

    def test_a_restarted_agent_knows_what_is_held(self):
        self.lazy.open('image')
        self.daemon.complete(lazy_case.KEY.id, lazy_case.CONTENT)
        self.lazy.look()
        self.lazy.stop()
        again = self.new_lazy()
        again.look()
        self.assertTrue(again.describe_served()[0]['held'])
        self.assertTrue(self.host.held.in_use(lazy_case.KEY))

    def test_the_thread_looks_after_images(self):
        looked = threading.Event()
        self.patch(self.lazy, '_work', looked.set)
        self.lazy.start()
        self.assertTrue(looked.wait(60))

    def test_no_host_has_the_image(self):
        self.host.view = dataclasses.replace(
            self.host.view, hosts=tuple(
                host for host in self.host.view.hosts
                if host.role != views.REPOSITORY_ROLE))
        self.assertRaises(exceptions.DiffCacheError, self.lazy.open, 'image')
        self.assertEqual(3 * lazy_case.SIZE, self.host.held.spare())
