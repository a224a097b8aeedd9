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
"""bindep.txt lists what the scripts of tools/ install."""

import re

from tests import base
from tests.unit.tools import loading

# A call with its continuation lines; not the function's definition.
CALL = re.compile(r'^ *apt_install ((?:\\\n|[^\n;|&])+)', re.MULTILINE)
PACKAGE = re.compile(r'[a-z0-9][a-z0-9.+-]+')


def installed(script: str) -> set[str]:
    """The packages that a script names; not those in its variables."""
    words = {word for call in CALL.findall(script)
             for word in call.replace('\\\n', ' ').split()}
    return {word for word in words if PACKAGE.fullmatch(word)}


class TestBindep(base.TestCase):

    def test_each_installed_package_is_listed(self):
        listed = {line.split()[0] for line
                  in (loading.TREE / 'bindep.txt').read_text().splitlines()
                  if line and not line.startswith('#')}
        for name in ('debian-package', 'quickstart', 'test',
                     'lib/install.sh'):
            found = installed((loading.TREE / 'tools' / name).read_text())
            with self.subTest(script=name):
                self.assertNotEqual(set(), found)
                self.assertEqual(set(), found - listed)
