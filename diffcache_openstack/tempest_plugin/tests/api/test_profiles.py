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
"""Profiles of images that boot lazily: who sees and changes what."""

from tempest.lib.common.utils import data_utils
from tempest.lib import decorators
from tempest.lib import exceptions

from diffcache_openstack.tempest_plugin.tests.api import base

PROFILES = 'profiles'
CHUNK = 256 << 10
ROWS = [[0, 2, 1500.0]]


class TestProfiles(base.ApiTest):

    def public_image(self):
        """Return the ID of a public image; skip if there is none."""
        found = self.admin.fetch('images', status='active',
                                 visibility='public')['images']
        if not found:
            raise self.skipException('the catalogue has no public image')
        return found[0]['id']

    @staticmethod
    def document(image, **changed):
        """Return a profile to import, with a label of its own."""
        return {'profile': {
            'image_id': image, 'chunk': CHUNK, 'rows': ROWS,
            'label': data_utils.rand_name('diffcache'), **changed}}

    @decorators.idempotent_id('9b6c1e42-70d5-4a8f-b3e1-2f7d05c9a802')
    def test_import_show_list_delete(self):
        wanted = self.document(self.public_image())
        made = self.admin.send(PROFILES, wanted, 201)['profile']
        path = f'{PROFILES}/{made["id"]}'
        self.assertEqual(ROWS, made['rows'])
        self.assertIsNone(made['project_id'])
        self.assertEqual(made, self.reader.fetch(path)['profile'])
        listed = self.member.fetch(
            PROFILES, image_id=wanted['profile']['image_id'],
            label=wanted['profile']['label'])['profiles']
        self.assertEqual([made['id']], [each['id'] for each in listed])
        self.assert_paged(PROFILES, 'profiles')
        for client in (self.member, self.reader):
            self.assertRaises(exceptions.Forbidden, client.remove, path)
        self.admin.remove(path)
        self.assertRaises(exceptions.NotFound, self.admin.fetch, path)

    @decorators.idempotent_id('9b6c1e42-70d5-4a8f-b3e1-2f7d05c9a803')
    def test_members_import_none_of_public_images(self):
        wanted = self.document(self.public_image())
        for client in (self.member, self.reader):
            self.assertRaises(exceptions.Forbidden, client.send, PROFILES,
                              wanted)

    @decorators.idempotent_id('9b6c1e42-70d5-4a8f-b3e1-2f7d05c9a804')
    def test_what_does_not_exist(self):
        path = f'{PROFILES}/{base.UNKNOWN}'
        for client in (self.admin, self.member):
            self.assertRaises(exceptions.NotFound, client.fetch, path)
            self.assertRaises(exceptions.NotFound, client.remove, path)
            self.assertRaises(exceptions.NotFound, client.send, PROFILES,
                              self.document('none'))

    @decorators.idempotent_id('9b6c1e42-70d5-4a8f-b3e1-2f7d05c9a805')
    def test_malformed(self):
        image = self.public_image()
        for changed in ({'chunk': 4096}, {'rows': [[0, 1]]},
                        {'rows': [[-1, 1, 1.0]]}, {'colour': 'red'},
                        # Beyond the end of any image.
                        {'rows': [[2 ** 40, 1, 1.0]]}):
            self.assertRaises(exceptions.BadRequest, self.admin.send,
                              PROFILES, self.document(image, **changed))
