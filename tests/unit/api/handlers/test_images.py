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
"""Images over the API."""

from diffcache_openstack.db import catalogue
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from tests.unit.api import base
from tests.unit.conductor.endpoints import test_agents
from tests.unit.db import database


class TestVisibility(base.ApiTest):

    def ids(self, query='', **arguments):
        return [entry['id'] for entry in self.get(
            f'/v1/images{query}', **arguments)['images']]

    def test_operators_see_all(self):
        for user in ('admin', 'service', 'auditor'):
            self.assertEqual(['t1', 't2', 't3'], self.ids(user=user))

    def test_projects_see_public_ones_and_their_own(self):
        self.assertEqual(['t1', 't2'], self.ids(user='reader'))
        self.assertEqual(['t1', 't2', 't3'], self.ids(user='other'))

    def test_what_is_not_seen_is_not_there(self):
        self.refused(404, 'GET', '/v1/images/t3', user='member')
        self.get('/v1/images/t3', user='other')

    def test_filters_show_no_more(self):
        self.assertEqual(
            [], self.ids(f'?owner={base.OTHER_PROJECT}', user='reader'))

    def test_deleted_ones_are_the_operators(self):
        # The conductor forgets those that were registered long ago.
        now = versioned.now()
        self.write(catalogue.put_image, database.image(
            5, created_at=now, status=objects.DELETED), now)
        self.assertEqual(['t1', 't2'], self.ids(user='reader'))
        self.assertEqual(['t5'], self.ids('?status=deleted'))

    def test_project_that_is_none_owns_nothing(self):
        # An image without an owner is not that of a token without a project.
        self.write(catalogue.put_image, database.image(
            4, visibility='private'), database.at(1))
        self.assertNotIn('t4', self.ids(user='reader'))


class TestListing(base.ApiTest):

    def test_filters(self):
        for query, expected in (
                ('family=t1', ['t2']), ('name=Image 3', ['t3']),
                (f'content_id={database.content(2)}', ['t2']),
                ('visibility=private', ['t3']), ('disk_format=vhd', [])):
            found = self.get(f'/v1/images?{query}')['images']
            self.assertEqual(expected, [entry['id'] for entry in found])

    def test_compressed_size_is_shown(self):
        self.write(catalogue.put_image, database.image(
            1, owner=base.PROJECT, data_size=100 * test_agents.MB,
            compressed_size=40 * test_agents.MB), database.at(0))
        shown = self.get('/v1/images/t1', user='reader')['image']
        self.assertEqual(40 * test_agents.MB, shown['compressed_size'])
        self.assertIsNone(self.get('/v1/images/t2')['image']
                          ['compressed_size'])

    def share(self, members, visibility=objects.SHARED):
        self.write(catalogue.put_image, database.image(
            3, owner=base.OTHER_PROJECT, visibility=visibility,
            data_size=100 * test_agents.MB, members=members),
            versioned.now())

    def test_members_see_what_is_shared_with_them(self):
        self.refused(404, 'GET', '/v1/images/t3', user='reader')
        self.share([base.PROJECT, 'somebody'])
        self.assertEqual('shared', self.get(
            '/v1/images/t3', user='reader')['image']['visibility'])
        self.assertIn('t3', [entry['id'] for entry in self.get(
            '/v1/images', user='reader')['images']])

    def test_who_is_no_member_any_more_sees_it_no_more(self):
        self.share([base.PROJECT])
        self.share(['somebody'])
        self.refused(404, 'GET', '/v1/images/t3', user='reader')

    def test_members_of_what_is_not_shared_do_not_count(self):
        self.share([base.PROJECT], 'private')
        self.refused(404, 'GET', '/v1/images/t3', user='reader')

    def test_in_parts(self):
        answer = self.get('/v1/images?limit=2')
        self.assertIn('marker=t2', answer['images_links'][0]['href'])
        answer = self.get('/v1/images?limit=2&marker=t2')
        self.assertEqual(['t3'], [t['id'] for t in answer['images']])
        self.assertNotIn('images_links', answer)

    def test_where_it_is(self):
        self.assertEqual(1, self.get('/v1/images/t1')['image'][
            'host_count'])
        self.assertEqual(
            [{'host': 'h1', 'site': 'edge', 'bytes': 50, 'held': True,
              'borrowed': False}],
            self.get('/v1/images/t1/locations')['locations'])

    def test_where_nova_has_it(self):
        for host in ('h1', 'h2'):
            self.write(held_rows.put_borrowed, host, [objects.Holding(
                kind=objects.IMAGES, id=database.content(1), bytes=50)])
        self.assertEqual([
            {'host': host, 'site': 'edge', 'bytes': 50, 'held': held,
             'borrowed': True} for host, held in (('h1', True), ('h2', False))
        ], self.get('/v1/images/t1/locations')['locations'])


class TestPatches(base.ApiTest):

    def test_list_and_show(self):
        [patch] = self.get('/v1/patches')['patches']
        self.assertEqual(
            (database.content(1), database.content(2), 1),
            (patch['base'], patch['target'], patch['host_count']))
        self.assertEqual(
            patch, self.get(f'/v1/patches/{patch["id"]}')['patch'])

    def test_ends_by_image_or_content(self):
        for query, count in (('base=t1', 1), ('target=t1', 0),
                             (f'target={database.content(2)}', 1)):
            self.assertEqual(
                count, len(self.get(f'/v1/patches?{query}')['patches']))

    def test_ends_of_several_images(self):
        for source, target in ((2, 1), (2, 3), (3, 1)):
            self.write(catalogue.put_patch, database.patch(source, target),
                       versioned.now())
        for query, found in (
                ('target=t1&target=t3', {(2, 1), (2, 3), (3, 1)}),
                (f'base=t1&base={database.content(3)}', {(1, 2), (3, 1)}),
                ('base=t2&target=t1&target=t2', {(2, 1)}),
                ('base=t9&base=t8', set())):
            self.assertEqual(found, {
                (int(patch['base'], 16), int(patch['target'], 16))
                for patch in self.get(f'/v1/patches?{query}')['patches']})

    def test_parts_of_several_images(self):
        for target in (1, 3):
            self.write(catalogue.put_patch, database.patch(2, target),
                       versioned.now())
        path, found = '/v1/patches?limit=1&target=t1&target=t2', []
        while path:
            answer = self.get(path)
            [patch] = answer['patches']
            found.append(patch['id'])
            [link] = answer.get('patches_links', [{'href': None}])
            path = link['href']
        self.assertEqual([database.patch(1, 2).id, database.patch(2, 1).id],
                         found)

    def test_too_many_images(self):
        for count, status in ((50, 200), (51, 400)):
            path = '/v1/patches?' + '&'.join(
                f'base=t{number}' for number in range(count))
            found, body, _headers = self.call('GET', path)
            self.assertEqual(status, found, body)


class TestPairs(base.ApiTest):

    def setUp(self):
        super().setUp()
        for number in range(4, 8):
            self.write(catalogue.put_image, database.image(number),
                       versioned.now())
        self.write(self.add_pairs)

    def add_pairs(self, session):
        for state, target, more in (
                ('found', 4, {}), ('wanted', 5, {'size': 70, 'host': 'h3'}),
                ('declined', 6, {'size': 900, 'reason': 'too large'})):
            session.add(models.PatchPair(
                base=database.content(1), target=database.content(target),
                state=state, **more))

    def pairs(self, query=''):
        return self.get(f'/v1/patch-pairs{query}')['patch_pairs']

    def test_list(self):
        made, found, wanted, declined = self.pairs()
        self.assertEqual(('made', 5), (made['state'], made['size']))
        self.assertEqual(('found', None), (found['state'], found['size']))
        self.assertEqual(('wanted', 'h3'), (wanted['state'], wanted['host']))
        self.assertEqual('too large', declined['reason'])

    def test_some(self):
        for query, states in (
                ('base=t1&state=declined', ['declined']),
                ('target=t5', ['wanted']), ('base=t5', []),
                (f'target={database.content(4)}', ['found'])):
            self.assertEqual(states, [
                pair['state'] for pair in self.pairs(f'?{query}')])
        self.refused(400, 'GET', '/v1/patch-pairs?state=other')

    def test_in_parts(self):
        whole = self.pairs()
        first = self.get('/v1/patch-pairs?limit=3')
        self.assertEqual(3, len(first['patch_pairs']))
        self.assertIn('patch_pairs_links', first)
        marker = first['patch_pairs'][-1]['id']
        rest = self.get(f'/v1/patch-pairs?limit=3&marker={marker}')
        self.assertEqual(whole, first['patch_pairs'] + rest['patch_pairs'])
        self.assertNotIn('patch_pairs_links', rest)
        self.refused(400, 'GET', '/v1/patch-pairs?marker=unknown')
