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
"""Projects with stores, keys and credentials of their own."""

import os

from diffcache_openstack.agent.versions import project_stores
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from diffcache_openstack.versions import version_store
from tests import base


class TestProjectStores(base.TestCase):

    def setUp(self):
        super().setUp()
        self.disk = self.write_file('disk', b'secret' * 20000)
        self.projects = self.directory / 'projects'
        self.projects.mkdir()
        self.write_key('common')
        self.host = self.stores(key_file=f'{self.directory}/common')

    def write_key(self, name):
        self.write_file(name, name.encode().ljust(32)).chmod(0o600)

    def stores(self, **options):
        """The stores of a host whose configuration has these options."""
        lines = [f'{name} = {value}' for name, value in {
            'store': f'file://{self.directory}/common-store',
            'projects_directory': self.projects, **options}.items()]
        path = self.write_file('host.conf', '\n'.join(
            ['[versions]', *lines]).encode())
        return project_stores.ProjectStores(
            opts.new_config(['--config-file', str(path)]))

    def give(self, project, **options):
        """Have hosts configured for a project."""
        lines = [f'{name} = {value}' for name, value in options.items()]
        path = self.projects / f'{project}.conf'
        path.write_text('\n'.join(['[versions]', *lines]))
        return path

    def save(self, project, stores=None):
        return (stores or self.host).open_for_save(project).save(
            [version_store.Disk(self.disk, 'a')])

    def test_a_project_has_a_store_and_a_key_of_its_own(self):
        self.write_key('own')
        self.give('p1', store=f'file://{self.directory}/own-store',
                  key_file=f'{self.directory}/own')
        for project in ('p1', 'p2'):
            self.save(project)
        self.assertEqual(['p1'], os.listdir(self.directory / 'own-store'))
        self.assertEqual(['p2'], os.listdir(self.directory / 'common-store'))
        # Other options are those of the host.
        self.assertEqual(1, len(self.host.open('p1').versions()))

    def test_a_host_without_a_projects_credentials_opens_nothing_of_it(self):
        self.write_key('own')
        path = self.give('p1', key_file=f'{self.directory}/own')
        self.save('p1')
        # What it has for others does not open it, nor may it be used.
        path.unlink()
        self.assertRaises(exceptions.InvalidInput,
                          self.host.open('p1').versions)
        strict = self.stores(key_file=f'{self.directory}/common',
                             listed_projects_only=True)
        for work in (strict.open, strict.open_for_save):
            error = self.assertRaises(exceptions.Forbidden, work, 'p1')
            self.assertIn('p1.conf', str(error))
        self.give('p1', key_file=f'{self.directory}/own')
        self.assertEqual(1, len(strict.open('p1').versions()))

    def test_changed_files_are_read_again(self):
        self.save('p1')
        self.write_key('own')
        path = self.give('p1', key_file=f'{self.directory}/own')
        self.assertRaises(exceptions.InvalidInput,
                          self.host.open('p1').versions)
        path = self.give('p1', key_file=f'{self.directory}/common')
        os.utime(path, (1, 1))
        self.assertEqual(1, len(self.host.open('p1').versions()))

    def test_files_that_cannot_be_used_are_named(self):
        self.give('p1', level=99)
        error = self.assertRaises(exceptions.InvalidInput, self.host.open,
                                  'p1')
        self.assertIn('p1.conf', str(error))

    def test_ids_of_projects_name_no_other_files(self):
        self.write_file('evil.conf', b'[versions]\nstore = file:///evil\n')
        for project in ('../evil', '/etc/x', '.', 'a/b', '\0', 'x' * 300):
            self.assertIs(self.host._common, self.host.of(project))
