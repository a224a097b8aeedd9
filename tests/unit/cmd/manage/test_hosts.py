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
from tests.unit.cmd.manage import base


class TestHosts(base.FilledTest):

    def test_hosts(self):
        rows = self.run_words('host', 'list', '-f', 'json').json
        self.assertEqual([('h1', 'up', 1, 1_500_000), ('hub', 'up', 0, 0)],
                         [(r['Host'], r['State'], r['Objects'], r['Held'])
                          for r in rows])
        rows = self.run_words('host', 'list', '--site', 'centre', '-f',
                              'json').json
        self.assertEqual(['hub'], [r['Host'] for r in rows])

    def test_sizes_have_units_in_tables_only(self):
        self.assertIn('1.5 MB', self.run_words('host', 'list').out)
        self.assertIn('1500000',
                      self.run_words('host', 'list', '-f', 'csv').out)

    def test_removal(self):
        self.assertEqual(0, self.run_words('host', 'delete', 'h1').code)
        self.assert_fails(1, 'h1', 'host', 'delete', 'h1')
