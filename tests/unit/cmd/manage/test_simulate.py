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

from diffcache_openstack.planning import replays
from tests.unit.cmd.manage import base
from tests.unit.planning import test_histories


class TestSimulate(base.ManageTest):

    def test_each_site_and_way(self):
        path = self.directory / 'history.json'
        path.write_text(json.dumps(test_histories.document()))
        rows = self.run_words('simulate', str(path), '-f', 'json').json
        self.assertEqual(
            [(site, way) for site in ('s', 'all sites')
             for way in replays.WAYS],
            [(row['Site'], row['Way']) for row in rows])
        self.assertEqual([300, 300, 300], [
            row['WAN Bytes'] for row in rows if row['Way'] != 'patches'][:3])
        self.assertEqual({(2, 2)}, {
            (row['Servers'], row['Needs']) for row in rows})

    def test_a_file_that_is_no_history(self):
        path = self.directory / 'history.json'
        path.write_text('{}')
        result = self.run_words('simulate', str(path))
        self.assertEqual(1, result.code)
        self.assertIn("'images' is a required property", result.err)
