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
"""Runs the programs that engines of the kernel are controlled with."""

import collections.abc
import json
import os
import shlex
import subprocess
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache.engines import base

TIMEOUT_S = 120
# Of what a program said, in an error.
_LONGEST = 500


class CommandFailed(base.VolumeRefused):
    """A program failed; the message has the reason that it printed."""


class UnknownOutput(exceptions.FormatError):
    """A program answered in a way that this release does not know."""


class Runner(typing.Protocol):
    """What runs commands."""

    def __call__(self, words: collections.abc.Sequence[str],
                 stdin: str = '') -> str:
        """Run a command, and return what it wrote.

        :raises CommandFailed: it failed
        :raises PermanentError: the program is not installed
        :raises ServiceUnavailable: it did not end in time
        """


def run(words: collections.abc.Sequence[str], stdin: str = '') -> str:
    """See :class:`.Runner`."""
    try:
        done = subprocess.run(
            list(words), input=stdin, capture_output=True, text=True,
            errors='replace', timeout=TIMEOUT_S,
            env={**os.environ, 'LC_ALL': 'C'})
    except FileNotFoundError as error:
        raise exceptions.PermanentError(
            f'{words[0]} is not installed, which [ssd_cache] engine needs:'
            ' install its package, or choose another engine.') from error
    except subprocess.TimeoutExpired as error:
        raise exceptions.ServiceUnavailable(
            f'{shlex.join(words)} did not end in {TIMEOUT_S} seconds: see the'
            ' kernel\'s log.') from error
    if done.returncode:
        said = ' '.join((done.stderr or done.stdout).split())[:_LONGEST]
        raise CommandFailed(f'{shlex.join(words)} failed with exit code'
                            f' {done.returncode}: {said}')
    return done.stdout


def unknown(words: collections.abc.Sequence[str], found: object
            ) -> UnknownOutput:
    """Return the error about an answer that cannot be read.

    :param found: the part that is unknown
    """
    return UnknownOutput(
        f'{shlex.join(words)} answered what this release does not know:'
        f' {str(found)[:_LONGEST]!r}. Run it by hand; if its version is'
        ' supported, report this line.')


def rows(words: collections.abc.Sequence[str], text: str, *path: str | int
         ) -> list[dict[str, typing.Any]]:
    """Return the objects of a list in an answer in JSON.

    :param path: keys and indexes of the list
    :raises UnknownOutput: it has no such list
    """
    try:
        found = json.loads(text)
        for key in path:
            found = found[key]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise unknown(words, text) from error
    if not isinstance(found, list) \
            or not all(isinstance(row, dict) for row in found):
        raise unknown(words, text)
    return found


def number(words: collections.abc.Sequence[str], value: object) -> int:
    """Return a whole number, which may be written as a text.

    :raises UnknownOutput: it is none
    """
    text = str(value)
    if isinstance(value, (int, str)) and not isinstance(value, bool) \
            and text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    raise unknown(words, value)


def check_root(engine: str) -> None:
    """Refuse to control the kernel without its rights.

    :raises NotConfigured: this process is not root's
    """
    if os.geteuid() != 0:
        raise exceptions.NotConfigured(
            f'[ssd_cache] engine = {engine} needs an agent that runs as root:'
            ' its programs refuse other users. Change User= of the agent\'s'
            ' unit, or choose the engine ssdcached.')
