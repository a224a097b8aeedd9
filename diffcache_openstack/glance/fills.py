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
"""Read an image from Glance's store once for all concurrent requests.

Glance lets every request through to its store until an image is cached. Here
the first one becomes the *leader*: what it reads is written to a file, too.
Requests that come while it reads follow the file. It works between the
processes of one host, by locks that end with the process that has them.
"""

import collections.abc
import contextlib
import fcntl
import os
import pathlib
import time
import typing

# How long a reader that was chosen to read the store may take to begin.
INTENT_SECONDS = 5.0
_POLL_SECONDS = 0.05
_TRIES = 5
_INTENT = '.intent'


class Fills:
    """The images that processes of this host are reading from the store.

    :param directory: ``incomplete`` of Glance's image_cache_dir
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory

    def running(self, image_id: str) -> bool:
        """Return whether a process reads an image from the store now."""
        try:
            fd = os.open(self.path(image_id), os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            return not _lock(fd, fcntl.LOCK_SH)
        finally:
            os.close(fd)

    def lead_or_follow(self, image_id: str) -> bool:
        """Decide who reads the store.

        :returns: whether another process does; if not, the caller has to, and
            has :data:`INTENT_SECONDS` to begin
        """
        deadline = time.monotonic() + 2 * INTENT_SECONDS
        while True:
            if self.running(image_id):
                return True
            if self._intend(image_id) or time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)

    @contextlib.contextmanager
    def begin(self, image_id: str
              ) -> collections.abc.Iterator[typing.BinaryIO | None]:
        """Return a file to write an image to, or None if another does so.

        It is gone when the block ends.
        """
        path = self.path(image_id)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        with open(fd, 'w+b') as file:
            if not _lock_soon(fd) or not _is(fd, path):
                yield None
                return
            self._forget_intent(image_id)
            try:
                file.truncate(0)
                yield file
            finally:
                path.unlink(missing_ok=True)

    def follow(self, image_id: str, size: int, offset: int = 0
               ) -> collections.abc.Iterator[bytes]:
        """Yield what another process reads, as it arrives.

        :param size: bytes of the whole image
        :param offset: where to begin
        :raises BrokenOff: it ends early
        """
        try:
            fd = os.open(self.path(image_id), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise BrokenOff(image_id, offset) from error
        try:
            while offset < size:
                # Looked at first: what was written before the lock went is
                # still to be read.
                alone = _lock(fd, fcntl.LOCK_SH)
                data = os.pread(fd, 1 << 20, offset)
                if data:
                    offset += len(data)
                    yield data
                elif alone:
                    raise BrokenOff(image_id, offset)
                else:
                    time.sleep(_POLL_SECONDS)
        finally:
            os.close(fd)

    def clean(self, older_than: float) -> int:
        """Remove files that no process writes any more.

        :param older_than: seconds since 1970
        :returns: how many files were removed
        """
        count = 0
        for path in list(self._directory.iterdir()):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < older_than \
                        and not self.running(path.name):
                    path.unlink()
                    count += 1
        return count

    def path(self, image_id: str) -> pathlib.Path:
        """Return the path to which an image is written."""
        return self._directory / image_id

    def _intend(self, image_id: str) -> bool:
        """Become the reader; return False if another process is."""
        intent = self._intent(image_id)
        fd = os.open(intent, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if not _is(fd, intent):
                return False
            last = os.pread(fd, 32, 0)
            if last and time.time() - float(last) < INTENT_SECONDS:
                return False
            os.ftruncate(fd, 0)
            os.pwrite(fd, f'{time.time():.3f}'.encode(), 0)
            return True
        except ValueError:
            os.ftruncate(fd, 0)
            return False
        finally:
            os.close(fd)

    def _forget_intent(self, image_id: str) -> None:
        self._intent(image_id).unlink(missing_ok=True)

    def _intent(self, image_id: str) -> pathlib.Path:
        return self._directory / f'{image_id}{_INTENT}'


class BrokenOff(Exception):
    """The process that read an image from the store stopped early."""

    def __init__(self, image_id: str, offset: int) -> None:
        super().__init__(f'The process that read image {image_id} from the'
                         f' store stopped after {offset} bytes')
        self.offset = offset


def _lock(fd: int, kind: int) -> bool:
    """Try to lock an open file; release a shared lock at once."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    if kind == fcntl.LOCK_SH:
        fcntl.flock(fd, fcntl.LOCK_UN)
    return True


def _lock_soon(fd: int) -> bool:
    """Lock an open file exclusively; wait for the shared locks of checks."""
    for _ in range(_TRIES):
        if _lock(fd, fcntl.LOCK_EX):
            return True
        time.sleep(_POLL_SECONDS / 5)
    return False


def _is(fd: int, path: pathlib.Path) -> bool:
    """Return whether an open file still has its name."""
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)
