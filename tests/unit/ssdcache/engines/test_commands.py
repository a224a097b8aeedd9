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
import os
from unittest import mock

import hypothesis
from hypothesis import strategies

from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache.engines import base as engines
from diffcache_openstack.ssdcache.engines import commands
from tests import base

JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers()
    | strategies.text(), lambda inner: strategies.lists(inner)
    | strategies.dictionaries(strategies.sampled_from(
        ['report', 'lv', 'x']), inner))


class TestRun(base.TestCase):

    def test_output(self):
        self.assertEqual('a b', commands.run(['cat'], 'a b'))

    def test_messages_are_in_english(self):
        self.assertEqual('C\n', commands.run(['sh', '-c', 'echo $LC_ALL']))

    def test_a_failure_names_command_and_reason(self):
        error = self.assertRaises(engines.VolumeRefused, commands.run,
                                  ['sh', '-c', 'echo no >&2; exit 3'])
        for part in ('sh -c', 'exit code 3', 'no'):
            self.assertIn(part, str(error))

    def test_a_program_that_is_missing(self):
        error = self.assertRaises(exceptions.PermanentError, commands.run,
                                  ['diffcache-no-such-program'])
        self.assertIn('not installed', str(error))

    def test_a_program_that_hangs(self):
        with mock.patch.object(commands, 'TIMEOUT_S', 0.01):
            self.assertRaises(exceptions.ServiceUnavailable, commands.run,
                              ['sleep', '60'])

    def test_output_that_is_no_text(self):
        self.assertEqual('\ufffd', commands.run(['printf', r'\377']))


class TestRoot(base.TestCase):

    def test_others_are_refused(self):
        with mock.patch.object(os, 'geteuid', return_value=1000):
            error = self.assertRaises(exceptions.NotConfigured,
                                      commands.check_root, 'opencas')
        self.assertIn('opencas', str(error))

    def test_root(self):
        with mock.patch.object(os, 'geteuid', return_value=0):
            commands.check_root('opencas')


class TestRows(base.TestCase):

    @hypothesis.given(strategies.text() | JSON.map(commands.json.dumps))
    def test_any_answer_is_rows_or_refused(self, text):
        try:
            found = commands.rows(['lvs', '-x'], text, 'report', 0, 'lv')
        except commands.UnknownOutput as error:
            self.assertIn('lvs -x', str(error))
        else:
            self.assertTrue(all(isinstance(row, dict) for row in found))

    def test_numbers(self):
        self.assertEqual([7, 8, 0], [commands.number(['x'], value)
                                     for value in (7, '8', '0')])
        for value in (-1, '-1', '', ' 1', '1.0', True, None, 1.5, '9' * 20,
                      '\u0663', [1]):
            self.assertRaises(commands.UnknownOutput, commands.number, ['x'],
                              value)
