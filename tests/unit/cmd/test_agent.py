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

# Libraries that conductors and the toolbox need, or that few hosts use. An
# agent runs on each host, whose memory is for guests.
NOT_ON_HOSTS = {
    'alembic', 'castellan', 'dns', 'eventlet', 'glance_store', 'glanceclient',
    'highspy', 'jinja2', 'keystoneauth1', 'matplotlib', 'novaclient', 'numpy',
    'openstack', 'osprofiler', 'prometheus_client', 'pulp', 'requests',
    'sqlalchemy', 'webob'}
# What privileged processes do without besides: each would have a copy of what
# it touches.
NOT_PRIVILEGED = NOT_ON_HOSTS | {
    'amqp', 'asyncio', 'cheroot', 'cryptography', 'kombu', 'oslo_messaging',
    'oslo_versionedobjects', 'werkzeug'}

_READY = """
import sys
from diffcache_openstack.cmd import agent
agent.program(agent.start.Privileges({}))
from diffcache_openstack.cmd import reports
from diffcache_openstack.conf import opts
reports.write_on_signal(opts.new_config(['--config-file', sys.argv[1]]), 'x')
"""


class TestAgent(base.TestCase):

    def loaded(self, program: str, *arguments: str) -> set[str]:
        """The modules that a program has loaded at its end."""
        done = subprocess.run(
            [sys.executable, '-c',
             f'{program}\nprint(*(name for name, module in'
             f' sys.modules.items() if module is not None))', *arguments],
            check=True, capture_output=True, text=True)
        return set(done.stdout.split())

    def test_libraries_that_hosts_do_without_are_not_loaded(self):
        path = self.write_file('agent.conf', (
            b'[DEFAULT]\ndebug = true\n[agent]\nhost = host-1\n'
            b'[versions]\ndirectories = /instances\n'))
        found = self.loaded(_READY, str(path))
        self.assertIn('diffcache_openstack.agent.service', found)
        self.assertEqual(set(), NOT_ON_HOSTS & found)

    def test_privileged_processes_have_what_they_need_alone(self):
        found = self.loaded('import sys\n'
                            'import diffcache_openstack.cmd.agent\n')
        self.assertIn(
            'diffcache_openstack.agent.privileged.privileged_disks', found)
        self.assertEqual(set(), NOT_PRIVILEGED & found)
