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
from unittest import mock

from diffcache_openstack.conductor import residents
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.lazy import profiles as profile_table
from diffcache_openstack.db import models
from diffcache_openstack.objects import versioned
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.rpc import conductor_lazy_api
from tests.unit.api import base
from tests.unit.db import database

PATH = '/v1/profiles'
ROWS = [[0, 4, 100.0], [9, 2, 250.5]]


class ProfilesTest(base.ApiTest):
    """A public image (t6), and a private one of the project (t5)."""

    def setUp(self):
        super().setUp()
        for number, values in (
                (5, {'owner': base.PROJECT, 'visibility': 'private'}),
                (6, {'owner': base.OTHER_PROJECT})):
            self.database.write(catalogue.put_image, database.image(
                number, size=10 * profiles.CHUNK, **values),
                versioned.now())

    def wanted(self, image='t5', rows=ROWS, **values):
        return {'profile': {'image_id': image, 'chunk': profiles.CHUNK,
                            'rows': rows, **values}}

    def create(self, user='member', **values):
        status, body, _headers = self.call(
            'POST', PATH, self.wanted(**values), user=user)
        self.assertEqual(201, status, body)
        return body['profile']

    def ids(self, query='', **arguments):
        return [each['id'] for each in self.get(
            PATH + query, **arguments)['profiles']]


class TestProfiles(ProfilesTest):

    def test_import_and_show(self):
        found = self.create(label='m1.small')
        self.assertEqual(found, self.get(
            f'{PATH}/{found["id"]}', user='reader')['profile'])
        self.assertEqual(
            ('t5', base.PROJECT, 'm1.small', 4, 2, profiles.CHUNK, ROWS),
            tuple(found[name] for name in (
                'image_id', 'project_id', 'label', 'instances', 'chunks',
                'chunk', 'rows')))
        [listed] = self.get(PATH)['profiles']
        self.assertNotIn('rows', listed)

    def test_another_import_replaces_the_first(self):
        first = self.create()
        second = self.create(rows=[[3, 1, 7.0]])
        self.assertEqual((first['id'], [[3, 1, 7.0]]),
                         (second['id'], second['rows']))
        self.assertGreater(second['generation'], first['generation'])

    def test_hosts_boot_with_what_was_imported(self):
        self.create()
        with mock.patch.object(residents.Residents, 'check'):
            found = conductor_lazy_api.LazyAPI(
                self.bus, self.conf).exchange_reads(
                    self.ctxt, 'h1', conductor_lazy_api.Reads(
                        't5', [base.PROJECT], 'm1.tiny', 1, 0, {}), None)
        self.assertEqual({0: (4, 400), 9: (2, 501)}, found.rows)

    def test_public_images_profiles_are_of_all_projects(self):
        error = self.refused(403, 'POST', PATH, self.wanted('t6'),
                             user='member')
        self.assertIn('profiles:import', error['detail'])
        found = self.create('admin', image='t6')
        self.assertIsNone(found['project_id'])
        for user in ('member', 'reader', 'other'):
            self.assertEqual([found['id']], self.ids(user=user))
            self.refused(403, 'DELETE', f'{PATH}/{found["id"]}', user=user)
        self.database.write(catalogue.put_image, database.image(
            6, size=10 * profiles.CHUNK, owner=base.OTHER_PROJECT,
            visibility='private'), versioned.now())
        # What is public no more is seen by operators.
        self.assertEqual([], self.ids(user='member'))
        self.refused(404, 'GET', f'{PATH}/{found["id"]}', user='member')
        self.assertEqual([found['id']], self.ids())

    def test_public_images_profiles_of_a_project(self):
        self.conf.set_override('share_profiles', 'project', 'lazy')
        found = self.create(image='t6')
        self.assertEqual(base.PROJECT, found['project_id'])
        self.assertEqual([], self.ids(user='other'))

    def test_filters_and_parts(self):
        first, second = sorted(
            (self.create(), self.create('admin', image='t6', label='a')),
            key=lambda each: each['id'])
        for query, found in (
                ('', [first, second]), ('?limit=1', [first]),
                (f'?marker={first["id"]}', [second]),
                ('?image_id=t1', [])):
            self.assertEqual([each['id'] for each in found],
                             self.ids(query), query)
        for query, image in (('?image_id=t5', 't5'), ('?label=a', 't6'),
                             (f'?project_id={base.PROJECT}', 't5')):
            [found] = self.get(PATH + query)['profiles']
            self.assertEqual(image, found['image_id'], query)

    def test_delete(self):
        found = self.create()
        path = f'{PATH}/{found["id"]}'
        self.refused(403, 'DELETE', path, user='reader')
        self.assertEqual(204, self.call('DELETE', path, user='member')[0])
        self.refused(404, 'DELETE', path, user='member')
        self.assertEqual([], self.ids())


class TestCarried(ProfilesTest):
    """A profile that was carried to the public image."""

    def setUp(self):
        super().setUp()
        self.add_source('public')
        self.path = f'{PATH}/{base.unknown_id()}'
        self.database.write(lambda session: session.add(models.Profile(
            id=self.path.rpartition('/')[-1], image_id='t6',
            project_id=profile_table.SHARED, label='m1.small', generation=1,
            instances=0, chunks=0, rows=profiles.packed({}),
            created_at=versioned.now(), updated_at=versioned.now(),
            carried_from='t4', carried_instances=4, carried_chunks=2,
            carried_rows=profiles.packed({0: (4, 400), 9: (2, 501)}))))

    def test_it_names_the_image_that_it_is_from(self):
        for user in ('admin', 'reader', 'other'):
            [listed] = self.get(PATH, user=user)['profiles']
            shown = self.get(self.path, user=user)['profile']
            self.assertEqual(ROWS, shown['rows'])
            for found in (listed, shown):
                self.assertEqual(('t4', 0, 2), (
                    found['carried_from'], found['instances'],
                    found['chunks']))

    def add_source(self, visibility):
        """Have the image that the profile is from seen by some."""
        self.database.write(catalogue.put_image, database.image(
            4, size=10 * profiles.CHUNK, owner=base.PROJECT,
            visibility=visibility), versioned.now())

    def test_it_names_a_private_image_to_those_alone_who_see_it(self):
        self.add_source('private')
        for user, source in (('admin', 't4'), ('reader', 't4'),
                             ('other', None)):
            [listed] = self.get(PATH, user=user)['profiles']
            shown = self.get(self.path, user=user)['profile']
            self.assertEqual((source, source), (
                listed['carried_from'], shown['carried_from']))

    def test_others_are_not_carried(self):
        self.assertIsNone(self.create()['carried_from'])

    def test_rights(self):
        for method in ('GET', 'DELETE'):
            self.assertEqual(401, self.call(method, self.path, user=None)[0])
        for user in ('member', 'other'):
            self.refused(403, 'DELETE', self.path, user=user)
        self.assertEqual(204, self.call('DELETE', self.path)[0])
        self.assertEqual([], self.ids())


class TestRefusals(ProfilesTest):

    def test_rows_that_cannot_be_of_the_image(self):
        for rows in ([[10, 1, 0]], [[0, 0, 0]], [[0, 1, -1]], [[0, 1]],
                     [[0, 1, 1], [0, 1, 1]], [[0, 10 ** 7, 1]],
                     [[0, 1, 10 ** 12]], [[0.5, 1, 1]], 5):
            self.refused(400, 'POST', PATH, self.wanted(rows=rows),
                         user='member')
        self.assertEqual([], self.ids())

    def test_rows_of_numbers_that_no_reads_lead_to(self):
        """The sums of some would be no number, which was an error 500."""
        for row, field in (([2 ** 50, 1, 1], 0), ([0, 10 ** 6 + 1, 1], 1),
                           ([0, 10 ** 4000, 1], 1), ([0, 1, 4e9], 2),
                           ([0, 10 ** 6, 1e308], 2)):
            error = self.refused(400, 'POST', PATH, self.wanted(rows=[row]),
                                 user='member')
            self.assertIn(f'profile/rows/0/{field}', error['detail'])

    def test_other_values(self):
        for values in ({'label': 'a/b'}, {'chunk': 4096}, {'colour': 1}):
            self.refused(400, 'POST', PATH, self.wanted(**values),
                         user='member')

    def test_images_that_are_not_seen(self):
        self.refused(404, 'POST', PATH, self.wanted('t9'), user='member')
        self.refused(404, 'POST', PATH, self.wanted('t5'), user='other')

    def test_too_many_labels(self):
        for number in range(32):
            self.create(label=str(number))
        self.refused(409, 'POST', PATH, self.wanted(label='x'),
                     user='member')

    def test_others_profiles_are_unknown(self):
        path = f'{PATH}/{self.create()["id"]}'
        for method in ('GET', 'DELETE'):
            self.refused(404, method, path, user='other')
        self.refused(404, 'GET', f'{PATH}/{base.unknown_id()}')
