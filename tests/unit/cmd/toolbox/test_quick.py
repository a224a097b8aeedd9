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
"""Commands that start quickly."""

import subprocess
import sys

from tests import base


class QuickTest(base.TestCase):

    def test_a_command_looks_into_no_metadata_of_others(self):
        # In a process of its own: libraries keep what they have found.
        script = (
            'import importlib.metadata, sys\n'
            'def refuse(*args, **options):\n'
            '    raise AssertionError("metadata of all is read")\n'
            'importlib.metadata.entry_points = refuse\n'
            'importlib.metadata.packages_distributions = refuse\n'
            'from diffcache_openstack.cmd.toolbox import app as toolbox\n'
            'sys.exit(toolbox.main(sys.argv[1:]))\n')
        disk = self.write_file('disk', b'x' * 5000)
        done = subprocess.run(
            [sys.executable, '-c', script, '-q', 'version', 'save', str(disk),
             '--series', 'a', '--store', f'file://{self.directory}/store',
             '-f', 'json'], capture_output=True, text=True)
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        self.assertIn('"blocks_changed": 2', done.stdout)
