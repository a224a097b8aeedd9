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
"""Sharing extents between files, where the filesystem can (XFS, Btrfs)."""

import errno
import fcntl
import struct

# ioctl(2), from linux/fs.h: _IOW(0x94, 9, int), and _IOW(0x94, 13, struct
# file_clone_range), whose argument is file, offset, length and offset.
_FICLONE = 0x40049409
_FICLONERANGE = 0x4020940D
_RANGE = struct.Struct('=qQQQ')
# What a filesystem answers that cannot share extents between two files.
UNSUPPORTED = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY,
               errno.ENOSYS)


def clone(source: int, target: int) -> None:
    """Make an open file share all extents of another.

    :raises OSError: as the kernel reports it; with an error number of
        ``UNSUPPORTED`` if the filesystem cannot share extents
    """
    fcntl.ioctl(target, _FICLONE, source)


def clone_start(source: int, target: int, length: int) -> None:
    """Make an open file share the first bytes of another.

    :param length: bytes, a multiple of the filesystem's blocks; 0 for all
    :raises OSError: as ``clone``
    """
    fcntl.ioctl(target, _FICLONERANGE, _RANGE.pack(source, 0, length, 0))
