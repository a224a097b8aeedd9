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
"""Programs of commands: help, wrong usage, errors."""

import io
import logging
import subprocess
import sys
from unittest import mock

from cliff import command

from diffcache_openstack.cmd import console
from diffcache_openstack.cmd.toolbox import app as toolbox
from diffcache_openstack.common import exceptions
from tests import base


class _Failing(command.Command):
    """A command that fails with a given error."""

    error: Exception

    def take_action(self, parsed_args):
        raise self.error


class ConsoleTest(base.TestCase):

    def setUp(self):
        super().setUp()
        # Each run of the toolbox adds its handlers to the root logger.
        root = logging.getLogger()
        self.addCleanup(setattr, root, 'handlers', list(root.handlers))

    def run_toolbox(self, *argv: str) -> tuple[int, str, str]:
        """Run the toolbox; return its exit code, stdout and stderr."""
        out, err = io.StringIO(), io.StringIO()
        with (mock.patch('sys.stdout', out), mock.patch('sys.stderr', err)):
            app = toolbox.Toolbox()
            app.command_manager.add_command('fail', _Failing)
            try:
                code = app.run(list(argv))
            except SystemExit as exc:
                code = exc.code or 0
        return code, out.getvalue(), err.getvalue()

    def test_help_lists_the_commands_with_a_line_each(self):
        for argv in (['--help'], ['help']):
            code, out, err = self.run_toolbox(*argv)
            self.assertEqual(0, code)
            self.assertRegex(out, r'(?m)^  patch create +\w+')
            self.assertRegex(out, r'(?m)^  patch matrix +\w+')
            self.assertEqual('', err)

    def test_a_log_that_cannot_be_written_is_named(self):
        code, _, err = self.run_toolbox('--log-file', '/no/such/log', 'fail')
        self.assertEqual(2, code)
        self.assertIn('diffcache: error: argument --log-file: /no/such/log:'
                      ' No such file or directory; choose another file', err)

    def test_help_imports_no_command(self):
        script = (
            'import sys\n'
            'from diffcache_openstack.cmd.toolbox import app as toolbox\n'
            'try:\n'
            '    toolbox.main(["--help"])\n'
            'except SystemExit:\n'
            '    pass\n'
            'heavy = {"numpy", "diffcache_openstack._native",\n'
            '         "diffcache_openstack.cmd.toolbox.patch", "matplotlib"}\n'
            'sys.exit(str(heavy & set(sys.modules))\n'
            '         if heavy & set(sys.modules) else 0)\n')
        done = subprocess.run([sys.executable, '-c', script],
                              capture_output=True, text=True)
        self.assertEqual((0, ''), (done.returncode, done.stderr))

    def test_completion_logs_nothing(self):
        # Libraries of some command log that they are loaded.
        done = subprocess.run(
            [sys.executable, '-c', 'import sys\n'
             'from diffcache_openstack.cmd.toolbox import app\n'
             'sys.exit(app.main(["complete"]))'],
            capture_output=True, text=True)
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        self.assertIn("cmds_patch='", done.stdout)

    def test_help_of_a_command(self):
        code, out, _ = self.run_toolbox('help', 'patch', 'create')
        self.assertEqual(0, code)
        self.assertIn('--codec', out)

    def test_wrong_usage_exits_2_with_a_line(self):
        for argv in ([], ['nonsense'], ['patch'], ['patch', 'nonsense'],
                     ['--nonsense'], ['patch', 'show'],
                     ['patch', 'create', 'a', 'b', 'c', '--codec', 'no']):
            code, out, err = self.run_toolbox(*argv)
            self.assertEqual(2, code, argv)
            self.assertEqual('', out)
            self.assertRegex(err, r'error: .+\n$')

    def test_a_group_lists_its_commands_with_a_line_each(self):
        _, _, err = self.run_toolbox('patch')
        self.assertRegex(err, r'(?m)^  patch apply +\w+')
        self.assertRegex(err, r'(?m)^  patch create +\w+')
        self.assertNotIn('placement', err)

    def test_a_wrong_command_of_a_group_names_the_right_ones(self):
        _, _, err = self.run_toolbox('patch', 'nonsense')
        self.assertIn('patch apply, patch create', err)
        self.assertNotIn('placement', err)

    def test_help_of_a_group(self):
        for argv in (['patch', '--help'], ['help', 'patch'],
                     ['--help', 'patch'], ['pat', '-h']):
            code, out, err = self.run_toolbox(*argv)
            self.assertEqual((0, ''), (code, err))
            self.assertRegex(out, r'(?m)^  patch create +\w+')
            self.assertNotIn('placement', out)

    def test_help_of_a_command_needs_no_right_arguments(self):
        for argv in (['patch', 'create', '--help'],
                     ['patch', 'create', 'a', '--codec', 'nonsense', '-h'],
                     ['--help', 'patch', 'create', '--nonsense']):
            code, out, err = self.run_toolbox(*argv)
            self.assertEqual((0, ''), (code, err))
            self.assertTrue(out.startswith('usage: diffcache patch create'))

    def test_help_of_no_command(self):
        for argv in (['nonsense', '--help'], ['help', 'nonsense']):
            code, out, err = self.run_toolbox(*argv)
            self.assertEqual((2, ''), (code, out))
            self.assertIn('no command "nonsense"; there are complete', err)

    def test_an_error_is_one_line_and_exits_1(self):
        _Failing.error = exceptions.NotFound('The base b is gone; make one.')
        code, out, err = self.run_toolbox('fail')
        self.assertEqual(1, code)
        self.assertEqual('', out)
        self.assertEqual('diffcache: error: The base b is gone; make one.\n',
                         err)

    def test_an_unforeseen_error_names_its_kind(self):
        _Failing.error = KeyError('x')
        code, _, err = self.run_toolbox('fail')
        self.assertEqual(1, code)
        self.assertEqual(1, err.count('\n'))
        self.assertIn('KeyError', err)
        self.assertIn('--debug', err)

    def test_debug_shows_the_traceback(self):
        _Failing.error = exceptions.NotFound('The base b is gone.')
        code, _, err = self.run_toolbox('--debug', 'fail')
        self.assertEqual(1, code)
        self.assertIn('Traceback', err)
        self.assertIn('NotFound', err)

    def test_a_command_that_cannot_be_loaded_is_an_error(self):
        with mock.patch.object(console.CommandManager, 'find_command',
                               side_effect=ImportError('no numpy')):
            code, _, err = self.run_toolbox('patch', 'show', 'x')
        self.assertEqual(1, code)
        self.assertIn('no numpy', err)
        self.assertEqual(1, err.count('\n'))
