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
from diffcache_openstack.agent.state import site_map
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack import objects
from diffcache_openstack.sites import view
from tests import base

CONTENT = 'a' * 64


def a_map(generation=3):
    return objects.SiteMap(
        site='s', generation=generation,
        templates=[objects.Template(id='t', name='n', content_id=CONTENT,
                                    size=10, data_size=5)],
        patches=[objects.Patch(id='b' * 64, base=CONTENT, target='c' * 64,
                               size=2, apply_seconds=0.5)],
        hosts=[objects.Host(name='h1', site='s', role='compute',
                            url='http://h1', holdings=[
                                objects.Holding(kind='templates',
                                                id=CONTENT, bytes=5)]),
               objects.Host(name='r', site='x', role='repository')],
        links=objects.Links(local=4.0, peer=2.0, repo=1.0))


class Conductor:
    """Has one map, or is down."""

    def __init__(self):
        self.down = False
        self.asked = []

    def get_site_map(self, ctxt, site, generation):
        self.asked.append((site, generation))
        if self.down:
            raise exceptions.ServiceUnavailable('no answer')
        return a_map() if generation != 3 else None


class SiteMapTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.directory / 'map.json'
        self.conductor = Conductor()

    def new(self):
        return site_map.SiteMap(self.path, self.conductor, None, 's')

    def test_outlives_the_process(self):
        self.assertEqual(0, self.new().current().generation)
        self.new().update(a_map())
        found = self.new().current()
        self.assertEqual(3, found.generation)
        self.assertEqual(CONTENT, found.template('t').content_id)
        self.assertEqual(view.Links(4.0, 2.0, 1.0), found.links)
        self.assertEqual(0.5, found.patch('b' * 64).apply_seconds)
        self.assertIn(view.Key(view.TEMPLATES, CONTENT),
                      found.holdings('h1'))
        self.assertEqual('r', found.repository().name)

    def test_a_useless_file_is_no_map(self):
        for document in ({'a': 1}, [], {'diffcache_object.name': 'SiteMap'}):
            files.write_json(self.path, document)
            self.assertEqual(0, self.new().current().generation)

    def test_listeners_hear_of_new_maps_only(self):
        followed, heard = self.new(), []
        followed.subscribe(
            lambda: heard.append(followed.current().generation))
        for _ in range(2):
            followed.refresh()
        self.assertEqual([3], heard)
        self.assertEqual([('s', 0), ('s', 3)], self.conductor.asked)

    def test_an_image_registered_a_moment_ago(self):
        followed = self.new()
        followed.reachable = True
        self.assertEqual(CONTENT, followed.find('t').content_id)

    def test_no_lookup_at_a_conductor_that_is_down(self):
        self.assertRaises(exceptions.NotFound, self.new().find, 't')
        self.assertEqual([], self.conductor.asked)

    def test_a_conductor_that_fails_during_a_lookup(self):
        followed = self.new()
        followed.reachable = self.conductor.down = True
        self.assertRaises(exceptions.NotFound, followed.find, 't')
        self.assertEqual(1, len(self.conductor.asked))
