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
"""tools/check_crates.py finds crates that need a newer Rust."""

from tests import base
from tests.unit.tools import loading

check = loading.load('check_crates')


class TestTooNew(base.TestCase):

    def found(self, needed, is_used=True):
        return check.too_new({
            'resolve': {'nodes': [{'id': 'a 1.2.0'}] if is_used else []},
            'packages': [{'id': 'a 1.2.0', 'name': 'a', 'version': '1.2.0',
                          'rust_version': needed}]}, '1.85')

    def test_a_crate_that_needs_a_newer_one(self):
        [line] = self.found('1.88')
        self.assertIn('a 1.2.0 needs Rust 1.88', line)
        self.assertEqual(1, len(self.found('2.0.1')))

    def test_crates_that_do(self):
        for needed in ('1.85', '1.85.1', '1.9', None):
            self.assertEqual([], self.found(needed))

    def test_crates_of_other_platforms(self):
        self.assertEqual([], self.found('1.88', is_used=False))
