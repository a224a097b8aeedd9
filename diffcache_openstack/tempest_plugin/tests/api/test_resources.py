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
"""Reading of resources."""

from tempest.lib import decorators
from tempest.lib import exceptions

from diffcache_openstack.tempest_plugin.tests.api import base


class TestHosts(base.ApiTest):

    @decorators.idempotent_id('8f0e2f14-6c7a-4c55-8f0d-5d1b1f3a2e01')
    def test_list_show_objects(self):
        host = self.compute_host()
        shown = self.admin.fetch(f'hosts/{host["name"]}')['host']
        self.assertEqual(host['site'], shown['site'])
        self.assertGreater(shown['links']['peer'], 0)
        found = self.admin.fetch(f'hosts/{host["name"]}/objects')['objects']
        self.assertLessEqual(len(found), max(1, shown['held']['objects']))
        self.assert_paged('hosts', 'hosts')


class TestImages(base.ApiTest):

    @decorators.idempotent_id('8f0e2f14-6c7a-4c55-8f0d-5d1b1f3a2e02')
    def test_list_show_locations(self):
        image = self.some_image()
        path = f'images/{image["id"]}'
        self.assertEqual(image['content_id'],
                         self.admin.fetch(path)['image']['content_id'])
        places = self.admin.fetch(f'{path}/locations')['locations']
        self.assertEqual(image['host_count'], len(places))
        self.assertRaises(exceptions.Forbidden, self.member.fetch,
                          f'{path}/locations')
        self.assert_paged('images', 'images')

    @decorators.idempotent_id('8f0e2f14-6c7a-4c55-8f0d-5d1b1f3a2e03')
    def test_projects_see_no_others_private_ones(self):
        private = self.admin.fetch('images',
                                   visibility='private')['images']
        own = self.os_primary.credentials.project_id
        hidden = {entry['id'] for entry in private if entry['owner'] != own}
        seen = {entry['id'] for entry in
                self.member.fetch('images')['images']}
        self.assertFalse(hidden & seen)
        for image_id in sorted(hidden)[:1]:
            self.assertRaises(exceptions.NotFound, self.member.fetch,
                              f'images/{image_id}')

    @decorators.idempotent_id('8f0e2f14-6c7a-4c55-8f0d-5d1b1f3a2e04')
    def test_patches(self):
        for patch in self.admin.fetch('patches', limit=1)['patches']:
            shown = self.admin.fetch(f'patches/{patch["id"]}')['patch']
            self.assertEqual(patch['target'], shown['target'])


class TestLookups(base.ApiTest):

    @decorators.idempotent_id('8f0e2f14-6c7a-4c55-8f0d-5d1b1f3a2e05')
    def test_cheapest_first(self):
        host, image = self.compute_host(), self.some_image()
        found = self.admin.fetch('lookups', host=host['name'],
                                 image_id=image['id'])['lookup']
        seconds = [way['seconds'] for way in found['ways']]
        self.assertTrue(seconds)
        self.assertEqual(sorted(seconds), seconds)
        self.assertRaises(
            exceptions.NotFound, self.admin.fetch, 'lookups',
            host=host['name'], image_id='none')
        self.assertRaises(exceptions.BadRequest, self.admin.fetch, 'lookups')


class TestSites(base.ApiTest):

    @decorators.idempotent_id('8f0e2f14-6c7a-4c55-8f0d-5d1b1f3a2e06')
    def test_report_and_forecast(self):
        site = self.compute_host()['site']
        report = self.admin.fetch(f'sites/{site}/report', days=1)['report']
        self.assertGreater(report['site']['hosts']['alive'], 0)
        self.some_image()
        forecast = self.admin.fetch(f'sites/{site}/forecast', limit=1)
        self.assertLessEqual(len(forecast['forecast']), 1)
        self.assert_paged('sites', 'sites')

    @decorators.idempotent_id('8f0e2f14-6c7a-4c55-8f0d-5d1b1f3a2e07')
    def test_requests(self):
        for query in ({'failed': 'true'}, {'way': 'build'},
                      {'since': '2026-01-01T00:00:00Z'}):
            self.admin.fetch('requests', limit=2, **query)
        self.assertRaises(exceptions.BadRequest, self.admin.fetch,
                          'requests', since='yesterday')
