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

The leader reads no faster than its client, which may be slow on purpose. So
it is followed only while the file arrives at a rate that is not below the
least one.
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
# Over which the rate of a file is measured.
PACE_SECONDS = 30.0
# Seconds for which a file that was too slow is not followed.
_SLOW_SECONDS = 10 * PACE_SECONDS
_POLL_SECONDS = 0.05
_TRIES = 5
_INTENT = '.intent'


class Progress:
    """Whether a file arrives at the least rate.

    :param fd: of the file; open for as long as it is asked
    :param least_rate: bytes per second, over :data:`PACE_SECONDS`
    :param clock: seconds, monotonic
    """

    def __init__(self, fd: int, least_rate: float,
                 clock: collections.abc.Callable[[], float] = time.monotonic
                 ) -> None:
        self._fd = fd
        self._least_rate = least_rate
        self._clock = clock
        self._since, self._size = clock(), os.fstat(fd).st_size

    def is_slow(self) -> bool:
        """Return whether too little of it came lately."""
        seconds = self._clock() - self._since
        if seconds < PACE_SECONDS:
            return False
        before, self._size = self._size, os.fstat(self._fd).st_size
        self._since += seconds
        return self._size - before < self._least_rate * seconds

    def end(self) -> None:
        """Note that all of the file is there, so that it is not slow."""
        self._least_rate = 0.0


class Fills:
    """The images that processes of this host are reading from the store.

    :param directory: ``incomplete`` of Glance's image_cache_dir
    :param least_rate: bytes per second at which they are worth following
    :param clock: seconds, monotonic
    """

    def __init__(self, directory: pathlib.Path, least_rate: float,
                 clock: collections.abc.Callable[[], float] = time.monotonic
                 ) -> None:
        self._directory = directory
        self._least_rate = least_rate
        self._clock = clock
        # By image, the file that was too slow, and until when that counts:
        # another file may get its number.
        self._slow: dict[str, tuple[int, float]] = {}

    def progress(self, file: typing.BinaryIO) -> Progress:
        """Watch a file that :meth:`begin` returned."""
        return Progress(file.fileno(), self._least_rate, self._clock)

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

        :returns: whether another process does, and was not too slow to be
            followed by this one; if not, the caller has to, and has
            :data:`INTENT_SECONDS` to begin
        """
        deadline = time.monotonic() + 2 * INTENT_SECONDS
        while True:
            if self.running(image_id):
                return not self._is_slow(image_id)
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
        :raises BrokenOff: it ends early, or is too slow
        """
        try:
            fd = os.open(self.path(image_id), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise BrokenOff(image_id, offset) from error
        try:
            progress = Progress(fd, self._least_rate, self._clock)
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
                elif progress.is_slow():
                    self._slow[image_id] = (
                        os.fstat(fd).st_ino, self._clock() + _SLOW_SECONDS)
                    raise BrokenOff(image_id, offset, 'was too slow')
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

    def _is_slow(self, image_id: str) -> bool:
        """Return whether the file being written is one that was too slow."""
        number, until = self._slow.get(image_id, (0, 0.0))
        try:
            if (self._clock() < until
                    and self.path(image_id).stat().st_ino == number):
                return True
        except FileNotFoundError:
            pass
        self._slow.pop(image_id, None)
        return False

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
    """The process that read an image from the store is of no more use."""

    def __init__(self, image_id: str, offset: int, what: str = 'stopped'
                 ) -> None:
        super().__init__(f'The process that read image {image_id} from the'
                         f' store {what} after {offset} bytes')
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
