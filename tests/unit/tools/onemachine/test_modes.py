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
"""The modes that benchmarks compare."""

import os
import pathlib
import sys

from onemachine import errors
from onemachine import modes
from onemachine.services import suite

from tests import base


class TestModes(base.TestCase):

    def test_are_kinds_of_caching(self):
        for mode in modes.MODES.values():
            self.assertIn(mode.caching, suite.KINDS)
            # Only the suite makes patches.
            self.assertTrue(mode.suite or not mode.patches)
        self.assertEqual(['stock'], [
            name for name, mode in modes.MODES.items() if mode.stock])


class TestEnterEnvironment(base.TestCase):

    def setUp(self):
        super().setUp()
        self.started = []
        self.patch(os, 'execv', lambda *words: self.started.append(words))

    def test_goes_on_there(self):
        python = self.directory / 'venv/bin/python'
        python.parent.mkdir(parents=True)
        python.touch()
        self.patch(sys, 'argv', ['bench/run', 'openstack', 'hard'])
        modes.enter_environment(self.directory)
        self.assertEqual(
            [(python, [str(python), 'bench/run', 'openstack', 'hard'])],
            self.started)

    def test_stays_where_it_is(self):
        self.patch(sys, 'prefix', str(self.directory / 'venv'))
        modes.enter_environment(self.directory)
        self.assertEqual([], self.started)

    def test_nothing_is_there(self):
        error = self.assertRaises(
            errors.OpenStackError, modes.enter_environment,
            pathlib.Path(self.directory))
        self.assertIn('tools/openstack up', str(error))
