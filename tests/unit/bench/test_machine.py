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
"""The line with which measurements show the machine and its load."""

import os

from bench.harness import machine
from tests import base


class MachineTest(base.TestCase):

    def test_load_and_processors(self):
        self.patch(os, 'getloadavg', lambda: (1.25, 2.0, 30.06))
        self.patch(os, 'cpu_count', lambda: 64)
        self.patch(os, 'sched_getaffinity', lambda _pid: {0, 3})
        text = machine.describe()
        self.assertTrue(text.startswith('machine: 2 of 64 processors ('), text)
        self.assertIn('; load average 1.2 2.0 30.1', text)
