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
"""The wheel that points to the checkout."""

import pathlib
import subprocess
import sys
import zipfile

from tests import base
from tests.unit.tools import loading


class TestEditable(base.TestCase):

    def setUp(self):
        super().setUp()
        self.editable = loading.load('lib/editable')

    def test_wheel_points_to_the_checkout(self):
        for project in (loading.TREE, loading.TREE / 'plugins'):
            path = self.editable.make(project, self.directory)
            with zipfile.ZipFile(path) as wheel:
                names = wheel.namelist()
                [link] = [name for name in names if name.endswith('.pth')]
                self.assertEqual(f'{project}\n', wheel.read(link).decode())
                [listing] = [wheel.read(name).decode() for name in names
                             if name.endswith('/RECORD')]
            self.assertEqual(sorted(names), sorted(
                line.split(',')[0] for line in listing.splitlines()))

    def test_wheel_can_be_installed(self):
        path = self.editable.make(loading.TREE, self.directory)
        target = pathlib.Path(self.directory, 'site')
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(target)
        found = subprocess.run(
            [sys.executable, '-S', '-c',
             'import site, sys; site.addsitedir(sys.argv[1]);'
             'import importlib.metadata as m;'
             'print(len(m.entry_points(group="console_scripts")))',
             str(target)], capture_output=True, text=True, check=True)
        self.assertGreater(int(found.stdout), 0)
