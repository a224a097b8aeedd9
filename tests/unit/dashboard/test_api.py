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
"""Calls of the service by pages, whatever URL the catalogue has."""

from tests.unit.dashboard import needs

from django import test
from django import urls

INDEX = urls.reverse('horizon:admin:image_cache_sites:index')
SITE = {'name': 'edge', 'map_generation': 7, 'plan_generation': 4,
        'planned_at': '2026-11-23T18:00:00Z',
        'hosts': {'count': 3, 'alive': 2, 'capacity': 10 ** 12}}


class CatalogueWithoutVersionTest(needs.PageTest):

    def test_calls_have_the_version_of_the_discovery(self):
        self.answer('/sites', needs.listing('sites', SITE))
        response = self.client.get(INDEX)
        self.assertEqual([], self.messages(response))
        self.assertContains(response, 'edge')


class CatalogueWithVersionTest(CatalogueWithoutVersionTest):

    url = needs.ENDPOINT


class TimeoutTest(needs.PageTest):

    def setUp(self):
        super().setUp()
        self.answer('/sites', needs.listing('sites', SITE))

    def test_no_call_waits_for_ever(self):
        self.client.get(INDEX)
        self.assertEqual({120}, self.wire.timeouts)

    def test_timeout_of_the_settings(self):
        with test.override_settings(IMAGE_CACHE_API_TIMEOUT=5):
            self.client.get(INDEX)
        self.assertEqual({5}, self.wire.timeouts)

    def test_a_service_that_does_not_answer_in_time(self):
        self.answer('/sites', needs.requests.ReadTimeout('slow'))
        response = self.client.get(INDEX)
        self.assertEqual(['Could not list sites: The API of the image cache'
                          ' did not answer in time.'],
                         self.messages(response))
        self.assertEqual(200, response.status_code)


class NamesTest(needs.PageTest):

    def page(self, query):
        """Return a page as the service does."""
        names = [f'i{number:03}' for number in range(250)]
        limit = int(query.get('limit', '100'))
        left = [name for name in names if name > query.get('marker', '')]
        found = {'images': [
            {'id': name, 'name': f'name of {name}', 'content_id': 64 * 'c',
             'family': 'i249'} for name in left[:limit]]}
        if len(left) > limit:
            found['images_links'] = [{
                'rel': 'next', 'href': f'{needs.ENDPOINT}/images?limit='
                f'{limit}&marker={left[limit - 1]}'}]
        return found

    def test_names_of_many_images_take_one_call(self):
        self.answer('/images', self.page)
        response = self.client.get(
            urls.reverse('horizon:admin:image_cache_images:index'))
        self.assertContains(response, 'name of i249')
        self.assertEqual([('GET', '/images', {'limit': '21'}),
                          ('GET', '/images', {'limit': '1000'})],
                         self.wire.sent)
