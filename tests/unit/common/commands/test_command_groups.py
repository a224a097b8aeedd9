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
import io
import types

from cliff import command
from cliff import commandmanager

from diffcache_openstack.cmd import console
from diffcache_openstack.common.commands import command_groups
from tests import base


class Told(command.Command):
    """Do something.

    And more.
    """

    def take_action(self, parsed_args):
        """Do nothing."""


class TestMembers(base.TestCase):

    COMMANDS = dict.fromkeys((
        'a', 'a b', 'a bc d', 'a bc e', 'ab c', 'x-y z'))

    def test_longer_commands_that_begin_so(self):
        def members(*words):
            return command_groups.members(self.COMMANDS, words)
        self.assertEqual(['a bc d', 'a bc e'], members('a', 'bc'))
        self.assertEqual(['a b', 'a bc d', 'a bc e', 'ab c'], members('a'))
        self.assertEqual(['x-y z'], members('x'))
        self.assertEqual([], members('a', 'bc', 'd'))
        self.assertEqual([], members('y'))

    def test_summary(self):
        entry = commandmanager.EntryPointWrapper('told', Told)
        self.assertEqual('Do something', command_groups.summary(entry))
        commands = console.CommandManager('diffcache.toolbox').commands
        for name, each in commands.items():
            self.assertTrue(command_groups.summary(each), name)


class TestGroup(base.TestCase):

    def run_group(self, name, *words):
        app = types.SimpleNamespace(
            NAME='prog', stderr=io.StringIO(),
            command_manager=commandmanager.CommandManager())
        app.command_manager.add_command('do it', Told)
        app.command_manager.add_command('do', command_groups.Group)
        app.command_manager.add_command('do again', command_groups.Group)
        app.command_manager.add_command('do again twice', Told)
        group = command_groups.Group(app, None, name)
        arguments = group.get_parser(f'prog {name}').parse_args(list(words))
        return group.run(arguments), app.stderr.getvalue()

    def test_lists_complete_commands(self):
        code, text = self.run_group('do')
        self.assertEqual(2, code)
        self.assertIn('\n  do again twice  Do something\n'
                      '  do it           Do something\n', text)
        self.assertNotIn('do again ', text.replace('do again twice', ''))

    def test_what_follows_is_no_command(self):
        code, text = self.run_group('do', 'nothing', '--at', 'all')
        self.assertEqual(2, code)
        self.assertEqual(
            'prog: error: no command "do nothing"; there are do again twice,'
            ' do it: see prog do --help\n', text)
