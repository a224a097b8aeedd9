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
import pathlib
import socket

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import disk_files
from diffcache_openstack.versions.disks import programs

LOG = logging.getLogger(__name__)


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
    """qemu-nbd on one disk; a context manager.

    It ends with the thread that enters the block, even if that is killed.

    :param lock: of the disk, see :func:`.locks.hold`
    :param base: the image below a qcow2 disk, which QEMU reads where it writes
        parts of clusters; see :func:`.block_nodes.file_name`
    :raises Busy: a guest writes to the base
    :raises InvalidInput: the base is refused
    """

    def __init__(self, disk: pathlib.Path, lock: int, disk_format: str,
                 base: pathlib.Path | None = None) -> None:
        self._disk = disk
        self._lock = lock
        self._format = disk_format
        self._base = base

    def __enter__(self) -> _native.DiskWriter:
        self._server = disk_files.access().serve(self._disk, self._lock,
                                                 self._format, self._base)
        self._export = self._open(self._server)
        return self._export

    def _open(self, server: programs.Server) -> _native.DiskWriter:
        try:
            return open_export(server.connected)
        except (exceptions.DiffCacheError, OSError) as exc:
            ended = server.end()
            if ended.code == programs.NOT_FOUND:
                raise exceptions.PermanentError(
                    'qemu-nbd is not installed: install qemu-utils'
                ) from exc
            kind = (exceptions.Busy if 'lock' in ended.message
                    else exceptions.PermanentError)
            raise kind(f'qemu-nbd cannot open {self._disk}: '
                       f'{ended.message}') from exc

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
            self._server.wait()
