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
"""The rules that pages name are rules of the API.

Horizon takes a rule that it does not know for one that allows everything.
"""

import pathlib
import re

from tests.unit.dashboard import needs

from diffcache_openstack.api import policies
from diffcache_openstack import dashboard

_RULE = re.compile(r"'(diffcache:[\w:]+)'")


class RulesTest(needs.PageTest):

    def test_rules_exist(self):
        known = {rule.name for rule in policies.list_rules()}
        pages = pathlib.Path(dashboard.__file__).parent
        named = {name for path in pages.rglob('*.py')
                 for name in _RULE.findall(path.read_text())}
        self.assertIn('diffcache:hosts:list', named)
        self.assertEqual(set(), named - known)
