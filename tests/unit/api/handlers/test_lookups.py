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

from diffcache_openstack.api.handlers import lookups
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.lazy import profiles
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.objects import boot_set
from diffcache_openstack.objects import versioned
from diffcache_openstack.prefetch import profiles as rows_of_profiles
from tests.unit.api import base
from tests.unit.db import database


GROUP = rows_of_profiles.GROUP_CHUNKS * rows_of_profiles.CHUNK


class TestLookups(base.ApiTest):

    def look_up(self, host, image_id):
        return self.get(f'/v1/lookups?host={host}'
                        f'&image_id={image_id}')['lookup']

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
        self.write(catalogue.put_image, database.image(
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
        database.silence(self.database, 'h1')
        self.api.remove_host(self.ctxt, 'h1')
        self.assertEqual('repository',
                         self.look_up('h2', 't1')['ways'][0]['way'])

    def read_at_boot(self, image_id='t3', held=0):
        """Two groups of an image are read, and h2 has some bytes of them."""
        when, rows = versioned.now(), {0: (1, 10), 40: (1, 20)}
        content_id = database.content(int(image_id[1:]))
        self.write(profiles.report, profiles.Subject(image_id, '', 'a'), 'h1',
                   (1, 1), [[chunk, *row] for chunk, row in rows.items()],
                   when)
        database.put_wanted(self.database, ['h2'], [boot_sets.PlannedSet(
            'h2', content_id, boot_sets.BootReads(image_id, 2 * GROUP, rows),
            1.0, 1.0, False, 1.0, False)], when)
        self.write(boot_sets.exchange, 'h2', [boot_sets.HeldSet(
            content_id, held, boot_set.READY)], None, when)

    def lazy_boot(self, host, image_id):
        return self.look_up(host, image_id)['lazy_boot']

    def test_lazy_boots_of_what_nobody_has_read(self):
        self.assertIsNone(self.lazy_boot('h2', 't3'))

    def test_a_lazy_boot_without_the_boot_set(self):
        self.add_image(3)
        self.read_at_boot()
        # 2 MiB of 100 MB that take 80 s.
        found = self.lazy_boot('h2', 't3')
        self.assertEqual((2 * GROUP, 0, 0), (
            found['read_bytes'], found['held_bytes'], found['peer_bytes']))
        self.assertAlmostEqual(
            2 * GROUP / (100 * base.test_agents.MB)
            * self.look_up('h2', 't3')['ways'][0]['seconds'],
            found['seconds'])
        # It serves no image while it arrives.
        self.assertIsNone(self.lazy_boot('h1', 't3'))

    def test_a_lazy_boot_with_the_boot_set(self):
        self.add_image(3)
        self.read_at_boot(held=2 * GROUP)
        self.write(boot_sets.exchange, 'h1', [], None, versioned.now())
        here, beside = (self.lazy_boot(host, 't3') for host in ('h2', 'h1'))
        self.assertEqual((2 * GROUP, 0), (
            here['held_bytes'], here['peer_bytes']))
        self.assertEqual((0, 2 * GROUP), (
            beside['held_bytes'], beside['peer_bytes']))
        self.assertLess(here['seconds'], beside['seconds'])

    def test_a_lazy_boot_by_another_threshold(self):
        self.add_image(3)
        self.read_at_boot()
        self.assertIsNotNone(self.lazy_boot('h2', 't3'))
        self.conf.set_override('threshold', 2.0, 'lazy')
        self.assertIsNone(self.lazy_boot('h2', 't3'))

    def test_a_lazy_boot_where_the_image_is(self):
        self.add_image(1)
        self.read_at_boot('t1')
        self.write(boot_sets.exchange, 'h1', [], None, versioned.now())
        found = self.lazy_boot('h1', 't1')
        self.assertEqual(found['read_bytes'], found['held_bytes'])

    def listed(self, image_id='t1', query=''):
        """The lookups of all hosts, by host."""
        return {each['host']: each for each in self.get(
            f'/v1/images/{image_id}/lookups{query}')['lookups']}

    def test_of_all_hosts_with_their_cheapest_way(self):
        # A plan that is computed meanwhile has another generation.
        self.conductor.tg.stop()
        self.add_image(3)
        self.read_at_boot()
        self.write(host_rows.put_host, database.host('n1', site='north'),
                   versioned.now())
        for image in ('t1', 't2', 't3'):
            found = self.listed(image)
            self.assertEqual(['h1', 'h2', 'n1'], list(found))
            for host, shown in found.items():
                self.assertEqual(self.get(
                    f'/v1/lookups?host={host}&image_id={image}&limit=1')[
                    'lookup'], shown)
        self.assertIsNotNone(self.listed('t3')['h2']['lazy_boot'])
        self.assertEqual(['n1'], list(self.listed(query='?site=north')))
        self.assertEqual({}, self.listed(query='?site=nowhere'))

    def test_of_hosts_that_are_alive(self):
        database.silence(self.database, 'h1')
        self.assertEqual(['h2'], list(self.listed()))
        database.silence(self.database, 'h2')
        self.assertEqual([], list(self.listed()))
        self.refused(404, 'GET', '/v1/images/t9/lookups')

    def test_of_all_hosts_in_parts(self):
        for number in range(3, 6):
            self.write(host_rows.put_host, database.host(f'h{number}'),
                       versioned.now())
        self.patch(lookups, '_MOST_HOSTS', 2)
        path, found = '/v1/images/t1/lookups?limit=1000', []
        while path:
            answer = self.get(path)
            found.append([each['host'] for each in answer['lookups']])
            [link] = answer.get('lookups_links', [{'href': None}])
            path = link['href']
        self.assertEqual([['h1', 'h2'], ['h3', 'h4'], ['h5']], found)

    def test_of_all_hosts_is_refused(self):
        path = '/v1/images/t1/lookups'
        self.assertEqual(401, self.call('GET', path, user=None)[0])
        for user in ('member', 'other', 'nobody'):
            error = self.refused(403, 'GET', path, user=user)
            self.assertIn('diffcache:lookups:show', error['detail'])
        self.get(path, user='auditor')
        for query in ('?limit=0', '?host=h1', '?site='):
            self.refused(400, 'GET', path + query)

    def test_of_all_hosts_of_an_image_that_is_not_served(self):
        self.write(catalogue.put_image, database.image(
            1, status='deactivated'), versioned.now())
        error = self.refused(404, 'GET', '/v1/images/t1/lookups')
        self.assertIn('deactivated', error['detail'])

    def add_image(self, number):
        """An image of a size that groups of chunks fit into, for all."""
        size = 100 * base.test_agents.MB
        self.write(catalogue.put_image, database.image(
            number, size=size, data_size=size), database.at(0))

    def test_unknown(self):
        self.refused(404, 'GET', '/v1/lookups?host=h9&image_id=t1')
        self.refused(404, 'GET', '/v1/lookups?host=h1&image_id=t9')

    def test_repository_is_not_looked_up_for(self):
        problem = self.refused(400, 'GET',
                               '/v1/lookups?host=hub&image_id=t1')
        self.assertIn('hub is a repository', problem['detail'])

    def test_parameters_are_needed(self):
        self.refused(400, 'GET', '/v1/lookups')
        error = self.refused(400, 'GET', '/v1/lookups?host=h1')
        self.assertIn('The query', error['detail'])
        self.assertIn('image_id', error['detail'])
