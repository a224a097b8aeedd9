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
"""Images that stand for versions."""

import hashlib

from diffcache_openstack.common import stand_ins
from tests import base

VERSION = '322bde76-949e-4c77-a812-310ab1466fc5'


class StandInsTest(base.TestCase):

    def version_of(self, content, algorithm='sha512', version=VERSION):
        return stand_ins.version_of(
            {stand_ins.PROPERTY: version}, algorithm,
            hashlib.sha512(content).hexdigest())

    def test_one_names_its_version(self):
        self.assertEqual(VERSION, self.version_of(stand_ins.content(VERSION)))

    def test_a_snapshot_with_the_same_property_is_none(self):
        # Regression: a server from it would have had the version's disk.
        self.assertIsNone(self.version_of(b'a disk'))

    def test_the_file_of_another_one_is_none(self):
        self.assertIsNone(self.version_of(stand_ins.content('another')))

    def test_without_property_or_hash(self):
        content = stand_ins.content(VERSION)
        self.assertIsNone(self.version_of(content, version=None))
        self.assertIsNone(self.version_of(content, 'unknown'))
        self.assertIsNone(self.version_of(content, None))
        self.assertIsNone(stand_ins.version_of(
            {stand_ins.PROPERTY: VERSION}, 'sha512', None))
