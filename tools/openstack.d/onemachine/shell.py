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
"""Running commands to their end."""

import collections.abc
import os
import pathlib
import subprocess

from onemachine import errors

_SHOWN = 4000


def run(*command: object, log: pathlib.Path | None = None,
        env: dict[str, str] | None = None, data: str | None = None) -> str:
    """Run a command; returns what it printed on standard output.

    :param log: file that gets what it prints on standard error; part of the
        message otherwise
    :param env: variables over those of this process
    :param data: for its standard input
    :raises OpenStackError: it failed; the message has the end of its output
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, text=True, capture_output=True, input=data or '',
            env={**os.environ, **(env or {})}, check=False)
    except FileNotFoundError as error:
        raise errors.OpenStackError(
            f'{words[0]} is not installed: run tools/openstack up, which'
            ' installs what is missing') from error
    if log:
        with open(log, 'a') as file:
            file.write(f'$ {" ".join(words)}\n{done.stderr}')
    if done.returncode:
        end = (done.stdout + done.stderr)[-_SHOWN:]
        raise errors.OpenStackError(
            f'"{" ".join(words)}" failed with {done.returncode}:\n{end}')
    return done.stdout


def succeeds(*command: object) -> bool:
    """Return whether a command ends with 0."""
    return not subprocess.run(
        [str(word) for word in command], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        check=False).returncode


def write(path: pathlib.Path, text: str, mode: int = 0o640) -> pathlib.Path:
    """Write a file whole, or leave the old one; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f'{path.name}.new')
    new.write_text(text)
    new.chmod(mode)
    os.rename(new, path)
    return path


Options = collections.abc.Mapping[str, object]


def ini(groups: collections.abc.Mapping[str, Options]) -> str:
    """Return the text of a configuration file of oslo.config."""
    lines = []
    for group, options in groups.items():
        lines.append(f'[{group}]')
        for name, value in options.items():
            values = value if isinstance(value, (list, tuple)) else [value]
            lines += [f'{name} = {_word(one)}' for one in values]
        lines.append('')
    return '\n'.join(lines)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def merge(*parts: collections.abc.Mapping[str, Options]
          ) -> dict[str, dict[str, object]]:
    """Groups of options, those of later parts over those of earlier ones."""
    merged: dict[str, dict[str, object]] = {}
    for part in parts:
        for group, options in part.items():
            merged.setdefault(group, {}).update(options)
    return merged
