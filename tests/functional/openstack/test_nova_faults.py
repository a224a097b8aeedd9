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
"""What the driver does when something is broken, on real compute hosts."""

import os
import pathlib
import signal
import subprocess
import time

from tests.functional.openstack import nova_hosts

# Found out, with whatever a busy machine adds; not minutes.
SOON = 10


class TestProcesses(nova_hosts.NovaTest):

    def setUp(self):
        super().setUp()
        self.host = self.trial.hosts[0]
        self.image_id = self.image_of('web')

    def test_agent_that_hangs(self):
        pid = self.trial.processes.pid(f'{self.host}-agent')
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        position = self.end_of_log(f'{self.host}-nova')
        self.start(self.image_id, self.host)
        os.kill(pid, signal.SIGCONT)
        created, warned = (
            _when(self.said(f'{self.host}-nova', words, position)[0])
            for words in ('Creating image(s)', 'was not delivered'))
        self.assertLess(warned - created, SOON)


class TestMistakes(nova_hosts.NovaTest):
    """nova-compute with a wrong option does not start, and says why."""

    def start(self, **options: dict[str, str]) -> subprocess.CompletedProcess:
        """Run nova-compute with some options over those that it has."""
        host = self.trial.hosts[0]
        path = self.directory / 'wrong.conf'
        path.write_text('\n'.join(
            line for group, values in options.items()
            for line in (f'[{group}]', *(f'{name} = {value}' for name, value
                                         in values.items()), '')))
        where = self.trial.where
        return subprocess.run(
            [*self.trial.processes.enter(host),
             str(where.program('nova-compute')),
             '--config-file', str(where.etc / host / 'nova.conf'),
             '--config-file', str(path)],
            capture_output=True, text=True, timeout=nova_hosts.SECONDS,
            env={**os.environ,
                 'PATH': f'{pathlib.Path(where.program("python")).parent}:'
                         + os.environ['PATH']})

    def assertNames(self, option: str, **options) -> None:
        """nova-compute ends and one line of its log names the option."""
        ended = self.start(**options)
        self.assertNotEqual(0, ended.returncode)
        said = [line for line in ended.stderr.splitlines()
                if 'nova-compute does not start' in line]
        self.assertEqual(1, len(said), ended.stderr[-2000:])
        self.assertIn(option, said[0])

    def test_backend_without_base_images(self):
        self.assertNames('[libvirt] images_type',
                         libvirt={'images_type': 'lvm',
                                  'images_volume_group': 'vg'})

    def test_socket_in_no_directory(self):
        self.assertNames('[diffcache] socket',
                         diffcache={'socket': '/nowhere/agent.sock'})

    def test_socket_is_a_file(self):
        self.assertNames('[diffcache] socket',
                         diffcache={'socket': '/etc/passwd'})

    def test_no_socket(self):
        self.assertNames('[diffcache] socket', diffcache={'socket': ''})

    def test_without_the_hook(self):
        ended = self.start(DEFAULT={'config_source': ''})
        self.assertNotEqual(0, ended.returncode)
        self.assertIn('diffcache', ended.stderr)


def _when(line: str) -> float:
    """The instant at which a line was logged."""
    day, clock = line.split()[:2]
    return time.mktime(time.strptime(
        f'{day} {clock.partition(".")[0]}', '%Y-%m-%d %H:%M:%S'))
