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


class TestRequests(base.FilledTest):

    def test_list(self):
        rows = self.run_words('request', 'list', '-f', 'json').json
        self.assertEqual([('h1', 't1', 'build')],
                         [(r['Host'], r['Image'], r['Way']) for r in rows])

    def test_a_limit_below_1_is_refused(self):
        result = self.run_words('request', 'list', '--limit', '-3')
        self.assertEqual(2, result.code)
        self.assertIn("'-3' is not a whole number of at least 1", result.err)
