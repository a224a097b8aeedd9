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


class TestWithoutHosts(base.ManageTest):

    def test_a_missing_database_is_not_created(self):
        path = self.directory / 'db.sqlite'
        self.assert_fails(1, f'There is no database {path}; set [database]',
                          'status')
        self.assertFalse(path.exists())

    def test_no_host_has_registered(self):
        self.assertEqual(0, self.run_words('db', 'sync').code)
        result = self.run_words('status')
        self.assertEqual(0, result.code)
        self.assertIn('No host has registered yet: start diffcache-agent',
                      result.err)


class TestStatus(base.FilledTest):

    def test_each_site(self):
        rows = self.run_words('status', '-f', 'json').json
        self.assertEqual(
            [('centre', 1, 0, None, 2, 1), ('edge', 1, 0, None, 2, 1)],
            [(r['Site'], r['Hosts up'], r['Hosts down'], r['Plan'],
              r['Images'], r['Patches']) for r in rows])
