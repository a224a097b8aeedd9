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
"""Outputs of images, written by a privileged process."""

import itertools
import os
import pathlib
import threading

from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent.privileged import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.runtime import directories

# Unfinished outputs; more are refused.
_MOST_PARTS = 1024


class _Service:
    """What the process knows: set before it is forked.

    :ivar roots: ``[agent] output_directories``
    :ivar staging: directory of the agent whose files become outputs
    """

    def __init__(self) -> None:
        self.roots: tuple[str, ...] = ()
        self.staging = ''
        self._parts: dict[int, outputs.LocalPart] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def output(self, path: object) -> outputs.LocalOutput:
        """Return the output with a path."""
        output = outputs.LocalOutput(pathlib.Path(contexts.text(path)),
                                     self.roots)
        output.check()
        return output

    def add(self, part: outputs.LocalPart) -> int:
        """Keep an unfinished output; return its number."""
        with self._lock:
            if len(self._parts) < _MOST_PARTS:
                number = next(self._numbers)
                self._parts[number] = part
                return number
        part.discard()
        raise exceptions.ServiceUnavailable(
            'This agent writes as many outputs as it may.')

    def pop(self, number: object) -> outputs.LocalPart | None:
        """Return an unfinished output, and forget it."""
        with self._lock:
            return self._parts.pop(number, None) if isinstance(
                number, int) else None


_service = _Service()


def configure(roots: tuple[str, ...], staging: str) -> None:
    """State what the process is for, before it is forked."""
    _service.roots, _service.staging = roots, staging


@contexts.FILES.entrypoint
def check(path: str) -> None:
    """Refuse an output that cannot be written."""
    _service.output(path)


@contexts.FILES.entrypoint
def create(path: str) -> tuple[int, int]:
    """Create an output under a hidden name; pass on its descriptor.

    :returns: its number, and that of the descriptor
    """
    part = _service.output(path).create()
    number = _service.add(part)
    return number, contexts.FILES.send(part.fd)


@contexts.FILES.entrypoint
def publish(number: int, durable: bool) -> None:
    """Hand an unfinished output over, under its final name."""
    part = _service.pop(number)
    if part is None:
        raise exceptions.NotFound('There is no such output.')
    try:
        part.publish(durable is True)
    finally:
        part.discard()


@contexts.FILES.entrypoint
def discard(number: int) -> None:
    """Remove an unfinished output."""
    part = _service.pop(number)
    if part is not None:
        part.discard()


@contexts.FILES.entrypoint
def shares_mount(path: str) -> bool:
    """Return whether files of the agent can be renamed to be an output."""
    with _service.output(path).directory() as directory, \
            directories.Directory.open(_service.staging) as staging:
        return directory.shares_mount(staging)


@contexts.FILES.entrypoint
def take(path: str, name: str, durable: bool) -> None:
    """Make a file of the agent an output, by renaming it.

    :param name: of the file in the agent's directory
    """
    part = _service.output(path).create()
    try:
        with directories.Directory.open(_service.staging) as staging:
            # The agent could have put a link to another directory there.
            if staging.owner().st_uid != os.geteuid():
                raise exceptions.InvalidInput(
                    f'{_service.staging} does not belong to the agent.')
            # Checks that it is a name.
            staging.status(contexts.text(name))
            part.replace(staging, name)
        part.publish(durable is True)
    finally:
        part.discard()


@contexts.FILES.entrypoint
def open_readable(path: str) -> tuple[None, int]:
    """Open an output that all users may read; pass on its descriptor.

    Only the directories that it is in may be closed to the agent's user.
    """
    fd = _service.output(path).open()
    try:
        return None, contexts.FILES.send(fd)
    finally:
        os.close(fd)


@contexts.FILES.entrypoint
def clean(path: str) -> None:
    """Remove what killed processes left of an output."""
    outputs.LocalOutput(pathlib.Path(contexts.text(path)),
                        _service.roots).clean()


class PrivilegedPart:
    """An unfinished output of the privileged process."""

    def __init__(self, number: int, fd: int) -> None:
        self._number: int | None = number
        self.fd = fd

    def publish(self, durable: bool) -> None:
        """Hand the file over under its final name."""
        number, self._number = self._number, None
        os.close(self.fd)
        publish(number, durable)

    def discard(self) -> None:
        """Remove the file; nothing happens after it was published."""
        if self._number is not None:
            number, self._number = self._number, None
            os.close(self.fd)
            discard(number)


class PrivilegedOutput:
    """An output that the privileged process writes for this agent."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def check(self) -> None:
        """Refuse an output that cannot be written, before any byte moves."""
        check(str(self.path))

    def create(self) -> PrivilegedPart:
        """Create the file under a hidden name."""
        return PrivilegedPart(*contexts.FILES.receiving(create,
                                                        str(self.path)))

    def can_take(self, source: pathlib.Path) -> bool:
        """Return whether a file can be renamed to be the output."""
        return (str(source.parent) == _service.staging
                and shares_mount(str(self.path)))

    def take(self, source: pathlib.Path, durable: bool) -> None:
        """Make a file of this agent the output, by renaming it."""
        take(str(self.path), source.name, durable)

    def open(self) -> int:
        """Open the file for reading, if all users of this host may read it."""
        return contexts.FILES.receiving(open_readable, str(self.path))[1]

    def clean(self) -> None:
        """Remove what killed processes left of it."""
        clean(str(self.path))


class PrivilegedOutputs(outputs.Outputs):
    """Directories that images are written to by the privileged process."""

    def find(self, path: pathlib.Path) -> outputs.Output:
        """Return the output with a path, unchecked."""
        return PrivilegedOutput(path)
