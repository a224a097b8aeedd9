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


class TestManage(base.ManageTest):

    def test_wrong_usage(self):
        self.assertEqual(2, self.run_words('host', 'delete').code)
        self.assertEqual(2, self.run_words('cow', 'milk').code)

    def test_missing_configuration(self):
        self.config.unlink()
        self.assert_fails(1, 'x.conf', 'db', 'sync')

    def test_no_command_is_wrong_usage(self):
        result = self.assert_fails(2, 'no command given')
        self.assertIn('usage: diffcache-manage', result.err)

    def test_help_reads_no_configuration(self):
        self.config.unlink()
        for words in (['--help'], ['host', 'list', '--help'],
                      ['help', 'db', 'sync']):
            result = self.run_words(*words)
            self.assertIn('usage: diffcache-manage', result.out)
            self.assertEqual('', result.err)
