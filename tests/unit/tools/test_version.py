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
"""One version, wherever it is shown."""

import importlib.metadata
import subprocess
import sys

from tests import base
from tests.unit.tools import loading

version = loading.load('version')


class TestVersion(base.TestCase):

    def setUp(self):
        super().setUp()
        for name in version.PLACES:
            self.write_file(name, (loading.TREE / name).read_bytes())

    def test_all_files_agree(self):
        self.assertEqual([], version.differing(version.found(loading.TREE)))

    def test_what_is_installed_has_it(self):
        for name in ('diffcache-openstack', 'diffcache-openstack-plugins'):
            self.assertEqual(version.found(loading.TREE)[version.SOURCE],
                             {importlib.metadata.version(name)})

    def test_another_one_is_written_everywhere(self):
        version.write(self.directory, '1.2.3')
        found = version.found(self.directory)
        self.assertEqual({name: {'1.2.3'} for name in version.PLACES}, found)

    def test_a_file_that_differs_is_named(self):
        path = self.directory / 'debian' / 'changelog'
        path.write_text('diffcache (2.0.0) unstable; urgency=medium\n')
        [line] = version.differing(version.found(self.directory))
        self.assertRegex(line, r'^debian/changelog: version 2\.0\.0, not ')

    def test_a_file_without_one_is_named(self):
        (self.directory / 'native' / 'Cargo.toml').write_text('[workspace]\n')
        [line] = version.differing(version.found(self.directory))
        self.assertRegex(line, r'^native/Cargo\.toml: version missing, not ')

    def test_what_is_no_version_is_refused(self):
        done = subprocess.run(
            [sys.executable, loading.TREE / 'tools' / 'version.py', '1.0'],
            capture_output=True, text=True)
        self.assertEqual(2, done.returncode)
        self.assertIn("'1.0' is no version such as 1.0.0", done.stderr)

    def test_it_takes_neither_a_repository_nor_a_tag(self):
        for name in ('pyproject.toml', 'setup.cfg', 'README.rst', 'LICENSE',
                     'requirements.txt', 'plugins-requirements.txt',
                     'plugins/tracing-requirements.txt',
                     'diffcache_openstack/__init__.py'):
            self.write_file(name, (loading.TREE / name).read_bytes())
        metadata = self.directory / 'metadata'
        metadata.mkdir()
        subprocess.run(
            [sys.executable, '-c', 'from setuptools import build_meta;'
             'build_meta.prepare_metadata_for_build_wheel("metadata")'],
            cwd=self.directory, check=True, capture_output=True)
        [wanted] = version.found(loading.TREE)[version.SOURCE]
        self.assertEqual(
            [f'diffcache_openstack-{wanted}.dist-info'],
            [path.name for path in metadata.glob('*.dist-info')])
