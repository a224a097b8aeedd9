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
"""Tests of the program ``diffcache-agent``."""

import subprocess
import sys

from tests import base

# Libraries that conductors and the toolbox need. An agent runs on each host,
# whose memory is for guests.
NOT_ON_HOSTS = ('highspy', 'matplotlib', 'numpy', 'openstack', 'pulp',
                'sqlalchemy')


class TestAgent(base.TestCase):

    def test_libraries_of_controllers_are_not_loaded(self):
        program = ('import sys\n'
                   'import diffcache_openstack.cmd.agent\n'
                   'import diffcache_openstack.agent.service\n'
                   'print(*sys.modules)\n')
        done = subprocess.run([sys.executable, '-c', program], check=True,
                              capture_output=True, text=True)
        self.assertIn('diffcache_openstack.agent.service', done.stdout)
        self.assertEqual(
            [], [name for name in NOT_ON_HOSTS
                 if name in done.stdout.split()])
