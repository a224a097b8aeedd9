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
"""What Horizon's own page of an image shows of it in the cache."""

import unittest.mock

from tests.unit.dashboard import needs

from django import urls
from openstack_dashboard import api

ADDRESS = urls.reverse('horizon:project:image_cache_project_images:image',
                       args=['i1'])
CHUNK = 256 << 10
IMAGE = {'id': 'i1', 'name': 'web', 'content_id': 'c' * 64,
         'size': 10 * 10 ** 9, 'data_size': 2 * 10 ** 9,
         'compressed_size': 10 ** 9, 'status': 'active', 'host_count': 3}
PROFILE = {'id': 'p1', 'image_id': 'i1', 'project_id': None, 'label': 'tiny',
           'generation': 1, 'instances': 4, 'chunks': 1,
           'updated_at': '2026-11-23T18:00:00Z'}


class ImageTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.answer('/images/i1', {'image': IMAGE})
        self.answer('/images/i1/locations', {'locations': [
            {'host': 'c1', 'site': 'edge', 'bytes': 2 * 10 ** 9,
             'held': True}]})
        self.answer('/plans', needs.listing('plans'))
        self.answer('/images/i1/lookups', needs.listing('lookups', {
            'host': 'c1', 'site': 'edge', 'lazy_boot': None, 'ways': [{
                'way': 'build', 'seconds': 1.5, 'wan_bytes': 0,
                'lan_bytes': 7 * 10 ** 6, 'detail': 'base'}]}))
        self.answer('/profiles', needs.listing('profiles', {
            **PROFILE, 'id': 'p0', 'instances': 1}, PROFILE))
        self.answer('/profiles/p1', {'profile': {
            **PROFILE, 'chunk': CHUNK, 'rows': [[0, 4, 1e6]]}})

    def paths(self):
        """Paths of the calls."""
        return {path for _method, path, _query in self.wire.sent}

    def test_an_operator_sees_where_it_is_and_how_long_a_start_takes(self):
        self.with_rules()
        self.act_as('admin')
        response = self.client.get(ADDRESS)
        for text in ('1.0 GB', 'Cache of the host', '1.5 s',
                     'No current plan places it here.',
                     '/admin/image_cache_hosts/c1/', 'image-cache-heat-map'):
            self.assertContains(response, text)

    def test_a_reader_sees_the_image_and_its_profile_alone(self):
        self.with_rules()
        self.act_as('reader')
        self.answer('/images/i1', {'image': {
            **IMAGE, 'host_count': None}})
        response = self.client.get(ADDRESS)
        for text in '1.0 GB', 'image-cache-heat-map':
            self.assertContains(response, text)
        for text in 'Time to Start', 'Hosts', 'c1':
            self.assertNotContains(response, f'>{text}<')
        self.assertEqual({'/images/i1', '/profiles', '/profiles/p1'},
                         self.paths() - {'/images'})

    def test_the_image_that_the_profile_was_carried_from(self):
        self.answer('/profiles/p1', {'profile': {
            **PROFILE, 'carried_from': 'i0', 'chunk': CHUNK,
            'rows': [[0, 4, 1e6]]}})
        address = urls.reverse('horizon:project:images:images:detail',
                               args=['i0'])
        self.assertContains(self.client.get(ADDRESS),
                            f'<a href="{address}">i0</a>')

    def test_an_image_that_the_cache_does_not_know(self):
        self.refuse('/images/i1', 404, 'No image.')
        response = self.client.get(ADDRESS)
        self.assertContains(response, 'does not know this image')
        self.assertEqual([], self.messages(response))

    def test_a_refused_call_is_a_message_in_the_part(self):
        self.refuse('/images/i1', 500, 'Broken.')
        self.assertContains(self.client.get(ADDRESS),
                            'Could not show the image: Broken.')

    def test_texts_are_no_expressions_of_angular(self):
        self.assertContains(self.client.get(ADDRESS), 'ng-non-bindable')

    def test_the_page_that_django_makes_has_a_tab(self):
        image = self.images.first()
        self.answer(f'/images/{image.id}', {'image': {
            **IMAGE, 'id': image.id}})
        self.answer(f'/images/{image.id}/locations', {'locations': []})
        self.answer(f'/images/{image.id}/lookups',
                    needs.listing('lookups'))
        with unittest.mock.patch.object(api.glance, 'image_get',
                                        return_value=image):
            response = self.client.get(
                urls.reverse('horizon:project:images:images:detail',
                             args=[image.id]),
                {'tab': 'image_details__image_cache'})
        self.assertContains(response, '1.0 GB')
