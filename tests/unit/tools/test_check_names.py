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
"""tools/check_names.py finds names that modules do not have."""

from tests import base
from tests.unit.tools import loading

check_names = loading.load('check_names')

NAME = 'tests/a.py:1: error: Module has no attribute "x"  [attr-defined]'
MODULE = ('tests/a.py:2: error: Module "diffcache_openstack.nova" has no'
          ' attribute "y"  [attr-defined]')
OTHER = 'tests/a.py:3: error: "Double" has no attribute "z"  [attr-defined]'


class TestProblems(base.TestCase):

    def test_names_and_modules_that_are_missing(self):
        self.assertEqual([NAME, MODULE], list(check_names.problems(
            '\n'.join((NAME, OTHER, MODULE)) + '\n')))
