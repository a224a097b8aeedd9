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
"""What identifies the state of a file, so that a change of it is noticed.

The kernel sets the change time at every write, change of attributes and
rename, and only root can set it otherwise. A write through a mapping sets it
once for as long as the page is dirty: :func:`settle` writes pages back, so
that each later write sets it again.
"""

import fcntl
import os
import struct
import time
import typing

# ioctl(2), from linux/fs.h: _IOR('v', 1, long). The kernel writes an int.
_FS_IOC_GETVERSION = 0x80087601
_INT = struct.Struct('=I')
# The clock of change times advances by a tick of the kernel.
_TICK_NS = 10 ** 9


class Identity(typing.NamedTuple):
    """A state of a file; two that are equal have the same content.

    :ivar generation: of the inode's number; 0 where the filesystem has none
    :ivar changed: change time, nanoseconds
    """

    device: int
    inode: int
    generation: int
    size: int
    changed: int

    @classmethod
    def of(cls, fd: int) -> 'Identity':
        """Return the identity of an open file."""
        found = os.fstat(fd)
        return cls(found.st_dev, found.st_ino, _generation(fd), found.st_size,
                   found.st_ctime_ns)

    def is_same_file(self, other: 'Identity') -> bool:
        """Return whether only the time of the last change differs, at most.

        Devices are left out: their numbers may change with a restart.
        """
        return self[1:4] == other[1:4]


def settle(fd: int) -> Identity | None:
    """Return a file's identity before its content is read.

    :returns: None if another user could write to the file without that its
        identity changes: it was changed within the resolution of its time
    """
    found = Identity.of(fd)
    if time.time_ns() - found.changed < _TICK_NS:
        return None
    os.fsync(fd)
    return found


def _generation(fd: int) -> int:
    try:
        found = fcntl.ioctl(fd, _FS_IOC_GETVERSION, bytes(8))
    except OSError:
        return 0
    return _INT.unpack_from(found)[0]
