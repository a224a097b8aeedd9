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
"""Writing to a disk through qemu-nbd, which knows its format.

A client of the NBD protocol as far as that takes: fixed newstyle handshake
without TLS, on a unix socket, one request at a time (NBD's ``doc/proto.md``).
"""

import os
import pathlib
import socket
import struct
import subprocess
import tempfile

from diffcache_openstack.common import exceptions

_MAGIC = 0x4e42444d41474943
_OPTION_MAGIC = 0x49484156454f5054
_REPLY_MAGIC = 0x3e889045565a9
_REQUEST = 0x25609513
_SIMPLE_REPLY = 0x67446698
_OPT_GO = 7
_REP_ACK = 1
_REP_INFO = 3
_CMD_WRITE = 1
_CMD_DISCONNECT = 2
_CMD_FLUSH = 3
_CMD_WRITE_ZEROES = 6
_FLAG_FIXED = 1
_FLAG_NO_ZEROES = 2
_TIMEOUT_S = 120.0
# What a shell says when there is no such program.
_NOT_FOUND = 127


def _connect(path: pathlib.Path) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(_TIMEOUT_S)
    connected.connect(str(path))
    return connected


class Client:
    """A connection to an NBD server."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._handle = 0
        self._handshake()

    def _receive(self, length: int) -> bytes:
        data = b''
        while len(data) < length:
            part = self._socket.recv(length - len(data))
            if not part:
                raise exceptions.ServiceUnavailable(
                    'The NBD server closed the connection: look at its log.')
            data += part
        return data

    def _handshake(self) -> None:
        magic, option_magic, flags = struct.unpack('>QQH', self._receive(18))
        if (magic, option_magic) != (_MAGIC, _OPTION_MAGIC):
            raise exceptions.PermanentError('This is no NBD server.')
        self._socket.sendall(struct.pack(
            '>I', flags & (_FLAG_FIXED | _FLAG_NO_ZEROES)))
        payload = struct.pack('>IH', 0, 0)
        self._socket.sendall(struct.pack(
            '>QII', _OPTION_MAGIC, _OPT_GO, len(payload)) + payload)
        while True:
            magic, _option, kind, length = struct.unpack(
                '>QIII', self._receive(20))
            self._receive(length)
            if magic != _REPLY_MAGIC or kind not in (_REP_ACK, _REP_INFO):
                raise exceptions.PermanentError(
                    f'The NBD server refused the export: answer {kind:#x}.')
            if kind == _REP_ACK:
                return

    def _request(self, command: int, offset: int, length: int,
                 data: bytes = b'') -> None:
        self._handle += 1
        self._socket.sendall(struct.pack(
            '>IHHQQI', _REQUEST, 0, command, self._handle, offset, length)
            + data)
        magic, error, handle = struct.unpack('>IIQ', self._receive(16))
        if magic != _SIMPLE_REPLY or handle != self._handle:
            raise exceptions.PermanentError('The NBD server lost its place.')
        if error:
            raise exceptions.PermanentError(
                f'The NBD server could not do command {command} at byte '
                f'{offset}: error {error}.')

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes."""
        self._request(_CMD_WRITE, offset, len(data), data)

    def zero(self, offset: int, length: int) -> None:
        """Write zeroes."""
        while length > 0:
            part = min(length, 1 << 30)
            self._request(_CMD_WRITE_ZEROES, offset, part)
            offset, length = offset + part, length - part

    def flush(self) -> None:
        """Return when what was written is durable."""
        self._request(_CMD_FLUSH, 0, 0)

    def close(self) -> None:
        """Leave the server."""
        self._socket.sendall(struct.pack(
            '>IHHQQI', _REQUEST, 0, _CMD_DISCONNECT, 0, 0, 0))
        self._socket.close()


class Server:
    """qemu-nbd on one disk, which it locks; a context manager.

    It ends with the thread that enters the block, however that ends.

    :raises Busy: a guest has the disk
    """

    def __init__(self, disk: pathlib.Path, disk_format: str) -> None:
        self._disk = disk
        self._format = disk_format

    def __enter__(self) -> Client:
        with tempfile.TemporaryDirectory(prefix='diffcache-') as directory:
            path = pathlib.Path(directory) / 'nbd'
            # The client waits at the door before the server starts, so that
            # nobody else is the first.
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
                door.bind(str(path))
                door.listen(1)
                waiting = _connect(path)
                self._process = self._start(door.fileno())
        self._client = self._meet(waiting)
        return self._client

    def _start(self, door: int) -> subprocess.Popen[str]:
        # A server ends when its last client leaves, but not if that was killed
        # before they had met: the kernel tells it then (``--pdeathsig``), and
        # whoever starts too late for that finds that it has another parent.
        # It takes sockets as systemd hands them over; only the shell knows the
        # number of the process that it will be. It gets the socket as its
        # input, for a shell may know no descriptors of two digits.
        script = ('[ "$PPID" = "$1" ] || exit 1; shift; '
                  'export LISTEN_PID=$$ LISTEN_FDS=1; '
                  'exec qemu-nbd "$@" 3<&0 </dev/null')
        try:
            return subprocess.Popen(
                ['setpriv', '--pdeathsig', 'TERM', '/bin/sh', '-c', script,
                 'sh', str(os.getpid()), '--format', self._format,
                 '--cache', 'writeback', '--discard', 'unmap',
                 '--detect-zeroes', 'off', str(self._disk)],
                stdin=door, stderr=subprocess.PIPE, text=True)
        except FileNotFoundError as exc:
            raise exceptions.PermanentError(
                'setpriv is not installed: install util-linux') from exc

    def _meet(self, waiting: socket.socket) -> Client:
        try:
            return Client(waiting)
        except (exceptions.ServiceUnavailable, OSError) as exc:
            waiting.close()
            self._process.kill()
            _, message = self._process.communicate()
            if self._process.returncode == _NOT_FOUND:
                raise exceptions.PermanentError(
                    'qemu-nbd is not installed: install QEMU\'s tools'
                ) from exc
            kind = (exceptions.Busy if 'lock' in message
                    else exceptions.PermanentError)
            raise kind(f'qemu-nbd cannot open {self._disk}: '
                       f'{message.strip()}') from exc

    def __exit__(self, *_exc_info: object) -> None:
        try:
            self._client.close()
        finally:
            # It ends by itself when its last client has left.
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
            assert self._process.stderr is not None
            self._process.stderr.close()
