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
"""Commands to a daemon of this host, over its control socket.

A command is an object of JSON in a line, and so is its answer; one that failed
has ``error``, with ``type`` and ``message``.
"""

import contextlib
import json
import os
import socket
import typing

from diffcache_openstack.common import exceptions

_LONGEST_ANSWER = 64 << 20

Document = dict[str, typing.Any]


class CommandFailed(exceptions.DiffCacheError):
    """The daemon did not carry a command out.

    :ivar kind: the type of the error, as the daemon names it
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def ask(path: str | os.PathLike[str], command: Document, timeout: float
        ) -> Document:
    """Send a command, and return the answer.

    :param timeout: seconds for each step of the exchange
    :raises OSError: nothing answers; TimeoutError, if not in time
    :raises ValueError: the answer is that of no daemon
    :raises CommandFailed: for the reason that the daemon gives
    """
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as client:
        client.settimeout(timeout)
        client.connect(os.fspath(path))
        client.sendall(json.dumps(command).encode() + b'\n')
        with client.makefile('rb') as stream:
            answer = json.loads(stream.readline(_LONGEST_ANSWER))
    if not isinstance(answer, dict):
        raise ValueError(f'no object: {answer!r:.100}')
    failed = answer.get('error')
    if failed is None:
        return answer
    if not isinstance(failed, dict):
        raise ValueError(f'no error: {failed!r:.100}')
    raise CommandFailed(str(failed.get('type')), str(failed.get('message')))
