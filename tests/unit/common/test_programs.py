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
import sys
from unittest import mock

import fixtures

from diffcache_openstack.common import programs
from tests import base


class TestFind(base.TestCase):

    def setUp(self):
        super().setUp()
        for name in ('beside', 'path'):
            (self.directory / name).mkdir()
        self.useFixture(fixtures.EnvironmentVariable(
            'PATH', str(self.directory / 'path')))
        self.enterContext(mock.patch.object(
            sys, 'executable', str(self.directory / 'beside' / 'python')))

    def write_program(self, folder):
        path = self.directory / folder / 'program'
        path.write_text('#!/bin/sh\n')
        path.chmod(0o755)
        return str(path)

    def test_beside_this_python_comes_first(self):
        in_path = self.write_program('path')
        self.assertEqual(in_path, programs.find('program'))
        beside = self.write_program('beside')
        self.assertEqual(beside, programs.find('program'))

    def test_what_cannot_be_executed_is_no_program(self):
        os.chmod(self.write_program('path'), 0o644)
        error = self.assertRaises(programs.ProgramNotFound, programs.find,
                                  'program')
        self.assertIn('install the package', str(error))
