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

from diffcache_openstack.agent.images import image_costs
from diffcache_openstack.agent.lazy import lazy_hydrations
from diffcache_openstack.agent.lazy import lazy_images
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.agent.lazy import version_reads
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import lazy as lazy_options
from diffcache_openstack.conf import opts
from diffcache_openstack import objects
from diffcache_openstack.sites import view
from tests import base
from tests.unit.agent import fakes
from tests.unit import arriving

CONTENT = b'content of an image'
KEY = fakes.key_of(CONTENT)
SIZE = fakes.SIZE
VERSION_CONTENT = 'e' * 64


def listed(source):
    """A source as diffcached lists it."""
    counts = dict.fromkeys(('patch_bytes', 'requests', 'bytes', 'failures'),
                           0)
    if 'base' in source:
        return {'url': 'base, patch', **counts, **source}
    if 'socket' in source:
        return {'url': source['name'], **counts}
    return {'url': source['peer'], **counts}


class FakeDaemon:
    """diffcached, of which a test has the state."""

    def __init__(self, folder):
        self.folder = folder
        self.served = {}
        self.busy = set()
        self.down = False
        self.changes = []

    def images(self):
        self._check()
        return list(self.served.values())

    def add(self, content_id, wanted):
        self._check()
        if content_id in self.served:
            return self.served[content_id]
        self.served[content_id] = {
            **arriving.status(content_id), 'path': f'/mount/{content_id}',
            'data_path': str(self.folder / content_id), 'size': SIZE,
            'complete': False, 'present': 4, 'chunk': 256 << 10,
            'wanted': wanted,
            'sources': [listed(each) for each in wanted['sources']],
            'homes': [{**each, 'own': False}
                      for each in wanted.get('homes', {'hosts': []})['hosts']]}
        return self.served[content_id]

    def image(self, content_id):
        self._check()
        if content_id not in self.served:
            raise exceptions.NotFound(content_id)
        return self.served[content_id]

    def change(self, content_id, changed):
        self.changes.append((content_id, changed))

    def remove(self, content_id):
        self._check()
        if content_id in self.busy:
            raise exceptions.Conflict('open')
        del self.served[content_id]

    def complete(self, content_id, content):
        (self.folder / content_id).write_bytes(content)
        self.served[content_id]['complete'] = True

    def _check(self):
        if self.down:
            raise exceptions.ServiceUnavailable('down')


class FakeVersions:
    """Versions in a store, of which one is served at a time."""

    def __init__(self, folder):
        self.folder = folder
        self.served = {}
        self.renewed = []
        self.closed = []
        self.has_manifest = True
        self.base_id = None

    def disk_of(self, version_id, project_id):
        return objects.VersionDisk(
            device='vda', version='322bde76-949e-4c77-a812-310ab1466fc5',
            size=SIZE, base_id=self.base_id)

    def prepare(self, version):
        if not self.has_manifest:
            return None
        self.served[VERSION_CONTENT] = version
        return version_reads.Prepared(
            VERSION_CONTENT, self.folder / 'manifest',
            [{'name': 'version', 'socket': '/s', 'path': '/p'}])

    def find(self, content_id):
        return self.served.get(content_id)

    def content_of(self, image_id):
        return next((content for content, version in self.served.items()
                     if image_id in version.image_ids), None)

    def content_of_version(self, version_id, project_id):
        return next((content for content, version in self.served.items()
                     if (version.id, version.project_id)
                     == (version_id, project_id)), None)

    def forget(self, content_id):
        self.served.pop(content_id, None)

    def content_ids(self):
        return list(self.served)

    def renew(self, content_id):
        self.renewed.append(content_id)

    def close(self, content_id):
        self.closed.append(content_id)


class LazyImagesCase(base.TestCase):
    """An image at a repository, and two hosts."""

    boot_sets = None

    def setUp(self):
        super().setUp()
        network = fakes.Network()
        self.repository, self.host, self.peer = (
            fakes.Host(self.directory, network, name, capacity)
            for name, capacity in (('repo', None), ('h1', 3 * SIZE),
                                   ('h2', 3 * SIZE)))
        self.repository.put(CONTENT)
        self.see()
        self.expected = []
        self.host.transfers.expecting = self.expecting
        self.daemon = FakeDaemon(self.directory)
        self.versions = FakeVersions(self.directory)
        self.lazy = self.new_lazy()

    def see(self):
        """Have the host see the site as it is."""
        self.host.view = fakes.site_view(
            [self.repository, self.host, self.peer], {'image': CONTENT}, [])

    @contextlib.contextmanager
    def expecting(self, key):
        self.expected.append(key)
        yield
        self.expected.remove(key)

    def new_lazy(self, **changes):
        conf = opts.new_config()
        for name, value in {'socket': '/none', **changes}.items():
            conf.set_override(name, value, 'lazy')
        host = self.host
        users = lazy_servers.Servers(self.directory / 'servers.json')
        self.hydrations = lazy_hydrations.Hydrations(
            self.daemon, users, self.directory / 'hydrations.json')
        made = lazy_images.LazyImages(
            conf.lazy, host.state, lazy_images.Supply(
                host.builder, host.transfers,
                image_costs.ImageCosts(host.sources, host.state, host.flights),
                host.new_throttle),
            lazy_images.Users(users, hydrations=self.hydrations,
                              boot_sets=self.boot_sets), self.versions)
        if made._daemon is not None:
            made._daemon = made._versions._daemon = self.daemon
            if made._sets is not None:
                made._sets._means = made._sets._means._replace(
                    daemon=self.daemon)
        self.addCleanup(made.stop)
        return made

    def served(self):
        return self.daemon.served[KEY.id]


class LazyImagesTest(LazyImagesCase):

    def test_an_image_is_served_and_its_room_set_aside(self):
        self.assertEqual(
            {'path': f'/mount/{KEY.id}', 'reason': None},
            self.lazy.open('image'))
        wanted = self.served()['wanted']
        self.assertEqual([{'peer': 'http://repo', 'wan': True}],
                         wanted['sources'])
        self.assertEqual('idle', wanted['hydrate'])
        self.assertTrue(os.path.exists(wanted['manifest']))
        self.assertEqual(2 * SIZE, self.host.held.spare())
        self.assertEqual([KEY], self.expected)
        # Another server of the same image takes nothing more.
        self.lazy.open('image')
        self.assertEqual(2 * SIZE, self.host.held.spare())

    def test_another_image_is_opened_while_a_manifest_crosses_the_wan(self):
        """Regression: all images waited for one lock."""
        other = b'content of another image'
        self.repository.put(other)
        self.host.view = fakes.site_view(
            [self.repository, self.host, self.peer],
            {'image': CONTENT, 'other': other}, [])
        bring = self.lazy._bring_manifest
        arriving, go_on = threading.Event(), threading.Event()

        def bring_slowly(content_id):
            if content_id == KEY.id:
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
        self.assertIn(KEY.id, self.daemon.served)

    def test_what_is_added_while_diffcached_lists_the_others_stays(self):
        listed_before = self.daemon.images()
        self.lazy.open('image')
        with mock.patch.object(self.daemon, 'images',
                               return_value=listed_before):
            self.lazy.look()
        self.assertIn(KEY.id, self.lazy._served)
        del self.daemon.served[KEY.id]
        self.lazy.look()
        self.assertEqual({}, self.lazy._served)

    def test_the_rate_that_its_first_server_asks_for(self):
        self.lazy.open('image', 1000)
        self.assertEqual(1000, self.served()['wanted']['rate'])

    def test_peers_come_before_the_repository(self):
        self.peer.put(CONTENT)
        self.see()
        self.new_lazy(worth_seconds=0.0).open('image')
        self.assertEqual([{'peer': 'http://h2', 'wan': False},
                          {'peer': 'http://repo', 'wan': True}],
                         self.served()['wanted']['sources'])

    def test_a_peer_that_gets_the_image_becomes_a_source(self):
        self.lazy.open('image')
        self.lazy.look()
        self.assertEqual([], self.daemon.changes)
        self.peer.put(CONTENT)
        self.see()
        self.lazy.look()
        [(content, changed)] = self.daemon.changes
        self.assertEqual(['http://h2', 'http://repo'],
                         [each['peer'] for each in changed['sources']])

    def see_base(self):
        """Have the host see a base that it has, and a patch from it."""
        base_content = b'content of the last build'
        self.host.put(base_content)
        self.repository.put(fakes.make_patch(base_content, CONTENT),
                            view.PATCHES)
        self.host.view = fakes.site_view(
            [self.repository, self.host, self.peer],
            {'image': CONTENT, 'base': base_content},
            [(base_content, CONTENT)])

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
        self.served()['sources'] = [listed(each)
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
        self.assertEqual({KEY: self.directory}, attached)
        self.lazy.stop()
        self.assertEqual({}, attached)
        again = self.new_lazy()
        again.look()
        self.assertEqual({KEY: self.directory}, attached)
        self.daemon.complete(KEY.id, CONTENT)
        again.look()
        # It is served as an object of this host.
        self.assertEqual({}, attached)

    def test_an_image_that_peers_cannot_read_is_served_all_the_same(self):
        plane, attach = self.host.plane, self.host.plane.attach

        def refuse(key, folder):
            raise exceptions.InvalidInput('no such folder')

        plane.attach = refuse
        self.assertEqual(f'/mount/{KEY.id}', self.lazy.open('image')['path'])
        self.assertEqual({}, plane.attached)
        plane.attach = attach
        self.lazy.look()
        self.assertEqual({KEY: self.directory}, plane.attached)

    def test_an_image_that_is_removed_is_read_no_more(self):
        self.lazy.open('image')
        self.lazy.release(KEY.id)
        self.lazy.look()
        self.assertEqual({}, self.host.plane.attached)

    def test_what_is_held_or_quick_is_delivered_whole(self):
        lazy = self.new_lazy(worth_seconds=1e6)
        self.assertEqual({'path': None, 'reason': lazy_images.QUICK},
                         lazy.open('image'))
        self.host.put(CONTENT)
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
        self.assertRaises(exceptions.NotFound, self.lazy.release, KEY.id)

    def test_a_service_that_is_down_takes_no_room(self):
        self.daemon.down = True
        self.assertRaises(exceptions.ServiceUnavailable, self.lazy.open,
                          'image')
        self.assertEqual(3 * SIZE, self.host.held.spare())
        self.assertEqual([], self.expected)

    def test_a_full_cache_keeps_no_server_from_starting(self):
        self.host.held.capacity = SIZE // 2
        self.assertEqual(f'/mount/{KEY.id}', self.lazy.open('image')['path'])
        self.assertEqual(SIZE // 2, self.host.held.spare())
        self.assertEqual([KEY], self.expected)

    def test_what_has_no_room_is_held_until_nova_has_a_file(self):
        self.host.held.capacity = len(CONTENT) // 2
        self.lazy.open('image')
        self.daemon.complete(KEY.id, CONTENT)
        self.lazy.look()
        self.assertIn(KEY, self.host.held)
        # A guest keeps it open.
        self.daemon.busy.add(KEY.id)
        self.lazy.release(KEY.id)
        for _times in range(2):
            self.lazy.look()
            self.assertNotIn(KEY, self.host.held)
            self.assertIn(KEY.id, self.daemon.served)
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
        self.daemon.complete(KEY.id, CONTENT)
        self.lazy.look()
        self.assertIn(KEY, self.host.held)
        self.assertEqual(CONTENT, self.host.held.path(KEY).read_bytes())
        # By a second name of the same file.
        self.assertTrue(os.path.samefile(self.host.held.path(KEY),
                                         self.directory / KEY.id))
        self.assertTrue(self.host.held.in_use(KEY))
        self.assertEqual([], self.expected)
        self.assertEqual([], os.listdir(self.host.held.root / 'staging'))
        [found] = self.lazy.describe_served()
        self.assertEqual((True, ['image']),
                         (found['held'], found['image_ids']))
        self.daemon.busy.add(KEY.id)
        self.lazy.release(KEY.id)
        self.lazy.look()
        self.assertIn(KEY.id, self.daemon.served)
        self.daemon.busy.clear()
        self.lazy.look()
        self.assertEqual({}, self.daemon.served)
        self.assertFalse(self.host.held.in_use(KEY))

    @contextlib.contextmanager
    def verifying(self):
        """Have a whole image verified for as long as this lasts."""
        begun, go_on = threading.Event(), threading.Event()
        self.lazy.open('image')
        self.daemon.complete(KEY.id, CONTENT)
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

    def test_an_image_that_is_released_while_it_is_verified(self):
        with self.verifying():
            self.lazy.release(KEY.id)
        self.assertNotIn(KEY, self.host.held)
        self.assertEqual([], os.listdir(self.host.held.root / 'staging'))
        self.lazy.look()
        self.assertEqual({}, self.daemon.served)
        self.assertEqual(3 * SIZE, self.host.held.spare())

    def arrive(self, *users):
        """Have an image arrive, and all leave it; returns reported states."""
        self.lazy.open('image')
        for user in users:
            self.lazy.add_server(lazy_servers.LazyServer(user, 'p1', 'image'))
        self.lazy.look()
        states = [self.states()]
        self.daemon.complete(KEY.id, CONTENT)
        self.lazy.release(KEY.id)
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
        self.host.held.release(KEY)
        self.lazy.open('image')
        self.lazy.add_server(lazy_servers.LazyServer('s1', 'p1', 'image'))
        self.assertEqual([('s1', 'arriving')], self.states())

    def test_of_what_was_removed_before_it_was_whole_nothing_is_shown(self):
        self.lazy.open('image')
        self.lazy.add_server(lazy_servers.LazyServer('s1', 'p1', 'image'))
        self.lazy.release(KEY.id)
        self.lazy.look()
        self.assertEqual([], self.states())

    def test_a_damaged_whole_image_is_not_held(self):
        self.lazy.open('image')
        self.daemon.complete(KEY.id, b'something else')
        self.lazy.look()
        self.assertNotIn(KEY, self.host.held)
        self.assertEqual([], os.listdir(self.host.held.root / 'staging'))

    def test_what_a_fill_brought_first_is_a_source(self):
        self.lazy.open('image')
        self.host.put(CONTENT)
        self.lazy.look()
        [(_, changed)] = self.daemon.changes
        self.assertEqual('http://h1', changed['sources'][0]['peer'])
        self.daemon.complete(KEY.id, CONTENT)
        self.lazy.look()
        self.assertTrue(self.host.held.in_use(KEY))
        self.assertEqual([], os.listdir(self.host.held.root / 'staging'))

    def test_an_image_that_is_used_again_is_not_removed(self):
        self.lazy.open('image')
        self.lazy.release(KEY.id)
        self.lazy.open('image')
        self.lazy.look()
        self.assertIn(KEY.id, self.daemon.served)

    def test_an_image_that_was_removed_before_it_was_whole(self):
        self.lazy.open('image')
        self.lazy.release(KEY.id)
        self.lazy.look()
        self.assertEqual({}, self.daemon.served)
        self.assertEqual(3 * SIZE, self.host.held.spare())

    def test_a_restarted_agent_accounts_for_what_is_served(self):
        self.lazy.open('image')
        self.lazy.stop()
        self.assertEqual(3 * SIZE, self.host.held.spare())
        again = self.new_lazy()
        again.look()
        self.assertEqual(2 * SIZE, self.host.held.spare())
        self.daemon.complete(KEY.id, CONTENT)
        again.look()
        self.assertIn(KEY, self.host.held)

    def test_of_a_withdrawn_image_what_has_arrived_counts(self):
        self.lazy.open('image')
        self.lazy.stop()
        self.host.view = dataclasses.replace(self.host.view, templates=())
        again = self.new_lazy()
        again.look()
        self.assertEqual(3 * SIZE - (1 << 20), self.host.held.spare())

    def restart_without_manifest(self):
        """Restart the agent; the image is whole, its manifest deleted."""
        self.lazy.open('image')
        self.lazy.stop()
        self.daemon.complete(KEY.id, CONTENT)
        self.host.held.drop(view.Key(view.MANIFESTS, KEY.id), 'a test')
        return self.new_lazy()

    def test_a_withdrawn_image_is_not_held_without_its_manifest(self):
        """The manifest was looked for every two seconds, with a warning."""
        again = self.restart_without_manifest()
        self.host.view = dataclasses.replace(self.host.view, templates=())
        with self.assertNoLogs(lazy_images.LOG, 'WARNING'):
            again.look()
        self.assertNotIn(KEY, self.host.held)
        again.release(KEY.id)
        again.look()
        self.assertEqual({}, self.daemon.served)
        self.assertEqual(3 * SIZE, self.host.held.spare())

    def test_the_manifest_of_a_whole_image_is_fetched_again(self):
        self.restart_without_manifest().look()
        self.assertTrue(self.host.held.manifest(KEY.id).exists())
        self.assertIn(KEY, self.host.held)

    def test_a_restarted_agent_knows_what_is_held(self):
        self.lazy.open('image')
        self.daemon.complete(KEY.id, CONTENT)
        self.lazy.look()
        self.lazy.stop()
        again = self.new_lazy()
        again.look()
        self.assertTrue(again.describe_served()[0]['held'])
        self.assertTrue(self.host.held.in_use(KEY))

    def test_the_thread_looks_after_images(self):
        looked = threading.Event()
        self.lazy.look = looked.set
        self.lazy.start()
        self.assertTrue(looked.wait(60))

    def test_no_host_has_the_image(self):
        self.host.view = dataclasses.replace(
            self.host.view, hosts=tuple(
                host for host in self.host.view.hosts
                if host.role != view.REPOSITORY_ROLE))
        self.assertRaises(exceptions.DiffCacheError, self.lazy.open, 'image')
        self.assertEqual(3 * SIZE, self.host.held.spare())


class TestWishes(LazyImagesTest):

    def add(self, wish, name='s1'):
        self.lazy.add_server(lazy_servers.LazyServer(name, 'p', 'image'), wish)

    def test_a_new_server_is_asked_when_its_image_is_to_be_whole(self):
        self.lazy.open('image')
        self.host.state.report_due.clear()
        self.add(lazy_servers.Wish(60, 5000))
        [(content_id, changed)] = self.daemon.changes
        self.assertEqual((KEY.id, 5000), (content_id, changed['rate']))
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


class TestVersions(LazyImagesTest):

    def open(self, rate=None):
        return self.lazy.open_version('v', 'p', 'stand-in', rate)

    def described(self):
        [found] = self.lazy.describe_served()
        return found

    def test_one_is_served_from_the_agent(self):
        self.assertEqual(
            {'path': f'/mount/{VERSION_CONTENT}', 'reason': None},
            self.open())
        wanted = self.daemon.served[VERSION_CONTENT]['wanted']
        self.assertEqual(
            ([{'name': 'version', 'socket': '/s', 'path': '/p'}], 'idle'),
            (wanted['sources'], wanted['hydrate']))
        found = self.described()
        self.assertEqual(
            (['stand-in'], {'id': 'v', 'project_id': 'p'}, False),
            (found['image_ids'], found['version'], found['held']))

    def test_the_rate_that_its_first_server_asks_for(self):
        self.versions.base_id = KEY.id
        self.open(1000)
        self.assertEqual([1000, 1000], [
            self.daemon.served[content_id]['wanted']['rate']
            for content_id in (VERSION_CONTENT, KEY.id)])

    def test_its_base_image_arrives_too(self):
        self.versions.base_id = KEY.id
        self.open()
        self.assertEqual({KEY.id, VERSION_CONTENT}, set(self.daemon.served))
        self.assertEqual(f'/mount/{KEY.id}',
                         self.versions.served[VERSION_CONTENT].base_path)

    def test_a_base_image_that_is_here_is_not_served(self):
        self.versions.base_id = KEY.id
        self.host.put(CONTENT)
        self.see()
        self.open()
        self.assertIsNone(self.versions.served[VERSION_CONTENT].base_path)

    def test_a_base_image_that_is_nowhere_is_looked_for_elsewhere(self):
        self.versions.base_id = 'f' * 64
        self.open()
        self.assertIsNone(self.versions.served[VERSION_CONTENT].base_path)

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
        self.assertEqual([VERSION_CONTENT], self.versions.renewed)
        self.daemon.complete(VERSION_CONTENT, b'disk')
        self.lazy.look()
        self.assertEqual([VERSION_CONTENT], self.versions.renewed)
        self.assertEqual([VERSION_CONTENT], self.versions.closed)
        self.assertTrue(self.described()['held'])

    def test_a_whole_one_is_copied_from_its_file(self):
        self.open()
        self.assertIsNone(self.lazy.whole_version('v', 'p'))
        self.daemon.complete(VERSION_CONTENT, b'disk')
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
        self.daemon.busy.add(VERSION_CONTENT)
        self.lazy.release(VERSION_CONTENT)
        self.lazy.look()
        self.assertIn(VERSION_CONTENT, self.versions.served)
        self.daemon.busy.clear()
        self.lazy.look()
        self.assertEqual(({}, {}), (self.daemon.served,
                                    self.versions.served))

    def test_an_agent_that_restarted_takes_it_up(self):
        self.open()
        self.lazy = self.new_lazy()
        self.lazy.look()
        self.assertEqual(['stand-in'], self.described()['image_ids'])
        self.lazy.release(VERSION_CONTENT)
        self.lazy.look()
        self.assertEqual({}, self.daemon.served)

    def test_what_diffcached_lost_is_forgotten(self):
        self.open()
        self.daemon.served.clear()
        self.lazy.look()
        self.assertEqual({}, self.versions.served)
