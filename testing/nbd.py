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
"""A client of NBD that has several requests under way, and sees their end."""

import contextlib
import socket
import struct
import typing
import urllib.parse

# A server that does not answer is not waited for.
PATIENCE_S = 120
READ, WRITE, FLUSH, ZERO = 0, 1, 3, 6

_OPTION_GO = 7
_REPLY_ACK = 1
_OPTION_MAGIC = b'IHAVEOPT'
_REQUEST = struct.Struct('>IHHQQI')
_REQUEST_MAGIC = 0x25609513
_REPLY = struct.Struct('>IIQ')


class Answer(typing.NamedTuple):
    """The answer to a request."""

    handle: int
    error: int
    data: bytes


class Client(contextlib.AbstractContextManager):
    """A connection to an export.

    :param uri: ``nbd+unix:///EXPORT?socket=PATH``
    """

    def __init__(self, uri: str) -> None:
        parts = urllib.parse.urlsplit(uri)
        [path] = urllib.parse.parse_qs(parts.query)['socket']
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect(path)
        self._lengths: dict[int, int] = {}
        self._handles = 0
        self._negotiate(parts.path.lstrip('/').encode())

    def __exit__(self, *ended):
        self._socket.close()

    def _negotiate(self, export: bytes) -> None:
        self._receive(18)
        name = struct.pack('>I', len(export)) + export + b'\0\0'
        # Fixed newstyle, without the zeroes that end the handshake of old.
        self._socket.sendall(
            struct.pack('>I', 3) + _OPTION_MAGIC
            + struct.pack('>II', _OPTION_GO, len(name)) + name)
        kind = None
        while kind != _REPLY_ACK:
            _, _, kind, length = struct.unpack('>QIII', self._receive(20))
            if kind & 1 << 31:
                raise ConnectionError(f'the export is refused: {kind:#x}')
            self._receive(length)

    def _receive(self, length: int) -> bytes:
        received = bytearray()
        while len(received) < length:
            part = self._socket.recv(length - len(received))
            if not part:
                raise ConnectionError('the connection ended')
            received += part
        return bytes(received)

    def send(self, kind: int, offset: int = 0, length: int = 0,
             data: bytes = b'') -> int:
        """Send a request, and return its handle."""
        self._handles += 1
        self._lengths[self._handles] = length if kind == READ else 0
        self._socket.sendall(_REQUEST.pack(
            _REQUEST_MAGIC, 0, kind, self._handles, offset,
            length or len(data)) + data)
        return self._handles

    def receive(self) -> Answer:
        """Wait for the answer to any request.

        :raises ConnectionError: the connection ended
        """
        _, error, handle = _REPLY.unpack(self._receive(_REPLY.size))
        length = self._lengths.pop(handle)
        data = b'' if error else self._receive(length)
        return Answer(handle, error, data)

    def read(self, offset: int, length: int) -> bytes:
        """Read, with nothing else under way."""
        self.send(READ, offset, length)
        answer = self.receive()
        if answer.error:
            raise OSError(answer.error, 'read refused')
        return answer.data
