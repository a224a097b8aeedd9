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
"""The OpenStack that tools/openstack brought up, for tests.

The environment variable DIFFCACHE_OPENSTACK_STATE names its folder. Tests run
in its Python environment, as root, one after another.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
import typing
import uuid

from diffcache_openstack.agent_client import local_client
from tests import base

_TOOLS = pathlib.Path(__file__).parents[3] / 'tools' / 'openstack.d'
sys.path.insert(0, str(_TOOLS))

from onemachine import trial  # noqa: E402

STATE = 'DIFFCACHE_OPENSTACK_STATE'
_QUIET_SECONDS = 2
_SECONDS = 600
# Heartbeats of agents among each other.
_BESIDES = 20_000


class TestCase(base.TestCase):
    """A test on a real OpenStack.

    :cvar trial: the OpenStack: connections, hosts, processes, counters
    """

    trial: trial.Trial

    @classmethod
    def setUpClass(cls) -> None:
        """Find the OpenStack."""
        super().setUpClass()
        state = os.environ.get(STATE)
        if not state:
            cls.skipTest(cls('__init__'), f'{STATE} names no OpenStack that'
                                          ' tools/openstack brought up')
        cls.trial = trial.Trial(pathlib.Path(state))

    def image(self, name: str, form: str = 'raw', **more: typing.Any) -> str:
        """Upload a guest of the family as a new image, until the test ends.

        :param name: a key of ``trial.guests()``
        """
        image = self.trial.upload(f'{name}-{uuid.uuid4().hex[:8]}',
                                  self.trial.guests()[name], form, **more)
        self.addCleanup(self.trial.admin.image.delete_image, image,
                        ignore_missing=True)
        return image

    def boot(self, image: str, host: str | None = None,
             flavor: str = 'tiny') -> trial.Booted:
        """Boot a guest to its marker; it is deleted with the test."""
        started = time.monotonic()
        server = self.trial.create(image, host, flavor)
        self.addCleanup(self.trial.delete, server)
        return self.trial.wait_for_guest(server, started)

    def type(self, command: str, user: str = 'admin',
             project: str | None = None) -> typing.Any:
        """What a command of the client prints, parsed if it is JSON.

        :param project: of the user; one of the same name if none
        """
        done = self._enter(command, user, project or user)
        self.assertEqual(0, done.returncode, f'{command}: {done.stderr}')
        return json.loads(done.stdout) if '-f json' in command else None

    def refused(self, command: str, user: str, project: str | None = None
                ) -> str:
        """Why a command of the client fails, as it says."""
        done = self._enter(command, user, project or user)
        self.assertNotEqual(0, done.returncode, f'{command}: {done.stdout}')
        return done.stderr

    @staticmethod
    def _enter(command: str, user: str, project: str
               ) -> subprocess.CompletedProcess[str]:
        rc = pathlib.Path(os.environ[STATE]) / 'openrc'
        return subprocess.run(
            ['bash', '-c', f'. {rc}; openstack --os-compute-api-version 2.93'
             f' --os-username {user} --os-project-name {project} {command}'],
            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, timeout=_SECONDS)

    def plan(self) -> None:
        """Have the site planned as it is now, and the plan followed."""
        plan = self.type('image cache plan create site --wait -f json')['id']
        self.type(f'image cache plan apply {plan} --wait')

    def wait_until_quiet(self) -> None:
        """Wait until plans are filled, and nothing crosses the WAN.

        What is counted afterwards is what a test does.
        """
        last = -1

        def is_quiet() -> bool:
            nonlocal last
            before, last = last, self.trial.wan_bytes()
            time.sleep(_QUIET_SECONDS)
            return last - before < _BESIDES and not any(
                local_client.LocalClient(str(self.trial.socket(name)), 60)
                .status()['missing'] for name in (*self.trial.hosts, 'edge'))

        self.wait_until(is_quiet, 'fills have ended', 300)

    @staticmethod
    def wait_until(condition: typing.Callable[[], typing.Any],
                   what: str, seconds: float = 120) -> typing.Any:
        """Wait for a condition; returns what it returned at last.

        :param what: named when it does not come true
        """
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f'{what}: not within {seconds:.0f} s')
            time.sleep(0.5)
        return value
