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
"""Freezing a guest's filesystems through the QEMU guest agent.

The agent's channel is a unix socket on the host. The guest controls what is
read from it: it is bounded, and only a number is taken from an answer.
"""

import contextlib
import dataclasses
import json
import logging
import pathlib
import secrets
import socket
import time
from typing import Any
from typing import Iterator
from typing import Protocol

from diffcache_openstack.common import exceptions

LOG = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
# An agent answers nothing while it freezes, which writes all that is dirty.
_THAW_S, _THAW_PAUSE_S = 60.0, 1.0
_MOST_BYTES = 1 << 20
# Ends half a message that a former client left in the agent's parser.
_SENTINEL = b'\xff'


class Channel(Protocol):
    """A connection to a guest's agent."""

    def count(self, name: str, /) -> int:
        """Run a command without arguments whose answer is a number.

        :raises PermanentError: the guest refused, or gave another answer
        :raises ServiceUnavailable: no answer came
        """


class Agent:
    """A client of the QEMU guest agent; a context manager.

    :raises ServiceUnavailable: the agent does not answer in time
    """

    def __init__(self, path: pathlib.Path,
                 timeout_s: float = _TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._rest = b''

    def __enter__(self) -> 'Agent':
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(self._timeout_s)
        try:
            self._socket.connect(str(self._path))
            self._synchronize()
        except (OSError, exceptions.DiffCacheError) as exc:
            self._socket.close()
            raise exceptions.ServiceUnavailable(
                f'The guest agent at {self._path} does not answer: {exc}'
            ) from exc
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._socket.close()

    def _line(self) -> bytes:
        deadline = time.monotonic() + self._timeout_s
        while b'\n' not in self._rest:
            if (time.monotonic() > deadline
                    or len(self._rest) > _MOST_BYTES):
                raise exceptions.ServiceUnavailable(
                    f'The guest agent at {self._path} sends no complete '
                    f'answer.')
            data = self._socket.recv(4096)
            if not data:
                raise exceptions.ServiceUnavailable(
                    f'The guest agent at {self._path} closed the connection.')
            self._rest += data
        line, _, self._rest = self._rest.partition(b'\n')
        return line

    def _send(self, name: str, arguments: dict[str, Any],
              before: bytes = b'') -> None:
        request = json.dumps({'execute': name, 'arguments': arguments})
        self._socket.sendall(before + request.encode() + b'\n')

    def _synchronize(self) -> None:
        """Skip answers to a former client."""
        token = secrets.randbits(31)
        self._send('guest-sync-delimited', {'id': token}, _SENTINEL)
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            line = self._line().rpartition(_SENTINEL)[2]
            try:
                answer = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(answer, dict) and answer.get('return') == token:
                return
        raise exceptions.ServiceUnavailable(
            'it sends answers to other requests')

    def count(self, name: str) -> int:
        """Run a command without arguments whose answer is a number.

        :raises PermanentError: the guest refused, or gave another answer
        :raises ServiceUnavailable: no answer came
        """
        try:
            self._send(name, {})
            answer = json.loads(self._line())
        except (OSError, ValueError, RecursionError) as exc:
            raise exceptions.ServiceUnavailable(
                f'The guest agent at {self._path} did not answer {name}: '
                f'{exc}') from exc
        value = answer.get('return') if isinstance(answer, dict) else None
        if not isinstance(value, int):
            raise exceptions.PermanentError(
                f'The guest agent at {self._path} refused {name}: '
                f'{str(answer)[:200]}')
        return value


@dataclasses.dataclass
class Freeze:
    """How a guest's filesystems were frozen."""

    # Whether any was.
    quiesced: bool = False
    frozen_ms: float = 0.0


@contextlib.contextmanager
def frozen(where: pathlib.Path | Channel | None) -> Iterator[Freeze]:
    """Freeze a guest's filesystems for the time of a ``with`` block.

    Without an agent, or if it refuses, they are not frozen: a save then has
    what a power cut would leave. That is logged, and part of the result.

    :param where: the agent's socket, or a connection; None for a guest
        without an agent
    """
    found = Freeze()
    if where is None:
        yield found
        return
    started = _freeze(where, found)
    try:
        yield found
    finally:
        if started is not None:
            thaw(where)
            if found.quiesced:
                found.frozen_ms = (time.monotonic() - started) * 1000


def _connect(where: pathlib.Path | Channel
             ) -> contextlib.AbstractContextManager[Channel]:
    if isinstance(where, pathlib.Path):
        return Agent(where)
    return contextlib.nullcontext(where)


def _freeze(where: pathlib.Path | Channel, found: Freeze
            ) -> float | None:
    """Freeze filesystems; return when, or None if none can be frozen."""
    started = None
    try:
        with _connect(where) as agent:
            started = time.monotonic()
            # A guest without a filesystem that can be frozen says 0.
            found.quiesced = agent.count('guest-fsfreeze-freeze') > 0
    except exceptions.PermanentError as exc:
        LOG.warning('Saving without freezing filesystems: the guest refused, '
                    'or they are frozen already: %s', exc)
        return None
    except exceptions.DiffCacheError as exc:
        LOG.warning('Saving without freezing filesystems: %s', exc)
    # A freeze whose answer was lost may still have happened.
    return started


def thaw(where: pathlib.Path | Channel) -> None:
    """Thaw a guest's filesystems; does nothing if they are not frozen."""
    deadline = time.monotonic() + _THAW_S
    while True:
        try:
            with _connect(where) as agent:
                agent.count('guest-fsfreeze-thaw')
            return
        except exceptions.DiffCacheError as exc:
            if (isinstance(exc, exceptions.PermanentError)
                    or time.monotonic() > deadline):
                LOG.error('Could not thaw the guest through its agent at %s: '
                          '%s; thaw it by hand (virsh domfsthaw)', where, exc)
                return
        time.sleep(_THAW_PAUSE_S)
