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
"""What tools/openstack is told is looked at before anything happens."""

import argparse
import pathlib
import subprocess
import sys
from unittest import mock

from onemachine import errors

from tests import base

TOOL = pathlib.Path(__file__).parents[4] / 'tools' / 'openstack'


class CliTest(base.TestCase):

    def setUp(self):
        super().setUp()
        # It brings the whole client of OpenStack, which unit tests have not.
        heavy = {f'onemachine.{name}': mock.Mock() for name in (
            'cloud', 'suite', 'tempest', 'trial')}
        with mock.patch.dict(sys.modules, heavy):
            sys.modules.pop('onemachine.cli', None)
            import onemachine.cli
            self.cli = onemachine.cli
        self.addCleanup(sys.modules.pop, 'onemachine.cli', None)

    def commands(self, **options):
        """The commands, with what was given on the command line."""
        return self.cli.Commands(argparse.Namespace(
            state=self.directory, **options))


class TestNames(CliTest):

    def test_process_that_never_was(self):
        for command in ('restart', 'stop'):
            commands = self.commands(names=['nova-api', 'nosuch'])
            log = commands._given.processes.log('nova-api')
            log.parent.mkdir(parents=True, exist_ok=True)
            log.touch()
            error = self.assertRaises(errors.OpenStackError,
                                      getattr(commands, command))
            self.assertIn('no process is called nosuch: see', str(error))

    def test_place_that_is_none(self):
        commands = self.commands(place='nosuch', words=[])
        error = self.assertRaises(errors.OpenStackError, commands.shell)
        self.assertIn('there is no place nosuch: choose one of centre,',
                      str(error))

    def test_an_older_series_gets_no_databases_of_a_newer_one(self):
        (self.directory / 'layout.json').write_text('{"series": "2026.1"}')
        for series, refused in (('2025.2', True), ('2026.1', False),
                                ('2026.2', False)):
            commands = self.commands(series=series)
            # Nothing is there yet.
            commands._refuse_older()
            (self.directory / 'data/schemas').mkdir(parents=True)
            if refused:
                error = self.assertRaises(errors.OpenStackError,
                                          commands._refuse_older)
                self.assertIn('down --purge', str(error))
            else:
                commands._refuse_older()
            (self.directory / 'data/schemas').rmdir()
            (self.directory / 'data').rmdir()

    def test_numbers_of_hosts(self):
        self.assertEqual(2, self.cli._number('2'))
        for text in ('0', '10', '-1', 'x', ''):
            self.assertRaises(argparse.ArgumentTypeError, self.cli._number,
                              text)


class TestScript(base.TestCase):

    def test_number_is_looked_at_before_anything_is_installed(self):
        done = subprocess.run(
            ['bash', str(TOOL), 'up', '--computes', 'x', '--state',
             str(self.directory)], capture_output=True, text=True)
        self.assertEqual(2, done.returncode)
        self.assertIn('--computes needs a number from 1 to 9', done.stderr)
