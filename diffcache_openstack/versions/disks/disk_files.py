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
"""Disks of servers, and the files of ours beside them.

The directories are Nova's, and disks belong to whichever user the hypervisor
gives them to. What is done to them is done here, by descriptors of their
directories: no symbolic link in them is followed, and a privileged process can
do it for an agent that has no rights to them.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import stat
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.runtime import directories
from diffcache_openstack.versions.disks import programs

# What qemu-img does with a disk.
CHECK_LEAKS, CREATE_SNAPSHOT, DELETE_SNAPSHOT = 'check', 'create', 'delete'
_IMG_TIMEOUT_S = 120
# What qemu-img handles of a disk in a second at least, beyond that time.
_BYTES_PER_S = 100e6
# Names of the files beside a disk: views, journals of rollbacks with what a
# killed process left of them, marks of qemu-img, and new disks.
_COMPANION = re.compile(
    r'\..+\.[0-9a-f]+\.view(\.part)?'
    r'|.+\.rollback'
    r'|\..+\.rollback\.[0-9a-f]{12}\.part'
    r'|.+\.snapshots'
    r'|\..+\.rebuilt\.part')


class OwnerError(exceptions.PermanentError):
    """A new disk cannot have the owner of the old one."""


def _check_companion(name: str) -> str:
    """Return what is the name of a file of ours beside a disk.

    :raises InvalidInput: it is another one
    """
    if not _COMPANION.fullmatch(name):
        raise exceptions.InvalidInput(
            f'{name!r} is no name of a file beside a disk.')
    return name


@dataclasses.dataclass(frozen=True)
class DiskFiles:
    """Disks and the files beside them, with the rights of this process.

    Methods that return a descriptor leave closing it to the caller. All raise
    OSError as the kernel reports it, and NotAFile where something else than a
    file has its name.

    :param roots: directories that disks have to be in one of, in which no
        link is followed; None: disks are those that the caller's user names
    """

    roots: tuple[str, ...] | None = None

    def _directory(self, path: pathlib.Path) -> directories.Directory:
        """Open the directory that a file is in."""
        if self.roots is None:
            return directories.Directory.open(path.parent)
        return directories.Directory.below(self.roots, path.parent)

    def _open_disk(self, path: pathlib.Path, flags: int) -> int:
        if self.roots is None and not _COMPANION.fullmatch(path.name):
            # A user may name a disk by a link, and LVM does.
            return directories.open_named(path, flags)
        with self._directory(path) as directory:
            return directory.open_file(path.name, flags)

    def open(self, path: pathlib.Path) -> int:
        """Open a disk, a file beside one, or a base image, for reading."""
        return self._open_disk(path, os.O_RDONLY)

    def open_writable(self, path: pathlib.Path) -> int:
        """Open a disk for reading and writing."""
        return self._open_disk(path, os.O_RDWR)

    def create(self, path: pathlib.Path) -> int:
        """Create a file beside a disk, or empty it; open it for writing.

        It is as private as disks of servers are.
        """
        with self._directory(path) as directory:
            fd = directory.open_file(_check_companion(path.name),
                                     os.O_RDWR | os.O_CREAT)
            os.ftruncate(fd, 0)
            return fd

    def rename(self, path: pathlib.Path, name: str) -> None:
        """Rename a file beside a disk, durably."""
        with self._directory(path) as directory:
            directory.rename(_check_companion(path.name),
                             _check_companion(name))
            directory.sync()

    def remove(self, path: pathlib.Path) -> None:
        """Remove a file beside a disk, if it exists."""
        with self._directory(path) as directory:
            directory.unlink(_check_companion(path.name))

    def companions(self, path: pathlib.Path) -> list[str]:
        """Return the names of the files of ours that a directory has."""
        with self._directory(path / 'any') as directory:
            return [name for name in directory.names()
                    if _COMPANION.fullmatch(name)]

    def sync_directory(self, path: pathlib.Path) -> None:
        """Make the names of the files beside a disk durable."""
        with self._directory(path) as directory:
            directory.sync()

    # -- new disks

    def create_room(self, disk: pathlib.Path) -> int:
        """Create a private directory beside a disk, in which to build it."""
        name = _room(disk)
        with self._directory(disk) as directory:
            os.mkdir(name, 0o700, dir_fd=directory.fd)
            return directory.open_directory(name).fd

    def adopt(self, disk: pathlib.Path) -> None:
        """Give a new disk the owner, group and mode of the old one.

        :raises OwnerError: this process may not do that
        """
        with self._directory(disk) as directory:
            # To where nothing but this process can exchange it.
            new = _new(disk)
            with directory.open_directory(_room(disk)) as room:
                os.rename(disk.name, new, src_dir_fd=room.fd,
                          dst_dir_fd=directory.fd)
            old = os.stat(disk) if self.roots is None else directory.status(
                disk.name)
            fd = directory.open_file(new)
            try:
                _adopt(fd, old, disk)
            finally:
                os.close(fd)

    def replace(self, disk: pathlib.Path) -> None:
        """Put the new disk that was adopted in the place of the old one."""
        with self._directory(disk) as directory:
            directory.rename(_new(disk), disk.name)
            directory.sync()

    def remove_room(self, disk: pathlib.Path) -> None:
        """Remove a new disk, or what a killed process left of one."""
        with self._directory(disk) as directory:
            directory.unlink(_new(disk))
            try:
                room = directory.open_directory(_room(disk))
            except FileNotFoundError:
                return
            except directories.NotAFile:
                directory.unlink(_room(disk))
                return
            with room:
                for name in room.names():
                    room.unlink(name)
            os.rmdir(_room(disk), dir_fd=directory.fd)

    # -- QEMU's programs

    def qemu_img(self, disk: pathlib.Path, lock: int, action: str,
                 name: str = '') -> programs.Result:
        """Have qemu-img change a stopped guest's qcow2 disk.

        :param lock: of the disk, see :func:`.locks.hold`
        :param action: :data:`CHECK_LEAKS`, :data:`CREATE_SNAPSHOT` or
            :data:`DELETE_SNAPSHOT`
        :param name: of the snapshot
        :raises PermanentError: it is not installed
        :raises ServiceUnavailable: it did not end in time
        """
        arguments = _img_arguments(action, name)
        fd = self.open_writable(disk)
        try:
            timeout_s = _IMG_TIMEOUT_S + os.fstat(fd).st_size / _BYTES_PER_S
            return programs.qemu_img(
                programs.Layers(str(disk), fd, lock, 'qcow2'), arguments,
                timeout_s)
        finally:
            os.close(fd)

    def serve(self, disk: pathlib.Path, lock: int, disk_format: str,
              base: pathlib.Path | None) -> programs.Server:
        """Start qemu-nbd on a disk, for writing.

        :param lock: of the disk, see :func:`.locks.hold`
        :param base: the image below a qcow2 disk
        """
        with contextlib.ExitStack() as stack:
            fd = self.open_writable(disk)
            stack.callback(os.close, fd)
            below = None
            if base is not None:
                below = self.open(base)
                stack.callback(os.close, below)
            return programs.NbdServer(programs.Layers(
                str(disk), fd, lock, disk_format, below))


def _img_arguments(action: str, name: str) -> tuple[str, ...]:
    if action == CHECK_LEAKS:
        return ('check', '-q', '-r', 'leaks')
    if not name or name.startswith('-') or not name.isprintable():
        raise exceptions.InvalidInput(f'{name!r} cannot name a snapshot.')
    if action == CREATE_SNAPSHOT:
        return ('snapshot', '-c', name)
    if action == DELETE_SNAPSHOT:
        return ('snapshot', '-d', name)
    raise exceptions.InvalidInput(f'{action!r} is nothing qemu-img does.')


# With the rights of which disks are opened: those of this process, unless it
# is an agent's.
_access = DiskFiles()


def access() -> DiskFiles:
    """Return that by which this process opens disks."""
    return _access


def use(found: DiskFiles) -> None:
    """Have this process open disks in another way.

    Rights belong to a process, so this is called once, when it starts.
    """
    global _access
    _access = found


@contextlib.contextmanager
def reading(path: pathlib.Path) -> typing.Iterator[pathlib.Path]:
    """Open a disk, or a view of one; yield a path by which to read it.

    :raises OSError: as the kernel reports it
    """
    fd = access().open(path)
    try:
        yield directories.descriptor_path(fd)
    finally:
        os.close(fd)


# What changes when a disk is written to: inode, size, time in nanoseconds.
Mark = tuple[int, int, int]


def mark_of(disk: pathlib.Path) -> Mark:
    """Return the mark of a disk, or of a view of one."""
    fd = access().open(disk)
    try:
        return mark(os.fstat(fd))
    finally:
        os.close(fd)


def mark(found: os.stat_result) -> Mark:
    """Return the mark of an open disk."""
    return found.st_ino, found.st_size, found.st_mtime_ns


def _adopt(fd: int, old: os.stat_result, disk: pathlib.Path) -> None:
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or found.st_nlink != 1:
        raise directories.NotAFile(
            f'The new file of {disk} belongs to another user, or has another'
            f' name.')
    try:
        # The mode first: afterwards it is another user's.
        os.fchmod(fd, stat.S_IMODE(old.st_mode))
        if (old.st_uid, old.st_gid) != (found.st_uid, found.st_gid):
            os.fchown(fd, old.st_uid, old.st_gid)
    except PermissionError as error:
        raise OwnerError(
            f'Cannot give a new file to the owner of {disk}: run as root or '
            f'as that owner, or roll back in place.') from error


def _room(disk: pathlib.Path) -> str:
    return f'.{disk.name}.rebuilt'


def _new(disk: pathlib.Path) -> str:
    return f'{_room(disk)}.part'


def adopted(disk: pathlib.Path) -> pathlib.Path:
    """Return the path of a new disk between ``adopt`` and ``replace``."""
    return disk.with_name(_new(disk))
