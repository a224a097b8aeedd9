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
"""Writing to disks in place, while no guest can use them."""

import contextlib
import os
import pathlib
from typing import Iterator

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import locks
from diffcache_openstack.versions import nbd


class _RawDisk:
    """A raw disk, written in place and locked against guests.

    :raises Busy: a guest uses it
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._stream = open(path, 'r+b', buffering=0)
        self.written = 0
        try:
            locks.exclude(self._stream.fileno(), path)
        except exceptions.Busy:
            self.close()
            raise

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes at an offset."""
        self.written += len(data)
        while data:
            done = os.pwrite(self._stream.fileno(), data, offset)
            offset, data = offset + done, data[done:]

    def zero(self, offset: int, length: int) -> None:
        """Write zeroes at an offset."""
        while length > 0:
            part = min(length, 1 << 20)
            self.write(offset, bytes(part))
            offset, length = offset + part, length - part

    def flush(self) -> None:
        """Make all writes durable."""
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Close the disk, which unlocks it."""
        self._stream.close()


class _ServedDisk:
    """A disk of another format, written through qemu-nbd."""

    def __init__(self, client: nbd.Client) -> None:
        self._client = client
        self.written = 0

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes at an offset."""
        self._client.write(offset, data)
        self.written += len(data)

    def zero(self, offset: int, length: int) -> None:
        """Write zeroes at an offset."""
        self._client.zero(offset, length)
        self.written += length

    def flush(self) -> None:
        """Make all writes durable."""
        self._client.flush()


@contextlib.contextmanager
def open_disk(path: pathlib.Path, disk_format: str
              ) -> Iterator[_RawDisk | _ServedDisk]:
    """Open a disk for writing in place, locked for a ``with`` block.

    :raises Busy: a guest uses the disk
    """
    if disk_format == 'raw':
        disk = _RawDisk(path)
        try:
            yield disk
        finally:
            disk.close()
        return
    with nbd.Server(path, disk_format) as client:
        yield _ServedDisk(client)
