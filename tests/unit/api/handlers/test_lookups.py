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
"""Lookups over the API."""

from diffcache_openstack.db import catalogue
from tests.unit.api import base
from tests.unit.db import database


class TestLookups(base.ApiTest):

    def look_up(self, host, template_id):
        return self.get(f'/v1/lookups?host={host}'
                        f'&template_id={template_id}')['lookup']

    def test_what_is_held_costs_nothing_to_move(self):
        way = self.look_up('h1', 't1')['ways'][0]
        self.assertEqual(('local', 0, 0),
                         (way['way'], way['wan_bytes'], way['lan_bytes']))

    def test_built_from_what_is_held(self):
        way = self.look_up('h1', 't2')['ways'][0]
        self.assertEqual(('build', 0), (way['way'], way['wan_bytes']))
        self.assertEqual(
            {database.content(1), database.patch(1, 2).id},
            {part['id'] for part in way['parts']})

    def test_cheapest_first_and_the_repository_among_them(self):
        ways = self.look_up('h2', 't1')['ways']
        self.assertEqual(sorted(way['seconds'] for way in ways),
                         [way['seconds'] for way in ways])
        self.assertEqual('peer', ways[0]['way'])
        whole = [way for way in ways if way['way'] == 'repository']
        self.assertEqual(100 * base.test_agents.MB, whole[0]['wan_bytes'])

    def test_the_repository_sends_less_of_compressed_images(self):
        self.write(catalogue.put_template, database.template(
            1, data_size=100 * base.test_agents.MB,
            compressed_size=40 * base.test_agents.MB), database.at(0))
        peer, hub = (next(way for way in self.look_up('h2', 't1')['ways']
                          if way['way'] == kind)
                     for kind in ('peer', 'repository'))
        self.assertEqual((0, 100 * base.test_agents.MB),
                         (peer['wan_bytes'], peer['lan_bytes']))
        self.assertEqual(40 * base.test_agents.MB, hub['wan_bytes'])
        self.assertAlmostEqual(16.0, hub['seconds'])

    def test_changes_are_seen(self):
        self.assertEqual('peer', self.look_up('h2', 't1')['ways'][0]['way'])
        self.api.remove_host(self.ctxt, 'h1')
        self.assertEqual('repository',
                         self.look_up('h2', 't1')['ways'][0]['way'])

    def test_unknown(self):
        self.refused(404, 'GET', '/v1/lookups?host=h9&template_id=t1')
        self.refused(404, 'GET', '/v1/lookups?host=h1&template_id=t9')

    def test_repository_is_not_looked_up_for(self):
        problem = self.refused(400, 'GET',
                               '/v1/lookups?host=hub&template_id=t1')
        self.assertIn('hub is a repository', problem['detail'])

    def test_parameters_are_needed(self):
        self.refused(400, 'GET', '/v1/lookups')
        error = self.refused(400, 'GET', '/v1/lookups?host=h1')
        self.assertIn('The query', error['detail'])
        self.assertIn('template_id', error['detail'])
