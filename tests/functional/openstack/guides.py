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
"""Pages of the documentation whose commands are typed one after another.

Each has to succeed, and to print what the page shows of it. What it printed
is kept as a transcript beside the OpenStack's state.
"""

import os
import pathlib
import subprocess

from tests.functional.openstack import machine
from tests.functional.openstack import transcripts

DOCUMENTS = pathlib.Path(__file__).parents[3] / 'doc' / 'source'
_SECONDS = 600


class Reader(machine.TestCase):
    """Types what a page says.

    :cvar transcript_name: of the file beside the OpenStack's state
    """

    # To start the client takes seconds, and there are many commands.
    TIMEOUT_SCALING_FACTOR = 3
    transcript_name: str

    def setUp(self) -> None:
        super().setUp()
        self.state = pathlib.Path(os.environ[machine.STATE])
        self.transcript: list[str] = []
        # Made here, as it has to be there until all is tidied.
        self.shell = self.directory
        self.addCleanup(self.keep)
        self.addCleanup(self.tidy)

    def keep(self) -> None:
        """Leave the transcript to who wants to read it."""
        path = self.state / self.transcript_name
        path.write_text('\n'.join(self.transcript))

    def tidy(self) -> None:
        """Remove what the page made, in case it was cut short."""

    def type_words(self, command: str) -> subprocess.CompletedProcess[str]:
        """Type a command into the shell that knows what came before."""
        words = (f'. {self.state}/openrc; set -o pipefail;'
                 f' [ -f shell.env ] && . ./shell.env; {command};'
                 f' status=$?; declare -p PLAN JOB 2>/dev/null > shell.env;'
                 f' exit $status')
        return subprocess.run(
            ['bash', '-c', words], cwd=self.shell, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=_SECONDS)

    def ready(self, command: str) -> None:
        """Wait for what the page says will have happened by now."""

    def assert_prints_what_is_shown(
            self, steps: list[transcripts.Step]) -> None:
        """Each command succeeds, and prints what the page shows of it.

        The first that fails ends it, not the first that prints something
        else: one run shows all that is wrong with a page.
        """
        wrong = []
        for command, shown in steps:
            self.ready(command)
            done = self.type_words(command)
            self.transcript += [f'$ {command}', done.stdout.rstrip(), '']
            self.assertEqual(0, done.returncode,
                             f'{command}\n{done.stdout}')
            if shown and not transcripts.agree(shown, done.stdout):
                wrong.append(f'{command}\nprinted\n{done.stdout}\nbut the'
                             ' page shows\n' + '\n'.join(shown))
        self.assertFalse(wrong, '\n\n'.join(wrong))
