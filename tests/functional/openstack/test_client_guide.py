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
"""The commands of the user guide, typed one after another.

Each has to succeed, and to print what the guide shows of it. What it printed
is kept as a transcript, ``client-guide.txt``, beside the OpenStack's state.
"""

import os
import pathlib
import subprocess

from tests.functional.openstack import machine
from tests.functional.openstack import transcripts

GUIDE = (pathlib.Path(__file__).parents[3] / 'doc' / 'source' / 'user'
         / 'openstack-client.rst')
_SECONDS = 600
# That many at least the guide has; fewer were found if it is read wrongly.
_COMMANDS, _SHOWN = 30, 10


class TestGuide(machine.TestCase):

    # To start the client takes seconds, and there are many commands.
    TIMEOUT_SCALING_FACTOR = 3

    def setUp(self):
        super().setUp()
        self.state = pathlib.Path(os.environ[machine.STATE])
        for name in ('guest-base', 'guest-web'):
            os.symlink(self.trial.guests()[name], self.directory
                       / f'{name}.raw')
        self.transcript: list[str] = []
        self.addCleanup(self.keep)
        self.addCleanup(self.tidy)
        self.upload('guest-base')

    def upload(self, name):
        """Have an image that the guide takes for granted in the catalogue.

        Names are the guide's: a second image of that name would be one too
        many.
        """
        glance = self.trial.admin.image
        if glance.find_image(name) is None:
            image = self.trial.upload(name, self.trial.guests()[name])
            self.addCleanup(glance.delete_image, image, ignore_missing=True)
        listing = 'openstack image cache object list --status active'
        self.wait_until(lambda: name in self.type(listing).stdout,
                        f'The repository took in {name}', 300)

    def keep(self):
        """Leave the transcript to who wants to read it."""
        path = self.state / 'client-guide.txt'
        path.write_text('\n'.join(self.transcript))

    def tidy(self):
        """Remove what the guide made, in case it was cut short."""
        for command in ('server delete --wait web-1',
                        'image delete shop-web',
                        'aggregate remove host edge-hosts compute-1',
                        'aggregate delete edge-hosts'):
            self.type(f'openstack {command}')

    def type(self, command):
        """Type a command into the shell that knows what came before."""
        words = (f'. {self.state}/openrc; set -o pipefail;'
                 f' [ -f shell.env ] && . ./shell.env; {command};'
                 f' status=$?; declare -p PLAN JOB 2>/dev/null > shell.env;'
                 f' exit $status')
        return subprocess.run(
            ['bash', '-c', words], cwd=self.directory, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=_SECONDS)

    def ready(self, command):
        """Wait for what the guide says will have happened by now."""
        if '--family guest-base' in command:
            self.wait_until(
                lambda: 'shop-web' in self.type(command).stdout,
                'The repository took in shop-web', 300)

    def test_each_command_prints_what_is_shown(self):
        steps = transcripts.steps(GUIDE.read_text())
        self.assertGreater(len(steps), _COMMANDS)
        self.assertGreaterEqual(sum(bool(step.shown) for step in steps),
                                _SHOWN)
        for command, shown in steps:
            self.ready(command)
            done = self.type(command)
            self.transcript += [f'$ {command}', done.stdout.rstrip(), '']
            self.assertEqual(0, done.returncode,
                             f'{command}\n{done.stdout}')
            if shown:
                self.assertTrue(
                    transcripts.agree(shown, done.stdout),
                    f'{command}\nprinted\n{done.stdout}\nbut the guide'
                    f' shows\n' + '\n'.join(shown))
        self.assertTrue((self.directory / 'plan.png').read_bytes()
                        .startswith(b'\x89PNG'))
