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
"""Tests that the documentation names exist."""

import pathlib
import re

from tests import base

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_PAGE = _ROOT / 'doc' / 'source' / 'admin' / 'failures.rst'
_FUNCTIONAL = _ROOT / 'tests' / 'functional'
# A module, and names in it, each between double backquotes.
_MODULE = re.compile(r'``([a-z]+/test_\w+)``(?::((?:[,\s]*``[Tt]est\w+``)+))?')
_NAME = re.compile(r'``(\w+)``')


class FailuresTest(base.TestCase):

    def test_each_test_exists(self):
        found = _MODULE.findall(_PAGE.read_text())
        self.assertGreater(len(found), 20)
        for module, names in found:
            text = (_FUNCTIONAL / f'{module}.py').read_text()
            for name in _NAME.findall(names):
                self.assertRegex(text, rf'(def|class) {name}\b', module)
