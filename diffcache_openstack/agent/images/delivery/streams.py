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
"""Files that are read while they are written.

A thread writes a file from its start; any number of readers follow. What they
get was verified before it was written, so a reader that has to stop in the
middle has no wrong byte.
"""

import collections.abc
import contextlib
import logging
import os
import pathlib
import threading

from diffcache_openstack.agent.images.delivery import file_cache
from diffcache_openstack.blocks.codecs import codec_base
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files

LOG = logging.getLogger(__name__)

# Bytes written at a time: few at first, for readers that wait for them.
_FIRST = 1 << 20
_BATCH = 4 << 20


class GrowingFile:
    """A file that is written in order.

    :param path: of the new file
    :param size: bytes that it will have
    :ivar path: as given
    """

    def __init__(self, path: pathlib.Path, size: int) -> None:
        self.path = path
        self.size = size
        self._ready = 0
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL
                           | os.O_CLOEXEC, 0o640)
        try:
            os.truncate(self._fd, size)
        except BaseException:
            os.close(self._fd)
            raise

    def write(self, data: bytes, offset: int) -> None:
        """Write verified bytes, which readers see after :meth:`advance`.

        :raises NoSpace: the filesystem is full
        """
        with files.space_errors(self.path):
            done = 0
            # Zeroes stay a hole.
            while done < len(data) and data != bytes(len(data)):
                done += os.pwrite(self._fd, memoryview(data)[done:],
                                  offset + done)

    def advance(self, ready: int) -> None:
        """Let readers have the bytes before an offset."""
        with self._changed:
            self._ready = ready
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Let readers fail that want more than there is."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def wait(self, end: int) -> None:
        """Wait for the bytes before an offset.

        :raises BaseException: the error of the writer
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._ready >= end or self._error is not None)
            if self._ready < end and self._error is not None:
                raise self._error

    def open(self) -> 'GrowingReader':
        """Return a reader."""
        return GrowingReader(self, os.dup(self._fd))

    def close(self) -> None:
        """Close the writer's descriptor; readers keep theirs."""
        os.close(self._fd)


class GrowingReader:
    """Reads a growing file, waiting for what is not written yet."""

    def __init__(self, growing: GrowingFile, fd: int) -> None:
        self._growing = growing
        self._fd = fd
        self.size = growing.size

    def read(self, offset: int, length: int) -> bytes:
        """See :class:`~diffcache_openstack.blocks.codecs.codec_base.Reader`.

        :raises DiffCacheError: the writer failed before it came there
        """
        end = min(offset + length, self.size)
        self._growing.wait(end)
        return os.pread(self._fd, max(0, end - offset), offset)

    def copy(self) -> 'GrowingReader':
        """Return another reader of the file."""
        return GrowingReader(self._growing, os.dup(self._fd))

    def close(self) -> None:
        """Read no more."""
        os.close(self._fd)


class Streams:
    """The files that are being written at this host, for a file cache.

    :param store: keeps them when they are whole
    :param free_disk: frees space; returns whether it freed any
    """

    def __init__(self, store: file_cache.FileCache,
                 free_disk: collections.abc.Callable[[], bool]) -> None:
        self._store = store
        self._free_disk = free_disk
        self._lock = threading.Lock()
        self._growing: dict[str, GrowingFile] = {}

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._growing

    def find(self, name: str) -> GrowingReader | None:
        """Return a reader of a file that is being written."""
        with self._lock:
            growing = self._growing.get(name)
            return None if growing is None else growing.open()

    def start(self, name: str, source: codec_base.Reader,
              damaged: collections.abc.Callable[[], None]) -> GrowingReader:
        """Write a file in the background; return a reader of it.

        Its beginning is written before this returns.

        :param source: returns verified bytes
        :param damaged: called if what the source reads is damaged further on
        :raises DiffCacheError: the source fails at the beginning
        """
        with contextlib.ExitStack() as stack:
            growing = GrowingFile(self._store.new(), source.size)
            stack.callback(growing.close)
            stack.callback(growing.path.unlink, missing_ok=True)
            reader = growing.open()
            try:
                first = self._write(name, growing, source, 0, _FIRST)
            except BaseException:
                reader.close()
                raise
            if first < source.size:
                with self._lock:
                    self._growing[name] = growing
                threading.Thread(
                    target=self._run, daemon=True, name=f'file-{name[:8]}',
                    args=(name, growing, source, first, stack.pop_all(),
                          damaged)).start()
            return reader

    def _run(self, name, growing, source, start, resources, damaged) -> None:
        with resources:
            try:
                at = start
                while at < source.size:
                    at = self._write(name, growing, source, at, _BATCH)
            except exceptions.DiffCacheError as error:
                LOG.warning('Could not build the file %s after %d of %d'
                            ' bytes: %s', name, at, source.size, error)
                growing.fail(error)
                if isinstance(error, (exceptions.IntegrityError,
                                      exceptions.BaseMismatch)):
                    damaged()
            except Exception as error:
                LOG.exception('Could not build the file %s', name)
                growing.fail(exceptions.ServiceUnavailable(
                    f'The agent could not build the file {name}: {error!r}'))
            finally:
                with self._lock:
                    del self._growing[name]

    def _write(self, name, growing, source, start, length) -> int:
        """Write a part of a file; return the offset of the next one."""
        data = source.read(start, length)
        try:
            growing.write(data, start)
        except exceptions.NoSpace:
            # All of them: what is lent and unwanted goes as well.
            if not any([self._store.drop_all(), self._free_disk()]):
                raise
            LOG.warning('Filesystem full; deleted cached files, continuing'
                        ' with the file %s', name)
            growing.write(data, start)
        end = start + len(data)
        if end >= source.size:
            # A reader that has all of it can rely on its being kept.
            self._store.keep(growing.path, name).close()
        growing.advance(end)
        return end
