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
import json
import types

from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import signatures
from tests import base
from tests import host_key_files


def image(**changes):
    return types.SimpleNamespace(**{
        'id': 't', 'content_id': 'a' * 64, 'size': 10, 'disk_format': 'qcow2',
        'file_size': 5, 'os_hash_algo': 'sha512', 'os_hash_value': 'b' * 128,
        'form_id': 'c' * 64, 'form_size': 3, 'record': None, **changes})


class TestRecords(base.TestCase):

    def setUp(self):
        super().setUp()
        self.keys = host_key_files.Keys(self.directory / 'keys')
        self.key = self.keys.key('repository', 'hub')
        self.record = image_records.sign(self.key, image())

    def verifier(self, **options):
        return image_records.Verifier(signatures.Security(
            authority=self.keys.authority(), **options))

    def test_same_image_has_the_same_record(self):
        self.assertEqual(self.record, image_records.sign(self.key, image()))

    def test_what_glance_changes_is_not_covered(self):
        verifier = self.verifier(required=True)
        for _again in range(2):
            verifier.check(image(record=self.record, status='deactivated'))

    def test_all_else_is(self):
        verifier = self.verifier(required=True)
        verifier.check(image(record=self.record))
        for name in image_records.COVERED:
            error = self.assertRaises(
                exceptions.Forbidden, verifier.check,
                image(record=self.record, **{name: 'd' * 64}))
            self.assertIn('not valid', str(error))

    def test_only_a_repository_vouches(self):
        for role in ('compute', 'controller'):
            error = self.assertRaises(
                exceptions.Forbidden, self.verifier().check,
                image(record=image_records.sign(
                    self.keys.key(role, 'x'), image())))
            self.assertIn('only a repository', str(error))

    def test_junk(self):
        for junk in ('', '[', '[]', '{}', 'null', '[' * 100_000,
                     json.dumps({'certificate': 1, 'signature': []})):
            self.assertRaises(exceptions.Forbidden, self.verifier().check,
                              image(record=junk))

    def test_without_a_record(self):
        self.verifier(required=False).check(image())
        self.assertRaises(exceptions.Forbidden,
                          self.verifier(required=True).check, image())
        image_records.Verifier(signatures.Security(required=True)).check(
            image())
