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
"""Files in directories that other users may change.

The owner of a directory can exchange what is in it at any moment: a directory
for a symbolic link, a file for a link to another user's. So a directory is
opened once, without following links, and everything in it is opened, created,
renamed and removed by its descriptor and a name.
"""

import contextlib
import errno
import os
import pathlib
import re
import stat
import typing
import uuid

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions

# What the kernel answers where a link is in the place of a file or directory.
_LINKS = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)


class NotAFile(exceptions.Conflict):
    """Something else has the name of a file or directory, such as a link."""


class Directory(contextlib.AbstractContextManager['Directory']):
    """An open directory.

    :param fd: its descriptor, which this object closes
    :param path: its path, for messages
    """

    def __init__(self, fd: int, path: pathlib.Path) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> 'Directory':
        """Open a directory that the operator or the caller's user named.

        Links in its path are followed.

        :raises OSError: as the kernel reports it
        """
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC),
                   pathlib.Path(path))

    @classmethod
    def below(cls, roots: typing.Iterable[str | os.PathLike[str]],
              path: pathlib.Path) -> 'Directory':
        """Open a directory in one of some directories, following no link.

        Links in the paths of those directories themselves are followed.

        :raises InvalidInput: it is in none of them
        :raises NotAFile: there is a link in its path
        :raises OSError: as the kernel reports it
        """
        for root in roots:
            relative = _relative(path, root)
            if relative is not None:
                break
        else:
            raise exceptions.InvalidInput(
                f'{path} is below none of the directories that may be used.')
        with cls.open(root) as top:
            if relative == pathlib.Path('.'):
                return cls(os.dup(top.fd), path)
            try:
                return cls(_native.open_beneath(
                    top.fd, relative, os.O_RDONLY | os.O_DIRECTORY, 0), path)
            except OSError as error:
                if error.errno not in _LINKS:
                    raise
                raise NotAFile(
                    f'{path} is no directory, or has a symbolic link in its'
                    f' path below {root}: name the directory itself.'
                ) from error

    def __exit__(self, *_exc_info: object) -> None:
        os.close(self.fd)

    def open_file(self, name: str, flags: int = os.O_RDONLY,
                  mode: int = 0o600) -> int:
        """Open a regular file, or a block device; return its descriptor.

        :raises NotAFile: the name is that of something else
        :raises OSError: as the kernel reports it
        """
        try:
            fd = os.open(_checked(name), flags | os.O_NOFOLLOW | os.O_NONBLOCK
                         | os.O_CLOEXEC, mode, dir_fd=self.fd)
        except OSError as error:
            if error.errno in (*_LINKS, errno.ENXIO):
                raise self._not_a_file(name) from error
            raise
        kind = os.fstat(fd).st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISBLK(kind):
            os.close(fd)
            raise self._not_a_file(name)
        return fd

    def _not_a_file(self, name: str) -> NotAFile:
        return NotAFile(
            f'{self.path / name} is a link, or not what its name says: check'
            f' which program wrote it, and remove it.')

    def open_directory(self, name: str) -> 'Directory':
        """Open a directory in this one.

        :raises NotAFile: the name is that of something else
        :raises OSError: as the kernel reports it
        """
        try:
            fd = os.open(_checked(name), os.O_RDONLY | os.O_DIRECTORY
                         | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
        except OSError as error:
            if error.errno in _LINKS:
                raise self._not_a_file(name) from error
            raise
        return Directory(fd, self.path / name)

    def create_temporary(self, name: str, mode: int = 0o600
                         ) -> tuple[str, int]:
        """Create a hidden file beside a name; return its name and descriptor.

        :raises OSError: as the kernel reports it
        """
        temporary = (f'.{_beginning(_checked(name))}'
                     f'.{uuid.uuid4().hex[:12]}.part')
        return temporary, self.open_file(
            temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def shares_mount(self, other: 'Directory') -> bool:
        """Return whether files can be renamed between two directories.

        A file system that is mounted twice, as systemd mounts the directories
        that a unit may write to, is not enough: the kernel then refuses.
        """
        return _mount(self.fd) == _mount(other.fd)

    def rename(self, name: str, target: str) -> None:
        """Give a file another name in this directory."""
        os.rename(_checked(name), _checked(target), src_dir_fd=self.fd,
                  dst_dir_fd=self.fd)

    def unlink(self, name: str) -> None:
        """Remove a file, or a link, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_checked(name), dir_fd=self.fd)

    def names(self) -> list[str]:
        """Return the names in the directory."""
        return os.listdir(self.fd)

    def status(self, name: str) -> os.stat_result:
        """Return the status of what has a name, a link's own if it is one."""
        return os.stat(_checked(name), dir_fd=self.fd, follow_symlinks=False)

    def owner(self) -> os.stat_result:
        """Return the status of the directory itself."""
        return os.fstat(self.fd)

    def sync(self) -> None:
        """Make the names in the directory durable."""
        os.fsync(self.fd)


def _checked(name: str) -> str:
    """Return what is the name of a file in a directory.

    :raises InvalidInput: it is a path, or names a directory
    """
    if name in ('', '.', '..') or '/' in name or '\0' in name:
        raise exceptions.InvalidInput(f'{name!r} is no name of a file.')
    return name


def _beginning(name: str) -> str:
    """Cut a file's name so that more can follow it."""
    return os.fsdecode(os.fsencode(name)[:200])


def is_temporary(name: str, target: str) -> bool:
    """Return whether a temporary file would have been renamed to target."""
    return re.fullmatch(rf'\.{re.escape(_beginning(target))}'
                        r'\.[0-9a-f]{12}\.part', name) is not None


def _relative(path: pathlib.Path, root: str | os.PathLike[str]
              ) -> pathlib.Path | None:
    """Return a directory's path in another one; None if it is not in it.

    Only the text of the path is the outcome: that nothing in it is a link is
    checked when it is opened.
    """
    with contextlib.suppress(ValueError):
        if '..' not in path.parts:
            return path.relative_to(root)
    with contextlib.suppress(ValueError):
        return pathlib.Path(os.path.realpath(path)).relative_to(
            os.path.realpath(root))
    return None


def open_named(path: pathlib.Path, flags: int) -> int:
    """Open a file that the user of this process named, maybe by a link.

    :raises OSError: as the kernel reports it
    """
    return os.open(path, flags | os.O_CLOEXEC)


def descriptor_path(fd: int) -> pathlib.Path:
    """Return the path by which this process names an open file."""
    return pathlib.Path(f'/proc/self/fd/{fd}')


def _mount(fd: int) -> str:
    """Return the number of the mount that a file was opened by (proc(5))."""
    lines = pathlib.Path(f'/proc/self/fdinfo/{fd}').read_text().splitlines()
    return next(line for line in lines if line.startswith('mnt_id:'))
