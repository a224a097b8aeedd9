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
"""Where diffcached is told to read an image."""

import dataclasses

from diffcache_openstack.agent.lazy import lazy_sources
from diffcache_openstack.sites import views
from tests import base
from tests.unit.agent import fakes

CONTENT = b'content of the next build'
BASE = b'content of the last build'
OTHER = b'content of another image'
KEY = fakes.key_of(CONTENT)
KEYS = frozenset({KEY})
WHOLE = {'peer': 'http://repo', 'wan': True}


def part(url, content, wan=False):
    return {'peer': url, 'id': fakes.content_id(content), 'wan': wan}


class ImageSourcesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        network = fakes.Network()
        self.repository, self.host, self.peer = (
            fakes.Host(self.directory, network, name, capacity)
            for name, capacity in (('repo', None), ('h1', 3 * fakes.SIZE),
                                   ('h2', 3 * fakes.SIZE)))
        for content in (CONTENT, BASE, OTHER):
            self.repository.put(content)
        self.patch = fakes.make_patch(BASE, CONTENT)
        self.repository.put(self.patch, views.PATCHES)
        self.found = lazy_sources.ImageSources(
            self.host.state, self.host.transfers, self.host.sources)

    def see(self, patches=((BASE, CONTENT),)):
        self.host.view = fakes.site_view(
            [self.repository, self.host, self.peer],
            {'image': CONTENT, 'base': BASE, 'other': OTHER}, patches)

    def of(self):
        return self.found.of(KEY)

    def build(self, base, patch, wan):
        return {'base': part(base, BASE),
                'patch': part(patch, self.patch, wan)}

    def test_without_a_base_at_the_site_the_repository_sends_the_image(self):
        self.see()
        self.assertEqual([WHOLE], self.of())
        self.host.put(OTHER)
        self.see()
        self.assertEqual([WHOLE], self.of())

    def test_a_base_that_is_held_here_comes_before_the_repository(self):
        self.host.put(BASE)
        self.see()
        self.assertEqual(
            [self.build('http://h1', 'http://repo', True), WHOLE], self.of())

    def test_a_base_image_of_nova_is_one_too(self):
        borrowed = self.directory / 'borrowed-base'
        borrowed.write_bytes(BASE)
        self.host.borrow(borrowed)
        self.see()
        self.assertEqual(
            [self.build('http://h1', 'http://repo', True), WHOLE], self.of())

    def test_hosts_that_have_the_image_come_first(self):
        self.host.put(BASE)
        self.peer.put(CONTENT)
        self.see()
        self.assertEqual(
            [{'peer': 'http://h2', 'wan': False},
             self.build('http://h1', 'http://repo', True), WHOLE], self.of())

    def test_a_patch_at_the_site_is_read_there(self):
        self.host.put(BASE)
        self.peer.put(self.patch, views.PATCHES)
        self.see()
        self.assertEqual(
            [self.build('http://h1', 'http://h2', False),
             self.build('http://h1', 'http://repo', True), WHOLE], self.of())

    def test_without_a_base_of_its_own_a_host_reads_that_of_another(self):
        self.peer.put(BASE)
        self.see()
        wanted = self.build('http://h2', 'http://repo', True)
        self.assertEqual([wanted, WHOLE], self.of())
        # Its own is nearer; the other one is what is left without it.
        self.host.put(BASE)
        self.see()
        self.assertEqual(
            [self.build('http://h1', 'http://repo', True), wanted, WHOLE],
            self.of())

    def test_a_host_that_does_not_answer_has_no_base(self):
        self.peer.put(BASE)
        self.see()
        self.host.plane.down = {'h2'}
        self.host.transfers.avoided = lambda: frozenset({'h2'})
        self.assertEqual([WHOLE], self.of())

    def test_a_patch_that_is_no_smaller_than_the_image_is_not_used(self):
        self.host.put(BASE)
        self.see()
        self.host.view = dataclasses.replace(self.host.view, patches=tuple(
            dataclasses.replace(patch, size=2 * fakes.SIZE)
            for patch in self.host.view.patches))
        self.assertEqual([WHOLE], self.of())

    def test_patches_one_after_another_are_read_through(self):
        self.host.put(OTHER)
        first = fakes.make_patch(OTHER, BASE)
        self.repository.put(first, views.PATCHES)
        patches = [(OTHER, BASE), (BASE, CONTENT)]
        self.see(patches)
        chain = {'base': part('http://h1', OTHER),
                 'through': [part('http://repo', first, True)],
                 'patch': part('http://repo', self.patch, True)}
        self.assertEqual([chain, WHOLE], self.of())
        # One patch crosses the WAN where two would.
        self.peer.put(BASE)
        self.see(patches)
        self.assertEqual([self.build('http://h2', 'http://repo', True),
                          chain, WHOLE], self.of())

    def test_of_patches_one_after_another_all_have_to_be_readable(self):
        self.host.put(OTHER)
        first = fakes.make_patch(OTHER, BASE)
        self.repository.put(first, views.PATCHES)
        self.peer.put(self.patch, views.PATCHES)
        self.see([(OTHER, BASE), (BASE, CONTENT)])
        self.host.view = dataclasses.replace(self.host.view, hosts=tuple(
            dataclasses.replace(host, url='') if host.name == 'repo' else host
            for host in self.host.view.hosts))
        self.assertEqual([], self.of())

    def test_a_base_comes_without_a_repository_that_has_the_image(self):
        self.host.put(BASE)
        self.peer.put(self.patch, views.PATCHES)
        self.see()
        self.host.view = dataclasses.replace(self.host.view, hosts=tuple(
            dataclasses.replace(host, url='') if host.name == 'repo' else host
            for host in self.host.view.hosts))
        self.assertEqual([self.build('http://h1', 'http://h2', False)],
                         self.of())

    def test_of_many_hosts_some_are_named_and_a_repository(self):
        # Regression: diffcached refuses more sources, so that no image of
        # many hosts booted lazily.
        self.see()
        peer = self.host.view.host('h2')
        names = [f'p{at:02}' for at in range(lazy_sources.MOST_SOURCES + 3)]
        self.host.view = dataclasses.replace(
            self.host.view, hosts=self.host.view.hosts + tuple(
                dataclasses.replace(
                    peer, name=name, url=f'http://{name}', holdings=KEYS)
                for name in names))
        found = self.of()
        self.assertEqual(
            [f'http://{name}' for name
             in names[:lazy_sources.MOST_SOURCES - 1]] + ['http://repo'],
            [each['peer'] for each in found])

    def test_few_pairs_are_named(self):
        self.host.put(BASE)
        self.peer.put(BASE)
        for host in (self.host, self.peer):
            host.put(self.patch, views.PATCHES)
        self.see()
        found = self.of()
        self.assertEqual(lazy_sources.MOST_BUILDS + 1, len(found))
        self.assertEqual(self.build('http://h1', 'http://h1', False),
                         found[0])
        self.assertEqual(found, self.of())


class DifferTest(base.TestCase):

    BUILD = {'base': part('http://h1', BASE),
             'patch': part('http://repo', OTHER, True)}
    CHAIN = {**BUILD, 'through': [part('http://repo', CONTENT, True)]}
    USED = [{'url': 'base, patch', 'patch_bytes': 5, 'through': [], **BUILD},
            {'url': 'http://repo', 'patch_bytes': 0, 'through': []}]

    def test_the_same(self):
        self.assertFalse(lazy_sources.differ([self.BUILD, WHOLE], self.USED))

    def test_others(self):
        other = {**self.BUILD, 'base': part('http://h2', BASE)}
        for fresh in ([other, WHOLE], [WHOLE], [WHOLE, self.BUILD],
                      [self.BUILD], [self.CHAIN, WHOLE]):
            self.assertTrue(lazy_sources.differ(fresh, self.USED))
