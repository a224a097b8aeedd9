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
"""Permissions of what this suite stores, whatever the umask.

Data belongs to the user that writes it: directories have mode 0700 and files
0600. A directory whose set-group-ID bit an operator has set is shared with its
group instead, which may write if it may write the directory.
"""

import contextlib
import dataclasses
import logging
import os
import pathlib
import stat
from typing import IO

from diffcache_openstack.common import exceptions

LOG = logging.getLogger(__name__)

# Of a process whose files are its own.
UMASK = 0o077
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_READ_BY_ALL = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP


@dataclasses.dataclass(frozen=True)
class Modes:
    """Modes of directories and files."""

    directory: int
    file: int

    def of(self, mode: int) -> int:
        """Return the mode for what has a mode: its executable bits go."""
        return self.directory if stat.S_ISDIR(mode) else self.file


PRIVATE = Modes(0o700, 0o600)
SHARED = Modes(0o2770, 0o660)
READ_BY_GROUP = Modes(0o2750, 0o640)


def create_directory(path: pathlib.Path) -> Modes:
    """Create a directory, or correct one that exists with all that is in it.

    Only the permissions of the last directory of the path are changed.

    :returns: the modes of what is created in it
    :raises OSError: as the kernel reports it
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=PRIVATE.directory)
        if path.stat().st_mode & stat.S_ISGID:
            # The group of the directory above, with the rights it has there.
            above = _of_directory(path.parent.stat().st_mode)
            path.chmod(above.directory)
    found = path.stat()
    wanted = _of_directory(found.st_mode)
    if stat.S_IMODE(found.st_mode) & ~wanted.directory:
        correct_tree(path, wanted)
    return wanted


def for_contents_of(path: pathlib.Path) -> Modes:
    """Return the modes of what is created in a directory.

    :raises OSError: as the kernel reports it
    """
    return _of_directory(path.stat().st_mode)


def _of_directory(mode: int) -> Modes:
    """Return the modes of what is in a directory that has a mode."""
    if not mode & stat.S_ISGID:
        return PRIVATE
    return SHARED if mode & stat.S_IWGRP else READ_BY_GROUP


def correct_tree(path: pathlib.Path, wanted: Modes = PRIVATE) -> None:
    """Take rights that others have from a directory and all that is in it.

    There may be no such directory.
    Symbolic links are not followed. What belongs to another user is logged.
    """
    if not path.is_dir():
        return
    corrected = 0
    foreign: list[str] = []
    for directory, _, names, handle in os.fwalk(path, topdown=False,
                                                follow_symlinks=False):
        # A subdirectory is corrected in a round of its own.
        for name in (*names, '.'):
            try:
                corrected += _correct(name, wanted, handle)
            except PermissionError:
                foreign.append(os.path.join(directory, name))
            except FileNotFoundError:
                continue  # It was removed meanwhile.
    if corrected:
        LOG.info('Took the rights of other users from %d files and '
                 'directories of %s', corrected, path)
    if foreign:
        LOG.warning('Other users may have access to %s and %d more, which '
                    'belong to another user: run "chown -R %d %s"',
                    foreign[0], len(foreign) - 1, os.geteuid(), path)


def correct_file(path: pathlib.Path) -> None:
    """Take rights that others have from a file, if there is one."""
    try:
        _correct(str(path), PRIVATE, None)
    except FileNotFoundError:
        return
    except PermissionError:
        LOG.warning('Other users may have access to %s, which belongs to '
                    'another user: run "chown %d %s"', path, os.geteuid(),
                    path)


def _correct(name: str, wanted: Modes, directory: int | None) -> bool:
    """Correct the mode of a file or directory; return whether it was wrong.

    Links are left as they are: their targets may be files of other users.
    """
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        return False
    mode = wanted.of(found.st_mode)
    if not stat.S_IMODE(found.st_mode) & ~mode:
        return False
    os.chmod(name, mode, dir_fd=directory)
    return True


def check_secret(stream: IO, path: str | os.PathLike, group: bool = False
                 ) -> None:
    """Check the owner and the mode of an open file with a secret.

    :param group: whether the file's group may read it
    :raises InvalidInput: other users may read it, or exchange it
    """
    found = os.fstat(stream.fileno())
    if found.st_uid not in (0, os.geteuid()):
        raise exceptions.InvalidInput(
            f'Key file {path} belongs to user {found.st_uid}, who may exchange'
            f' it; run "chown {os.geteuid()} {path}".')
    refused = _READ_BY_ALL if group else _OTHERS
    if found.st_mode & refused:
        raise exceptions.InvalidInput(
            f'Key file {path} is accessible to others (mode'
            f' {stat.S_IMODE(found.st_mode):04o}); run "chmod 600 {path}".')
