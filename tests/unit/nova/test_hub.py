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
"""eventlet's hub, which runs all of Nova in some releases, never stands still.

The calls are in :mod:`tests.unit.nova.patched`.
"""

import importlib.util
import subprocess
import sys
import unittest

from tests import base
from tests.unit.nova import needs  # noqa: F401

if importlib.util.find_spec('eventlet') is None:
    raise unittest.SkipTest('eventlet is not installed')

_SECONDS = 1200


class TestHub(base.TestCase):

    def test_nothing_that_waits_stops_it(self):
        done = subprocess.run(
            [sys.executable, '-m', 'tests.unit.nova.patched'],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=_SECONDS,
            check=False)
        self.assertEqual(0, done.returncode, done.stdout)
