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
"""QEMU's programs, on files that are open.

They open ``/proc/self/fd/N``, so that no name is resolved again, and the
message about a failure names the disk itself. They inherit the lock of who
starts them, so that it ends no sooner than they do.
"""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.runtime import directories
from diffcache_openstack.versions.disks import block_nodes

_CONNECT_S = 120.0
_END_S = 60
# Descriptors of one digit are for the shell's own use.
_FIRST_FD = 10
# The exit code of a shell that does not find a program.
NOT_FOUND = 127
# Of a qcow2 header: the magic number, the version, and the incompatible
# features.
_FEATURES = struct.Struct('>4sI64xQ')
_DATA_FILE = 1 << 2


@dataclasses.dataclass(frozen=True)
class Layers:
    """The open files of a disk, of which the caller keeps the descriptors.

    :param disk: its path, for messages
    :param lock: descriptor of the disk that is locked, see :func:`.locks.hold`
    :param format: ``raw`` or ``qcow2``
    :param base: descriptor of the image below; None for none
    """

    disk: str
    fd: int
    lock: int
    format: str
    base: int | None = None


@dataclasses.dataclass(frozen=True)
class Result:
    """How a program ended."""

    code: int
    message: str


class Server(typing.Protocol):
    """A server that exports a disk by NBD to one client.

    :ivar connected: the client's socket
    """

    connected: socket.socket

    def end(self) -> Result:
        """Kill the server; return how it ended."""

    def wait(self) -> None:
        """Wait until the server ends, as it does after its last client."""


def _refuse_data_file(layers: Layers) -> None:
    """Refuse a qcow2 disk whose data QEMU would open by a name in its header.

    The program may have rights that the disk's writer lacks.

    :raises InvalidInput: it has an external data file (QEMU, qcow2
        specification, incompatible features, bit 2)
    """
    header = os.pread(layers.fd, _FEATURES.size, 0)
    if len(header) == _FEATURES.size:
        magic, version, features = _FEATURES.unpack(header)
        if magic == b'QFI\xfb' and version >= 3 and features & _DATA_FILE:
            raise exceptions.InvalidInput(
                f'The disk {layers.disk} keeps its data in another file,'
                f' which is not supported.')


@contextlib.contextmanager
def _passed(layers: Layers) -> typing.Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name of a disk for a program, and the descriptors it needs.

    :raises InvalidInput: a name in the disk would have the program open more
    """
    if layers.format == 'qcow2':
        _refuse_data_file(layers)
    with contextlib.ExitStack() as stack:
        fds = []
        for fd in (layers.lock, layers.fd, layers.base):
            if fd is not None:
                fds.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD))
                stack.callback(os.close, fds[-1])
        paths = [directories.descriptor_path(fd) for fd in fds[1:]]
        yield (block_nodes.file_name(paths[0], layers.format,
                                     *paths[1:]), tuple(fds))


def _message(text: str, layers: Layers) -> str:
    """Return what a program said, with the disk's name in it."""
    lines = text.strip().replace('\n', ' ')
    return lines.replace('/proc/self/fd/', f'{layers.disk}, descriptor ')


def qemu_img(layers: Layers, arguments: typing.Sequence[str],
             timeout_s: float) -> Result:
    """Run qemu-img on a disk.

    :param arguments: its command and options; the disk follows them
    :raises PermanentError: it is not installed
    :raises ServiceUnavailable: it did not end in time, and was killed
    """
    with _passed(layers) as (node, fds):
        try:
            done = subprocess.run(
                ['qemu-img', *arguments, node], pass_fds=fds,
                capture_output=True, text=True, timeout=timeout_s)
        except FileNotFoundError as exc:
            raise exceptions.PermanentError(
                'qemu-img is not installed: install QEMU\'s tools') from exc
        except subprocess.TimeoutExpired as exc:
            raise exceptions.ServiceUnavailable(
                f'qemu-img did not finish with {layers.disk} in '
                f'{timeout_s:.0f} seconds') from exc
    return Result(done.returncode, _message(done.stderr, layers))


class NbdServer:
    """qemu-nbd, which serves a disk to one client and locks it meanwhile.

    It ends with its client's connection, or with the thread that starts it.

    :ivar connected: the client's socket, which this object does not close
    :raises PermanentError: ``setpriv`` is not installed
    """

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        with tempfile.TemporaryDirectory(prefix='diffcache-') as directory:
            path = pathlib.Path(directory) / 'nbd'
            # Connect before the server starts, so that no other client can be
            # the first.
            with socket.socket(socket.AF_UNIX,
                               socket.SOCK_STREAM) as listening:
                listening.bind(str(path))
                listening.listen(1)
                self.connected = _connect(path)
                try:
                    with _passed(layers) as (node, fds):
                        self._process = _start(listening.fileno(), node, fds)
                except BaseException:
                    self.connected.close()
                    raise

    def end(self) -> Result:
        """Kill the server; return how it ended, or would have."""
        self._process.kill()
        _, message = self._process.communicate()
        return Result(self._process.returncode,
                      _message(message, self._layers))

    def wait(self) -> None:
        """Wait until the server ends, as it does after its last client."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


def _connect(path: pathlib.Path) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(_CONNECT_S)
    connected.connect(str(path))
    return connected


def _start(listening: int, node: str, fds: tuple[int, ...]
           ) -> subprocess.Popen:
    # The server ends when its last client disconnects, but not if that was
    # killed before the handshake: the kernel kills it then
    # (``--pdeathsig``; it loses a SIGTERM that arrives before its main
    # loop runs), and one that starts too late for that finds that it has
    # another parent. It takes sockets as systemd passes them; only
    # the shell knows its process id in advance. It gets the socket as its
    # input, since a shell may support no descriptors of two digits.
    script = ('[ "$PPID" = "$1" ] || exit 1; shift; '
              'export LISTEN_PID=$$ LISTEN_FDS=1; '
              'exec qemu-nbd "$@" 3<&0 </dev/null')
    try:
        return subprocess.Popen(
            ['setpriv', '--pdeathsig', 'KILL', '/bin/sh', '-c', script,
             'sh', str(os.getpid()), '--cache', 'writeback',
             '--discard', 'unmap', '--detect-zeroes', 'off', node],
            stdin=listening, stderr=subprocess.PIPE, text=True, pass_fds=fds)
    except FileNotFoundError as exc:
        raise exceptions.PermanentError(
            'setpriv is not installed: install util-linux') from exc
