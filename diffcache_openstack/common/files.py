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
"""Local files that appear whole or not at all, and copies of them.

Everything is written to a hidden file next to the destination, made durable
by default, and renamed. A crash leaves at worst the
hidden file, an error nothing. Copies share extents where the filesystem can,
and are sparse elsewhere.
"""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import stat
import typing
import uuid

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import reflinks

COPY_STEP = 64 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Path = str | os.PathLike[str]


def copy_content(source: int, target: int) -> None:
    """Copy an open file's content to an empty open file.

    Extents are shared if the filesystem can; otherwise only the data is
    copied and holes stay holes.

    :raises OSError: as the kernel reports it
    """
    try:
        reflinks.clone(source, target)
        return
    except OSError as error:
        if error.errno not in reflinks.UNSUPPORTED:
            raise
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    for start, end in _data_ranges(source, size):
        _copy_range(source, target, start, end)


def copy_to(source: pathlib.Path, target: int) -> None:
    """Copy the file at a path to an empty open file, as ``copy_content``."""
    with open(source, 'rb') as reader:
        copy_content(reader.fileno(), target)


def _data_ranges(fd: int, size: int) -> typing.Iterator[tuple[int, int]]:
    offset = 0
    while offset < size:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, end
        offset = end


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    # Not copy_file_range, which does not reach from one filesystem to another.
    os.lseek(target, start, os.SEEK_SET)
    while start < end:
        count = os.sendfile(target, source, start,
                            min(COPY_STEP, end - start))
        if count == 0:
            raise OSError(errno.EIO, 'file became shorter while being copied')
        start += count


def sync(path: pathlib.Path) -> None:
    """Make a file's content durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def forget_cached(path: pathlib.Path) -> None:
    """Have a file's content read from the disk again.

    The kernel's copy may be of what never reached it.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def sync_directory(path: pathlib.Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_there(path: Path) -> bool:
    """Return whether there is anything at a path.

    :func:`os.path.exists` takes every failure for absence: what is removed,
    replaced or given up because something is gone must not be so because it
    could not be seen.

    :raises OSError: that cannot be seen
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_full(error: OSError) -> bool:
    """Return whether a filesystem, quota or file size limit is exhausted."""
    return error.errno in _FULL


@contextlib.contextmanager
def space_errors(path: pathlib.Path) -> typing.Iterator[None]:
    """Convert ENOSPC, EDQUOT and EFBIG to NoSpace that names the path.

    :raises NoSpace: the filesystem or quota of path is exhausted
    """
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise exceptions.NoSpace(
            f'No space left for {path}; free space on its filesystem or '
            f'choose another place.') from error


@contextlib.contextmanager
def read_errors(what: object) -> typing.Iterator[None]:
    """Convert other errors of reading to those of a damaged file.

    A disk that cannot be read holds nothing that could be used.

    :raises IntegrityError: reading or writing failed
    :raises NoSpace: the filesystem is full
    """
    try:
        yield
    except OSError as error:
        kind = (exceptions.NoSpace if is_full(error)
                else exceptions.IntegrityError)
        raise kind(f'{what}: {error}; check the disk.') from error


def temporary_beside(path: pathlib.Path) -> pathlib.Path:
    """Return an unused hidden name in the same directory."""
    return path.with_name(
        f'.{_beginning(path.name)}.{uuid.uuid4().hex[:12]}.part')


def _beginning(name: str) -> str:
    """Cut a file's name so that more can follow it."""
    return os.fsdecode(os.fsencode(name)[:200])


@contextlib.contextmanager
def beside(path: Path) -> typing.Iterator[pathlib.Path]:
    """Yield an unused hidden name beside path; remove what it names then."""
    temporary = temporary_beside(pathlib.Path(path))
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = True
              ) -> typing.Iterator[pathlib.Path]:
    """Yield an empty file that takes the name path if the block succeeds.

    Its permissions are those of a new file. When the block raises, it is
    removed and path keeps what it held before.

    :param durable: whether it is to be on the disk before it gets the name
    """
    target = pathlib.Path(path)
    with beside(target) as temporary:
        temporary.touch(0o666, exist_ok=False)
        yield temporary
        if durable:
            sync(temporary)
        move(temporary, target, durable=durable)


def discard(path: pathlib.Path) -> None:
    """Remove a file, and what the data plane has of it if it is not whole."""
    path.unlink(missing_ok=True)
    discard_part(path)


def discard_part(path: pathlib.Path) -> None:
    """Remove what the data plane has of a file that will not be resumed."""
    path.with_name(f'.{path.name}.part').unlink(missing_ok=True)


def copy_file(source: pathlib.Path, target: pathlib.Path, *,
              durable: bool = True) -> None:
    """Copy a file so that target is complete, or untouched.

    :param durable: whether it is to be on the disk before this returns
    :raises NoSpace: no room for the copy
    """
    with space_errors(target), replacing(target, durable=durable) as part:
        with open(source, 'rb') as reader, open(part, 'wb') as writer:
            copy_content(reader.fileno(), writer.fileno())


def move(source: pathlib.Path, target: pathlib.Path, *,
         durable: bool = True) -> None:
    """Rename within a filesystem."""
    os.replace(source, target)
    if durable:
        sync_directory(target.parent)


@contextlib.contextmanager
def locked(path: pathlib.Path) -> typing.Iterator[None]:
    """Wait until no other thread or process locks a path, and lock it.

    The directory is created. An empty file beside the path has the lock, and
    stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path.with_name(f'.{path.name}.lock'),
                 os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def write_json(path: pathlib.Path, document: object, *,
               durable: bool = True) -> None:
    """Write a small state file so that a crash leaves the old or the new."""
    with space_errors(path), replacing(path, durable=durable) as part:
        with open(part, 'w', encoding='utf-8') as writer:
            json.dump(document, writer)


def read_json(path: pathlib.Path) -> typing.Any:
    """Read a state file; None if there is none, or it is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def read_state(path: pathlib.Path, most: int = 64 << 20) -> typing.Any:
    """Read a state file that another host may have written.

    None for what is no regular file, or longer, or not JSON: a pipe would
    never end.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(handle, 'rb') as stream:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return None
        try:
            return json.loads(stream.read(most))
        except (ValueError, RecursionError):
            return None
