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
