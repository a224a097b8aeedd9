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
"""Blobs as files of one directory of this host.

The layout is that of glance_store's filesystem driver, a file for each blob,
so that a Glance or another host can serve the directory. That driver writes
in place and does not flush; a version must survive a power cut, so writing is
done here.
"""

import contextlib
import fcntl
import functools
import os
import pathlib
import tempfile
import time
from typing import BinaryIO
from typing import Iterator

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import mounts
from diffcache_openstack.common import permissions
from diffcache_openstack.versions.blobs import base

_LOCK = '.lock'
# The directory of what is not a blob yet: of each writer, or of each write.
_WRITERS = '.writers'
_STAGING = 'staging-'
_PART = 'part-'
_WORK = 'work-'
_RESERVE = '.reserve'
_CLOCK = '.clock'
# Bytes of a block of most filesystems, which a reserve is changed by.
_RESERVE_STEP = 4096
# A directory that ext2, ext3 and ext4 have at their root.
_OF_FILESYSTEM = 'lost+found'
_PAUSE_S = 0.05
# Those of which only one kernel writes; flock() excludes all writers there.
_OF_ONE_HOST = frozenset((
    'bcachefs', 'btrfs', 'ext2', 'ext3', 'ext4', 'f2fs', 'overlay', 'tmpfs',
    'xfs', 'zfs'))


@contextlib.contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as exc:
        raise exceptions.NotFound(f'There is no blob {name}.') from exc
    except FileExistsError as exc:
        raise exceptions.Conflict(f'There is a blob {name} already.') from exc
    except OSError as exc:
        if files.is_full(exc):
            raise exceptions.NoSpace(
                f'No space for blob {name}: free some and try again.'
            ) from exc
        raise exceptions.PermanentError(
            f'Blob {name}: {exc.strerror}; check the store\'s directory.'
        ) from exc


def _allocate(handle: int, before: int, size: int) -> None:
    """Let a file's filesystem set space aside, all of it or none.

    :raises NoSpace: there is not so much
    """
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as exc:
        os.ftruncate(handle, before)
        if not files.is_full(exc):
            raise
        raise exceptions.NoSpace(
            f'No space for a reserve of {size} bytes, without which no '
            f'version could be deleted from a full store: delete and prune '
            f'versions, or enlarge the filesystem.') from exc


def _is_new_or_store(directory: pathlib.Path) -> bool:
    """Return whether a directory is a store, empty, or not there."""
    if files.is_there(directory / _LOCK) or not files.is_there(directory):
        return True
    return all(name == _OF_FILESYSTEM for name in os.listdir(directory))


class FileStore(base.BlobStore):
    """Blobs in a directory, each written beside its place and renamed.

    The lock excludes all writers that see the directory through one kernel.
    Through a network filesystem it may exclude none.

    Other users may read nothing of it; if the directory has its set-group-ID
    bit, its group may read and write everything. The permissions of a
    directory that has files, but was never locked as a store, stay as they
    are: it may be another one than the caller means.

    :param directory: created if it does not exist
    :param patience_s: how long to wait for another writer, in seconds
    """

    def __init__(self, directory: pathlib.Path,
                 patience_s: float = 60.0) -> None:
        self._directory = directory
        self._patience_s = patience_s
        with _translated(str(directory)):
            self._modes = (permissions.create_directory(directory)
                           if _is_new_or_store(directory)
                           else permissions.for_contents_of(directory))

    @classmethod
    def existing(cls, directory: pathlib.Path) -> 'FileStore':
        """Open a directory that this user may only read, if it exists."""
        store = cls.__new__(cls)
        store._directory, store._patience_s = directory, 0.0
        store._modes = permissions.PRIVATE
        return store

    def _path(self, name: str) -> pathlib.Path:
        return self._directory / base.check_name(name)

    def _writers(self) -> pathlib.Path:
        """Return the directory of what is not a blob yet."""
        path = self._directory / _WRITERS
        if not files.is_there(path):
            path.mkdir(mode=self._modes.directory, exist_ok=True)
            path.chmod(self._modes.directory)
        return path

    @contextlib.contextmanager
    def _part(self, data: bytes) -> Iterator[pathlib.Path]:
        """Yield a file with the data, which is deleted with the block."""
        handle, name = tempfile.mkstemp(prefix=_PART, dir=self._writers())
        part = pathlib.Path(name)
        try:
            with os.fdopen(handle, 'wb') as stream:
                stream.write(data)
                os.fchmod(stream.fileno(), self._modes.file)
                stream.flush()
                os.fsync(stream.fileno())
            yield part
        finally:
            part.unlink(missing_ok=True)

    def create(self, name: str, data: bytes) -> None:
        path = self._path(name)
        with _translated(name), self._part(data) as part:
            os.link(part, path)
            files.sync_directory(self._directory)

    def replace(self, name: str, data: bytes) -> None:
        path = self._path(name)
        with _translated(name), self._part(data) as part:
            os.replace(part, path)
            files.sync_directory(self._directory)

    def put_file(self, name: str, path: pathlib.Path) -> None:
        target = self._path(name)
        with _translated(name):
            if files.is_there(target):
                raise exceptions.Conflict(f'There is a blob {name} already.')
            with open(path, 'rb') as stream:
                os.fchmod(stream.fileno(), self._modes.file)
                # Its age counts from now.
                os.utime(stream.fileno())
                os.fsync(stream.fileno())
            os.rename(path, target)

    def flush(self) -> None:
        with _translated(str(self._directory)):
            files.sync_directory(self._directory)

    def read(self, name: str, offset: int = 0,
             length: int | None = None) -> bytes:
        with _translated(name), open(self._path(name), 'rb') as stream:
            stream.seek(offset)
            return stream.read(-1 if length is None else length)

    def size(self, name: str) -> int:
        with _translated(name):
            return self._path(name).stat().st_size

    def delete(self, name: str) -> None:
        with _translated(name):
            self._path(name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        with _translated(str(self._directory)):
            if not files.is_there(self._directory):
                return []
            return [entry.name for entry in os.scandir(self._directory)
                    if not entry.name.startswith('.')
                    and entry.name != _OF_FILESYSTEM]

    def local_path(self, name: str) -> pathlib.Path:
        return self._path(name)

    @contextlib.contextmanager
    def staging(self, work: str | None = None) -> Iterator[pathlib.Path]:
        with _translated(str(self._directory)):
            if work is None:
                directory = pathlib.Path(tempfile.mkdtemp(
                    prefix=_STAGING, dir=self._writers()))
            else:
                directory = self._writers() / f'{_WORK}{base.check_name(work)}'
                directory.mkdir(exist_ok=True)
            directory.chmod(self._modes.directory)
            handle = self._hold(directory)
        try:
            if handle is None:
                raise exceptions.Busy(
                    f'Another process does the work of {directory}: try again'
                    f' when it is done.')
            # Where its age counts it was abandoned until now.
            os.utime(directory)
            with base.removed(directory, work is not None):
                yield directory
        finally:
            if handle is not None:
                os.close(handle)

    def _hold(self, directory: pathlib.Path) -> int | None:
        """Hold a writer's directory, so that others know that it is alive.

        :returns: what to close; None if another process holds it
        """
        handle = os.open(directory, os.O_RDONLY | os.O_NOFOLLOW)
        # Network filesystems may not lock directories: there its age counts.
        if self.exclusive and not self._try_lock(handle):
            os.close(handle)
            return None
        return handle

    def works(self) -> list[pathlib.Path]:
        with _translated(str(self._directory)):
            return [path for path in self._writers().iterdir()
                    if path.name.startswith((_STAGING, _WORK))]

    def is_abandoned(self, work: pathlib.Path) -> bool:
        try:
            handle = self._hold(work) if self.exclusive else None
            if handle is not None:
                os.close(handle)
            elif self.exclusive:
                return False  # Its process is alive.
            if self.exclusive and work.name.startswith(_STAGING):
                return True
            return self._now() - base.last_change(work) > base.GRACE_SECONDS
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _now(self) -> float:
        """Return the time by the clock that blobs are dated with."""
        with self._open_internal(_CLOCK) as stream:
            os.utime(stream.fileno())
            return os.fstat(stream.fileno()).st_mtime

    def age(self, name: str) -> float:
        with _translated(name):
            put = self._path(name).stat().st_mtime
        return self._now() - put

    @functools.cached_property
    def exclusive(self) -> bool:
        return mounts.mount_of(self._directory).kind in _OF_ONE_HOST

    @contextlib.contextmanager
    def lock(self, purpose: str = '') -> Iterator[None]:
        with self._open_internal(_LOCK + purpose) as stream:
            deadline = time.monotonic() + self._patience_s
            while not self._try_lock(stream.fileno()):
                if time.monotonic() > deadline:
                    raise exceptions.Busy(
                        f'{self._directory} is being written by another '
                        f'process: try again when it is done.')
                time.sleep(_PAUSE_S)
            if not purpose:
                self._remove_parts()
            yield

    @staticmethod
    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _remove_parts(self) -> None:
        """Remove what killed processes left of single writes."""
        for path in list(self._writers().iterdir()):
            with contextlib.suppress(FileNotFoundError):
                if path.name.startswith(_PART) and (
                        self.exclusive or self._now() - path.lstat().st_mtime
                        > base.GRACE_SECONDS):
                    path.unlink()

    def _open_internal(self, name: str) -> BinaryIO:
        """Open a file of the store's own, which may have to be created."""
        def create(path: str, flags: int) -> int:
            handle = os.open(path, flags | os.O_NOFOLLOW, self._modes.file)
            if os.fstat(handle).st_uid == os.geteuid():
                os.fchmod(handle, self._modes.file)
            return handle

        return open(self._directory / name, 'ab', opener=create)

    def keep_reserve(self, size: int) -> None:
        with _translated('reserve'):
            # A full store has no room for this file either.
            self._open_internal(f'{_LOCK}{base.MAINTENANCE}').close()
            stream = self._open_internal(_RESERVE)
        with stream:
            before = os.fstat(stream.fileno()).st_size
            if before < size:
                _allocate(stream.fileno(), before, size)

    def reserved(self) -> int:
        try:
            return (self._directory / _RESERVE).stat().st_size
        except FileNotFoundError:
            return 0  # Before the first save.

    def spend_reserve(self, size: int) -> None:
        left = max(0, self.reserved() - size)
        with (contextlib.suppress(exceptions.NotFound),
              _translated('reserve')):
            os.truncate(self._directory / _RESERVE,
                        left // _RESERVE_STEP * _RESERVE_STEP)

    def regain_reserve(self, size: int) -> int:
        with _translated('reserve'):
            stream = self._open_internal(_RESERVE)
        with stream:
            now = os.fstat(stream.fileno()).st_size
            step = size - now
            while now < size and step >= _RESERVE_STEP:
                step = min(step, size - now)
                try:
                    _allocate(stream.fileno(), now, now + step)
                    now += step
                except exceptions.NoSpace:
                    step = step // 2 // _RESERVE_STEP * _RESERVE_STEP
            return now

    @property
    def atomic(self) -> bool:
        return True

    @property
    def ranged(self) -> bool:
        return True
