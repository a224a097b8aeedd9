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
``docs/system/images.rst`` of QEMU, ``block/file-posix.c``). The byte after
those is ours: saves share it, also those that a guest may run beside, and what
writes to disks excludes them. The locks belong to open files
(``F_OFD_SETLK``), and end with them.
"""

import contextlib
import fcntl
import os
import pathlib
import struct
import threading
from typing import Iterator

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import disk_files

# ``struct flock``: type, whence, start, length, process.
_LOCK = struct.Struct('hhqqi4x')
_FIRST, _BYTES, _WRITES = 100, 200, 101
_OURS = _FIRST + _BYTES


class _Held(threading.local):
    """The locks that a thread holds: descriptors, by device and inode."""

    def __init__(self) -> None:
        self.fds: dict[tuple[int, int], int] = {}


_held = _Held()


@contextlib.contextmanager
def hold(disk: pathlib.Path) -> Iterator[int]:
    """Lock a disk for the time of a ``with`` block: no guest can use it.

    In the block the same thread may lock it again. QEMU's programs are given
    the lock, and take none of their own (:mod:`.programs`).

    :returns: a descriptor of the disk, which is open for writing
    :raises Busy: a guest or program uses it
    """
    with _hold(disk, _BYTES) as fd:
        yield fd


@contextlib.contextmanager
def hold_alone(disk: pathlib.Path) -> Iterator[int]:
    """Lock a disk as :func:`hold` does: nothing saves it, either.

    :raises Busy: a guest or program uses it, or it is being saved
    """
    with _hold(disk, _BYTES + 1) as fd:
        yield fd


@contextlib.contextmanager
def _hold(disk: pathlib.Path, count: int) -> Iterator[int]:
    fd = disk_files.access().open_writable(disk)
    try:
        key = _key(fd)
        if key in _held.fds:
            yield _held.fds[key]
            return
        _lock(fd, disk, fcntl.F_WRLCK, (_FIRST, count))
        _held.fds[key] = fd
        try:
            yield fd
        finally:
            del _held.fds[key]
    finally:
        os.close(fd)


@contextlib.contextmanager
def reading(disk: pathlib.Path) -> Iterator[None]:
    """Keep a disk from being rolled back for the time of a ``with`` block.

    Guests may use it.

    :raises Busy: it is being rolled back
    """
    fd = disk_files.access().open(disk)
    try:
        if _key(fd) not in _held.fds:
            _lock(fd, disk, fcntl.F_RDLCK, (_OURS, 1))
        yield
    finally:
        os.close(fd)


def _key(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _lock(fd: int, disk: pathlib.Path, kind: int, place: tuple[int, int]
          ) -> None:
    """Lock bytes of an open disk.

    :raises Busy: another open file has a lock that excludes it
    """
    lock = _LOCK.pack(kind, os.SEEK_SET, *place, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, lock)
    except (BlockingIOError, PermissionError) as exc:
        raise exceptions.Busy(
            f'{disk} is in use: stop the guest that has it, or wait until it '
            f'is saved or rolled back.') from exc


def check_idle(disk: pathlib.Path) -> None:
    """Check that no guest writes to a disk, and nothing rolls it back.

    :raises Busy: another process or thread does
    """
    fd = disk_files.access().open(disk)
    try:
        if _key(fd) in _held.fds:
            return
        wanted = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _WRITES, 1, 0)
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, wanted)
    finally:
        os.close(fd)
    if _LOCK.unpack(found)[0] != fcntl.F_UNLCK:
        raise exceptions.Busy(
            f'{disk} is in use: stop its guest, or name its QMP socket; if it '
            f'is being rolled back, wait until that is done.')
