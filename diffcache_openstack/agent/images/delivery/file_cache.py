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
"""Files of images that were built, on this host's disk."""

import contextlib
import os
import pathlib
import uuid

from diffcache_openstack.common import files
from diffcache_openstack.runtime import directories


class FileReader:
    """A file on this host's disk; it stays readable when it is unlinked."""

    def __init__(self, path: pathlib.Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        """See :class:`.codec_base.Reader`."""
        return os.pread(self._fd, length, offset)

    def copy(self) -> 'FileReader':
        """Return another reader of the file."""
        return FileReader(directories.descriptor_path(self._fd))

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class FileCache:
    """Files that were built; the least recently used are deleted.

    :param directory: emptied at the start
    :param capacity: bytes; one file that is larger is kept until it was read
    """

    def __init__(self, directory: pathlib.Path, capacity: int) -> None:
        self.directory = directory
        self._capacity = capacity
        directory.mkdir(parents=True, exist_ok=True)
        for leftover in directory.iterdir():
            leftover.unlink()

    def find(self, name: str) -> FileReader | None:
        """Return a file, if it is cached, and note its use."""
        path = self.directory / name
        try:
            reader = FileReader(path)
            os.utime(path)
        except FileNotFoundError:
            return None
        return reader

    def __contains__(self, name: str) -> bool:
        return files.is_there(self.directory / name)

    def new(self) -> pathlib.Path:
        """Return the path of a new file."""
        return self.directory / f'.{uuid.uuid4().hex}.part'

    def keep(self, path: pathlib.Path, name: str) -> FileReader:
        """Add a complete file to the cache; return it for reading.

        :raises NoSpace: the filesystem is full
        """
        with contextlib.ExitStack() as stack:
            reader = FileReader(path)
            stack.callback(reader.close)
            with files.space_errors(path):
                os.replace(path, self.directory / name)
            self._trim(name)
            stack.pop_all()
        return reader

    def used(self) -> int:
        """Return bytes on disk."""
        return sum(size for _name, size in self.oldest_first())

    def oldest_first(self) -> list[tuple[str, int]]:
        """Return names and bytes on disk, the least recently used first."""
        found = []
        for path in self.directory.iterdir():
            # Others may drop files meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if not path.name.startswith('.'):
                    status = path.stat()
                    found.append((status.st_mtime_ns, path.name,
                                  status.st_blocks * 512))
        return [(name, size) for _used_at, name, size in sorted(found)]

    def drop(self, name: str) -> None:
        """Delete a file; open readers can read it to its end."""
        (self.directory / name).unlink(missing_ok=True)

    def drop_all(self) -> bool:
        """Delete all files to free space; return whether there were any."""
        found = self.oldest_first()
        for name, _size in found:
            self.drop(name)
        return bool(found)

    def _trim(self, newest: str) -> None:
        left = self.used() - self._capacity
        for name, size in self.oldest_first():
            if left <= 0:
                return
            # One that is larger than all there may be is read, not kept.
            if name != newest or size > self._capacity:
                self.drop(name)
                left -= size
