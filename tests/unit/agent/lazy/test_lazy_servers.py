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
"""Which reads of a host count for whom, over restarts of the agent."""

import json

from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.common import exceptions
from tests import base

CONTENT = 'c' * 64


def server(name, project='p1', image='t1', label='small'):
    return lazy_servers.LazyServer(name, project, image, label)


class ServersTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.directory / 'servers.json'
        self.servers = lazy_servers.Servers(self.path)
        self.servers.follow(CONTENT)

    def report(self, rows):
        return self.servers.report(CONTENT, rows)

    def test_a_run_goes_on_after_a_restart(self):
        self.servers.add(CONTENT, server('s1'))
        first = self.report({0: (1, 5), 3: (1, 9)})
        self.assertEqual(
            ('t1', ['p1'], 'small', 2),
            (first.image_id, first.projects, first.label, first.number))
        self.servers = lazy_servers.Servers(self.path)
        self.servers.follow(CONTENT)
        self.assertEqual(first, self.report({0: (1, 5), 3: (1, 9)}))
        self.assertEqual(first.run, self.report({0: (2, 9)}).run)

    def test_a_record_that_shrinks_is_another_run(self):
        self.servers.add(CONTENT, server('s1'))
        first = self.report({0: (1, 5), 3: (1, 9)})
        second = self.report({0: (1, 5)})
        self.assertLess(first.run, second.run)
        self.assertEqual(1, second.number)

    def test_an_image_that_is_served_anew_is_another_run(self):
        self.servers.add(CONTENT, server('s1'))
        first = self.report({0: (1, 5)})
        self.assertEqual([CONTENT], self.servers.all_contents())
        self.servers.forget(CONTENT)
        self.assertEqual([], self.servers.contents())
        self.servers.follow(CONTENT)
        self.servers.add(CONTENT, server('s2'))
        self.assertLess(first.run, self.report({0: (1, 5)}).run)

    def test_readers_that_left_count_still(self):
        self.servers.add(CONTENT, server('s1'))
        self.servers.remove('s1')
        self.servers.add(CONTENT, server('s2', 'p2', label='large'))
        found = self.report({0: (1, 5)})
        self.assertEqual((['p1', 'p2'], ''), (found.projects, found.label))
        self.assertEqual(['s2'],
                         [each.id for each in self.servers.of(CONTENT)])

    def test_two_images_of_one_content_are_not_reported(self):
        self.servers.add(CONTENT, server('s1'))
        self.servers.add(CONTENT, server('s2', image='t2'))
        self.assertIsNone(self.report({0: (1, 5)}))

    def test_what_is_not_served_has_no_servers(self):
        self.assertRaises(exceptions.NotFound, self.servers.add, 'd' * 64,
                          server('s1'))
        self.assertIsNone(self.servers.report('d' * 64, {}))

    def test_requests_that_name_no_server(self):
        good = {'project_id': 'p1', 'image_id': 't1', 'label': 'a b'}
        self.assertEqual(server('s1', label='a b'),
                         lazy_servers.parse('s1', good))
        for change in ({'project_id': None}, {'image_id': '../t1'},
                       {'label': 'a/b'}, {'more': 1}):
            self.assertRaises(exceptions.InvalidInput, lazy_servers.parse,
                              's1',
                              {**good, **change})
        self.assertRaises(exceptions.InvalidInput, lazy_servers.parse, '../s',
                          good)

    def test_whether_a_server_is_new(self):
        self.assertTrue(self.servers.add(CONTENT, server('s1')))
        self.servers = lazy_servers.Servers(self.path)
        self.assertFalse(self.servers.add(CONTENT, server('s1')))

    def test_when_its_image_is_to_be_whole(self):
        good = {'project_id': 'p1', 'image_id': 't1', 'label': 'a b'}
        self.assertIsNone(lazy_servers.parse_wish(good))
        for values, wish in (
                ({'hydrate_by': 60}, lazy_servers.Wish(60)),
                ({'hydrate_rate': 5}, lazy_servers.Wish(None, 5)),
                ({'hydrate_by': 60, 'hydrate_rate': 5},
                 lazy_servers.Wish(60, 5))):
            self.assertEqual(wish, lazy_servers.parse_wish({**good, **values}))
            self.assertEqual(server('s1', label='a b'),
                             lazy_servers.parse('s1', {**good, **values}))
        for values in ({'hydrate_by': 0}, {'hydrate_by': '60'},
                       {'hydrate_by': True}, {'hydrate_by': 10 ** 9},
                       {'hydrate_rate': 1.5}, {'hydrate_rate': -1}):
            self.assertRaises(exceptions.InvalidInput, lazy_servers.parse_wish,
                              {**good, **values})

    def test_nothing_is_written_when_nothing_changes(self):
        self.servers.add(CONTENT, server('s1'))
        self.report({0: (1, 5)})
        before = self.path.stat().st_ino
        self.report({0: (1, 5)})
        self.servers.forget('0' * 64)
        self.assertEqual(before, self.path.stat().st_ino)
        self.assertIn(CONTENT, json.loads(self.path.read_text()))
