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
"""Images of the catalogue, by commands over the API itself."""


from diffcache_openstack.client.osc.image import cached_images
from diffcache_openstack.db import catalogue
from diffcache_openstack.objects import versioned
from tests.unit.client import cloud
from tests.unit.db import database


class TestCachedImages(cloud.CommandTest):

    def test_list_and_show(self):
        rows = self.listed(cached_images.ListImages, '--family', 't1')
        self.assertEqual(['t2'], [row['ID'] for row in rows])
        shown = self.shown(cached_images.ShowImage, 't1')
        self.assertEqual((1, database.content(1)),
                         (shown['members'], shown['content']))
        [row] = self.listed(cached_images.ListLocations, 't1')
        self.assertEqual('h1', row['Host'])

    def test_lookups_of_all_hosts(self):
        rows = self.listed(cached_images.ListLookups, 't2', '--site', 'edge')
        self.assertEqual([('h1', 'build'), ('h2', 'build')],
                         [(row['Host'], row['Way']) for row in rows])
        [row] = self.listed(cached_images.ListLookups, 't1', '--limit', '1')
        self.assertEqual((0, 0, None), (row['WAN'], row['LAN'],
                                        row['Lazy Boot Waits (s)']))

    def test_image_that_glance_has_no_more(self):
        command = self.command(cached_images.ShowImage)
        missing = '00000000-0000-4000-8000-000000000000'
        self.app.client_manager.sdk_connection.image = None
        self.assertEqual(missing, command.known_image_id(missing))

    def test_patches(self):
        [row] = self.listed(cached_images.ListPatches, '--base', 't1')
        self.assertEqual(database.patch(1, 2).id, row['ID'])

    def test_patches_of_several_images(self):
        for number in (1, 3):
            self.database.write(catalogue.put_patch,
                                database.patch(2, number), versioned.now())
        for words, targets in (
                (('--target', 't1', '--target', 't2'), (1, 2)),
                (('--target', 't1', '--target', 't2', '--base', 't1'), (2,)),
                (('--base', 't3', '--base', 't2', '--limit', '1'), (1,))):
            self.assertEqual(
                {database.content(number) for number in targets},
                {row['Target'] for row in self.listed(
                    cached_images.ListPatches, *words)})

    def test_pairs(self):
        [row] = self.listed(cached_images.ListPairs, '--base', 't1', '--long')
        self.assertEqual((database.content(2), 'made', 0),
                         (row['Target'], row['State'], row['Attempts']))
        self.assertEqual([], self.listed(cached_images.ListPairs, '--state',
                                         'declined'))
