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
"""Waiting for what other threads and processes do."""

import collections.abc
import socket
import subprocess
import time
import typing

from testing import server

# However slow and busy the machine is: only what hangs takes this long.
SECONDS = 240.0
_POLL_SECONDS = 0.01

Found = typing.TypeVar('Found')


def until(ready: collections.abc.Callable[[], Found], what: str,
          *not_yet: type[Exception],
          seen: collections.abc.Callable[[], object] | None = None) -> Found:
    """Return what a function returns as soon as that is true.

    :param what: the function stands for, as the failure says it
    :param not_yet: errors of the function that mean that it is not so yet
    :param seen: returns what the failure says was seen last, in place of what
        the function returned or raised last
    :raises AssertionError: it is not so after :data:`SECONDS`
    """
    deadline = time.monotonic() + SECONDS
    while True:
        # Looked at once more after the deadline: the machine may have slept.
        is_last = time.monotonic() > deadline
        last: object
        try:
            if last := ready():
                return last
        except not_yet as error:
            last = error
        if is_last:
            raise AssertionError(f'Waited for {what} in vain; seen last: '
                                 f'{seen() if seen else repr(last)}')
        time.sleep(_POLL_SECONDS)


def until_started(process: subprocess.Popen[bytes],
                  answers: collections.abc.Callable[[], Found], what: str,
                  *not_yet: type[Exception],
                  seen: collections.abc.Callable[[], object] | None = None
                  ) -> Found:
    """Wait as :func:`until` until a process that was started answers.

    :raises AssertionError: it ended before, or does not answer
    """
    def ready() -> Found:
        if process.poll() is not None:
            raise AssertionError(f'{what} ended with {process.returncode}: '
                                 f'{seen() if seen else process.args}')
        return answers()

    return until(ready, what, *not_yet, seen=seen)


def until_listening(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait as :func:`until_started` until a process listens on a port."""
    def listens() -> bool:
        socket.create_connection((server.LOOPBACK, port)).close()
        return True

    until_started(process, listens, f'a listener on port {port}',
                  ConnectionRefusedError)
