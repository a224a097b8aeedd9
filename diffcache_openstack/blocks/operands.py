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
"""Checks of the files that an operator names as inputs and outputs."""

import contextlib
import os
import stat
from typing import Iterator

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files

_SECTOR = 512


def check_readable(path: str, role: str) -> int:
    """Return the size in bytes of the file an operator named.

    :param role: what the file is to the operation: "base", "patch", ...
    :raises NotFound: it does not exist or cannot be read
    :raises InvalidInput: it is not a regular file or block device
    """
    try:
        # Checked before it is opened: opening a pipe waits for a writer.
        mode = os.stat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)
                or stat.S_ISDIR(mode)):
            raise exceptions.InvalidInput(
                f'The {role} {path} is neither a regular file nor a block '
                f'device; copy it to a file and name that.')
        with open(path, 'rb') as stream:
            return stream.seek(0, os.SEEK_END)
    except FileNotFoundError as exc:
        raise exceptions.NotFound(
            f'The {role} {path} does not exist; check the path.') from exc
    except IsADirectoryError as exc:
        raise exceptions.InvalidInput(
            f'The {role} {path} is a directory; name a file.') from exc
    except OSError as exc:
        raise exceptions.NotFound(
            f'The {role} {path} cannot be read: {exc.strerror}.') from exc


def check_disk(path: str, role: str) -> None:
    """Refuse a file that is too small to be the image of a disk.

    :raises InvalidInput: it has less than a sector
    """
    size = check_readable(path, role)
    if size < _SECTOR:
        raise exceptions.InvalidInput(
            f'The {role} {path} has {size} bytes; the image of a disk has at'
            f' least {_SECTOR}.')


def check_output(path: str, **inputs: str) -> None:
    """Refuse an output without a directory, or in place of an input.

    :param inputs: the files that are read, by their roles
    :raises InvalidInput: ``path`` is one of them, or is a directory, a
        device or anything else that is no regular file
    :raises NotFound: its directory does not exist
    """
    if not os.path.exists(os.path.dirname(path) or '.'):
        raise _no_directory(path)
    try:
        mode = os.stat(path).st_mode
    except OSError:
        # It does not exist, or writing will raise the right error.
        return
    if stat.S_ISDIR(mode):
        raise exceptions.InvalidInput(
            f'The output {path} is a directory; name a file.')
    if not stat.S_ISREG(mode):
        raise exceptions.InvalidInput(
            f'The output {path} is no regular file and would be replaced by '
            f'one; name a file.')
    for role, name in inputs.items():
        if os.path.exists(name) and os.path.samefile(path, name):
            raise exceptions.InvalidInput(
                f'The output {path} is the {role} itself, which would be '
                f'lost; name another file.')


@contextlib.contextmanager
def unchanged(*paths: str) -> Iterator[None]:
    """Check that files are unchanged when the block ends.

    :raises RetryableError: one of them was written to meanwhile
    """
    before = [_stamp(path) for path in paths]
    yield
    for path, stamp in zip(paths, before):
        if _stamp(path) != stamp:
            raise exceptions.RetryableError(
                f'{path} changed while it was read; try again when nothing '
                f'writes to it.')


def _stamp(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def translate_os_errors(path: str) -> Iterator[None]:
    """Turn operating system errors about ``path`` into this suite's.

    :raises NoSpace: the filesystem, quota or file size limit is exhausted
    :raises NotFound: the directory of ``path`` does not exist
    :raises InvalidInput: ``path`` cannot be written
    """
    try:
        yield
    except OSError as exc:
        if files.is_full(exc):
            raise exceptions.NoSpace(
                f'No space to write {path} ({exc.strerror}); free some and '
                'try again.') from exc
        if isinstance(exc, FileNotFoundError):
            raise _no_directory(path) from exc
        reason = exc.strerror or str(exc)
        raise exceptions.InvalidInput(
            f'Cannot write {path}: {reason}.') from exc


def _no_directory(path: str) -> exceptions.NotFound:
    return exceptions.NotFound(
        f'The directory of {path} does not exist; create it first.')
