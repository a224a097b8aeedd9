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

import datetime

from diffcache_openstack import objects
from diffcache_openstack.objects import fingerprints
from tests import base
from tests.unit.db import database

# Another value of each field of an image.
OTHER = {
    'id': 't2', 'name': 'other', 'content_id': database.content(2),
    'size': 200, 'data_size': 60, 'disk_format': 'qcow2', 'file_size': 7,
    'os_hash_algo': 'sha512', 'os_hash_value': 'ab', 'owner': 'p',
    'visibility': 'private', 'status': objects.DELETED, 'form_id': 'f' * 64,
    'form_size': 5, 'family': 't0', 'members': ['p'], 'record': 'signed',
    'compressed_size': 20}


def fingerprint(**values):
    return fingerprints.of_image(database.image(1, **values))


class TestFingerprints(base.TestCase):

    def test_each_field_counts_in_one_hash(self):
        self.assertEqual({'created_at'},
                         set(objects.Image.fields) - set(OTHER))
        known = fingerprint()
        for name, value in OTHER.items():
            found = fingerprint(**{name: value})
            of_record = name in fingerprints.OF_RECORD
            self.assertEqual(
                (of_record, not of_record),
                (known.common == found.common, known.record == found.record),
                name)

    def test_what_is_stored_alike_is_alike(self):
        when = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
        self.assertEqual(fingerprint(), fingerprint(created_at=when))
        self.assertEqual(fingerprint(), fingerprint(compressed_size=0))
        self.assertEqual(fingerprint(members=['a', 'b']),
                         fingerprint(members=['b', 'a', 'b']))
        self.assertEqual(fingerprint(compressed_size=50),
                         fingerprint(compressed_size=51))
