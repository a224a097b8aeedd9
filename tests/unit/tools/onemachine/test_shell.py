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
"""Commands, and files of options."""

import configparser

from onemachine import errors
from onemachine import shell

from tests import base


class TestRun(base.TestCase):

    def test_output(self):
        self.assertEqual('one\n', shell.run('echo', 'one'))

    def test_input(self):
        self.assertEqual('text', shell.run('cat', data='text'))

    def test_failure_shows_command_and_output(self):
        error = self.assertRaises(
            errors.OpenStackError, shell.run, 'sh', '-c',
            'echo the reason >&2; exit 3')
        self.assertIn('failed with 3', str(error))
        self.assertIn('the reason', str(error))

    def test_missing_program_names_the_next_step(self):
        error = self.assertRaises(errors.OpenStackError, shell.run,
                                  'no-such-program')
        self.assertIn('no-such-program is not installed', str(error))
        self.assertIn('tools/openstack up', str(error))


class TestWrite(base.TestCase):

    def test_replaces_with_mode(self):
        path = self.write_file('a/secret', b'old')
        shell.write(path, 'new', 0o600)
        self.assertEqual('new', path.read_text())
        self.assertEqual(0o600, path.stat().st_mode & 0o777)
        self.assertEqual([path], list(path.parent.iterdir()))


class TestOptions(base.TestCase):

    def test_ini_is_read_back(self):
        text = shell.ini({'DEFAULT': {'debug': True, 'port': 80},
                          'group': {'name': 'value with = sign'}})
        parser = configparser.ConfigParser()
        parser.read_string(text)
        self.assertEqual('true', parser['DEFAULT']['debug'])
        self.assertEqual('80', parser['DEFAULT']['port'])
        self.assertEqual('value with = sign', parser['group']['name'])

    def test_lists_are_repeated_options(self):
        self.assertEqual('[g]\nname = 1\nname = 2\n',
                         shell.ini({'g': {'name': [1, 2]}}))

    def test_merge_keeps_what_is_not_replaced(self):
        first = {'a': {'x': 1, 'y': 2}}
        merged = shell.merge(first, {'a': {'y': 3}, 'b': {'z': 4}})
        self.assertEqual({'a': {'x': 1, 'y': 3}, 'b': {'z': 4}}, merged)
        self.assertEqual({'a': {'x': 1, 'y': 2}}, first)
