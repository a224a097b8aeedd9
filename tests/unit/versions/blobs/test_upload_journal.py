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
"""What a store was given is known again, whatever became of the lists."""

from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.blobs import upload_journal
from tests import base


class UploadJournalTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.store = file.FileStore(self.directory / 'store')
        self.staging = self.directory / 'staging'

    def put(self):
        path = self.write_file('staging/pack', b'data')
        upload_journal.UploadJournal(
            self.store, self.staging).upload([('pack-1', path)])

    def return_files(self, *needed):
        upload_journal.UploadJournal(
            self.store, self.staging).return_files(needed)

    def test_what_does_not_count_is_taken_back(self):
        self.put()
        self.return_files()
        self.assertEqual(b'data', (self.staging / 'pack').read_bytes())
        self.assertFalse(self.store.exists('pack-1'))

    def test_what_counts_stays(self):
        self.put()
        self.return_files('pack-1')
        self.assertEqual(b'data', self.store.read('pack-1'))

    def test_a_list_that_a_power_cut_left_empty_or_torn_is_none(self):
        for content in (b'', b'{"pack-1": "pa', b'\0' * 40):
            self.put()
            (self.staging / 'puts').write_bytes(content)
            self.return_files()
            self.assertEqual(b'data', self.store.read('pack-1'))
            self.store.delete('pack-1')
