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
"""qemu-nbd on a disk, which native code writes to through it."""

import logging
import os
import pathlib
import socket
import subprocess
import tempfile

from diffcache_openstack import _native
from diffcache_openstack.blocks import native as native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import block_nodes

LOG = logging.getLogger(__name__)

_TIMEOUT_S = 120.0
# The exit code of a shell that does not find a program.
_NOT_FOUND = 127


def _connect(path: pathlib.Path) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(_TIMEOUT_S)
    connected.connect(str(path))
    return connected


def open_export(connected: socket.socket) -> _native.DiskWriter:
    """Open the disk that the server on a socket exports.

    :raises RetryableError: the server closed the connection
    :raises PermanentError: it refuses
    """
    with connected, native_errors.translated():
        # Native code has time limits of its own.
        connected.setblocking(True)
        return _native.DiskWriter.nbd(connected.fileno())


class Server:
    """qemu-nbd on one disk, which it locks; a context manager.

    It ends with the thread that enters the block, even if that is killed.

    :param base: the image below a qcow2 disk, which QEMU reads where it writes
        parts of clusters; see :func:`.block_nodes.file_name`
    :raises Busy: a guest uses the disk
    :raises InvalidInput: the base is refused
    """

    def __init__(self, disk: pathlib.Path, disk_format: str,
                 base: pathlib.Path | None = None) -> None:
        self._disk = disk
        self._node = block_nodes.file_name(disk, disk_format, base)

    def __enter__(self) -> _native.DiskWriter:
        with tempfile.TemporaryDirectory(prefix='diffcache-') as directory:
            path = pathlib.Path(directory) / 'nbd'
            # Connect before the server starts, so that no other client can be
            # the first.
            with socket.socket(socket.AF_UNIX,
                               socket.SOCK_STREAM) as listening:
                listening.bind(str(path))
                listening.listen(1)
                connected = _connect(path)
                self._process = self._start(listening.fileno())
        self._export = self._open(connected)
        return self._export

    def _start(self, listening: int) -> subprocess.Popen[str]:
        # A server ends when its last client disconnects, but not if that was
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
                 '--discard', 'unmap', '--detect-zeroes', 'off', self._node],
                stdin=listening, stderr=subprocess.PIPE, text=True)
        except FileNotFoundError as exc:
            raise exceptions.PermanentError(
                'setpriv is not installed: install util-linux') from exc

    def _open(self, connected: socket.socket) -> _native.DiskWriter:
        try:
            return open_export(connected)
        except (exceptions.DiffCacheError, OSError) as exc:
            self._process.kill()
            _, message = self._process.communicate()
            if self._process.returncode == _NOT_FOUND:
                raise exceptions.PermanentError(
                    'qemu-nbd is not installed: install qemu-utils'
                ) from exc
            kind = (exceptions.Busy if 'lock' in message
                    else exceptions.PermanentError)
            raise kind(f'qemu-nbd cannot open {self._disk}: '
                       f'{message.strip()}') from exc

    def __exit__(self, kind: type[BaseException] | None,
                 *_exc_info: object) -> None:
        try:
            with native_errors.translated():
                self._export.close()
        except exceptions.DiffCacheError as exc:
            if kind is None:
                raise
            LOG.debug('Could not disconnect from qemu-nbd: %s', exc)
        finally:
            # It ends by itself when its last client has disconnected.
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
            assert self._process.stderr is not None
            self._process.stderr.close()
