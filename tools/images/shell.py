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

"""Run the commands that a build consists of."""

import os
import pathlib
import subprocess

_TAIL_LINES = 15


class BuildError(Exception):
    """A build failed; the message has the reason, and where to look."""


def run(log: pathlib.Path, *command: str | os.PathLike[str]) -> None:
    """Run a command, with what it says appended to a log.

    :raises BuildError: it failed; the message ends with its last words
    """
    words = [os.fspath(word) for word in command]
    environment = dict(
        os.environ, DEBIAN_FRONTEND='noninteractive', LC_ALL='C.UTF-8'
    )
    with log.open('ab') as output:
        output.write(f'+ {" ".join(words)}\n'.encode())
        output.flush()
        try:
            status = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            ).returncode
        except FileNotFoundError as error:
            raise BuildError(f'{words[0]} is not installed') from error
    if status != 0:
        raise BuildError(
            f'{words[0]} ended with status {status} (all it said is in '
            f'{log}):\n{tail(log)}'
        )


def tail(log: pathlib.Path) -> str:
    """Return the last lines of a log."""
    lines = log.read_text(errors='replace').splitlines()
    return '\n'.join(lines[-_TAIL_LINES:])
