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
"""QEMU's locks on images, which show that a process uses a disk.

QEMU locks single bytes of an image, unrelated to its content: 100 and
following for what it does with the image (101: it writes), 200 and following
for what no other process may do ("Image locking" in
``docs/system/images.rst`` of QEMU, ``block/file-posix.c``). The locks belong
to open files (``F_OFD_SETLK``), and end with them.
"""

import fcntl
import os
import pathlib
import struct

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import disk_files

# ``struct flock``: type, whence, start, length, process.
_LOCK = struct.Struct('hhqqi4x')
_FIRST, _BYTES = 100, 200
_WRITES = 101


def exclude(handle: int, disk: pathlib.Path) -> None:
    """Lock a disk against other processes until its file is closed.

    :param handle: of a file that is open for writing
    :raises Busy: another process uses it
    """
    lock = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _FIRST, _BYTES, 0)
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, lock)
    except (BlockingIOError, PermissionError) as exc:
        raise exceptions.Busy(
            f'{disk} is in use: stop the guest that has it.') from exc


def check_idle(disk: pathlib.Path) -> None:
    """Check that no guest writes to a disk.

    :raises Busy: a guest does
    """
    fd = disk_files.access().open(disk)
    try:
        wanted = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _WRITES, 1, 0)
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, wanted)
    finally:
        os.close(fd)
    if _LOCK.unpack(found)[0] != fcntl.F_UNLCK:
        raise exceptions.Busy(
            f'{disk} is in use: stop its guest, or name its QMP socket.')
