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
"""What tests of the parts need that run inside Cinder.

Cinder is no requirement of this project; these tests run in an environment
where Cinder is installed, and are skipped in others.
"""

import pathlib
import subprocess
import sys
import unittest

try:
    import cinder.db.api  # noqa: F401 (registers options)
    import cinder.objects
except ImportError as error:
    raise unittest.SkipTest(
        'Cinder is not installed; the stage "openstack" of tools/test runs'
        ' this where it is') from error

from oslo_config import cfg

from diffcache_openstack.cinder import options
from tests import base

CONF = cfg.CONF
TREE = pathlib.Path(__file__).parents[3]
cinder.objects.register_all()


class CinderTest(base.TestCase):
    """Has Cinder's configuration for itself."""

    def setUp(self):
        super().setUp()
        options.register_opts(CONF)
        CONF([], project='cinder', version='0', default_config_files=[],
             default_config_dirs=[])
        self.addCleanup(CONF.reset)
        self.set('state_path', str(self.directory))
        # Drivers of backups open it although they do not use it.
        self.set('connection', 'sqlite://', 'database')

    def run_module(self, *words):
        """Run a module's tests in a process that begins with eventlet."""
        done = subprocess.run(
            [sys.executable, '-m', *words], cwd=TREE,
            stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.assertEqual(0, done.returncode,
                         done.stdout[-10000:] + done.stderr[-10000:])

    def set(self, name, value, group=None):
        """Set an option until the test ends."""
        CONF.set_override(name, value, group)
        self.addCleanup(CONF.clear_override, name, group)
