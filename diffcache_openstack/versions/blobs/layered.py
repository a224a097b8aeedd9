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
"""A store to which a host only adds: what it adds is put into an inbox.

The host's credential (or user) may read the main store, and write the inbox.
Another process, which may write the main store, accepts what is in the inbox:
:mod:`diffcache_openstack.versions.store.inbox.acceptance`.
"""

import contextlib
import pathlib
from typing import Protocol

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base


class Room(Protocol):
    """The limits of an inbox."""

    def admit(self, name: str, size: int) -> None:
        """Count a blob that is about to be put there.

        :raises NoSpace: it would exceed a limit
        """

    def forget(self, name: str) -> None:
        """Count a blob no longer, which was removed."""


class LayeredStore(base.BlobStore):
    """The blobs of a main store, which is only read, and of an inbox.

    A blob of the main store hides one of the same name in the inbox.

    :param main: is read only
    :param inbox: gets what is created
    :param room: says whether the inbox has room; None if it has no limits
    """

    def __init__(self, main: base.BlobStore, inbox: base.BlobStore,
                 room: Room | None = None) -> None:
        self._main = main
        self._inbox = inbox
        self._room = room

    def _holder(self, name: str) -> base.BlobStore:
        return self._main if self._main.exists(name) else self._inbox

    def _admit(self, name: str, size: int) -> None:
        """Check that a blob may be put into the inbox.

        :raises Conflict: the main store has one of this name
        :raises NoSpace: it would exceed a limit of the inbox
        """
        if self._main.exists(name):
            raise exceptions.Conflict(f'There is a blob {name} already.')
        if self._room is not None:
            self._room.admit(name, size)

    def create(self, name: str, data: bytes) -> None:
        """Create a small blob in the inbox."""
        self._admit(name, len(data))
        self._inbox.create(name, data)

    def replace(self, name: str, data: bytes) -> None:
        """Create or replace a small blob in the inbox."""
        self._admit(name, len(data))
        self._inbox.replace(name, data)

    def put_file(self, name: str, path: pathlib.Path) -> None:
        """Create a blob in the inbox from a file."""
        self._admit(name, path.stat().st_size)
        self._inbox.put_file(name, path)

    def flush(self) -> None:
        """Make all blobs durable."""
        self._inbox.flush()

    def read(self, name: str, offset: int = 0,
             length: int | None = None) -> bytes:
        """Read bytes of a blob."""
        try:
            return self._main.read(name, offset, length)
        except exceptions.NotFound:
            return self._inbox.read(name, offset, length)

    def size(self, name: str) -> int:
        """Return the size of a blob."""
        return self._holder(name).size(name)

    def delete(self, name: str) -> None:
        """Remove a blob from the inbox."""
        self._inbox.delete(name)
        if self._room is not None:
            self._room.forget(name)

    def names(self) -> list[str] | None:
        """Return the names of the blobs of both."""
        found = self._main.names(), self._inbox.names()
        if found[0] is None or found[1] is None:
            return None
        return sorted({*found[0], *found[1]})

    def local_path(self, name: str) -> pathlib.Path | None:
        """Return the file that a blob is."""
        return self._holder(name).local_path(name)

    def staging(self, work: str | None = None
                ) -> contextlib.AbstractContextManager[pathlib.Path]:
        """Return a directory, empty or with files of the same work."""
        return self._inbox.staging(work)

    def works(self) -> list[pathlib.Path]:
        """Return the staging directories that exist, of all writers."""
        return self._inbox.works()

    def is_abandoned(self, work: pathlib.Path) -> bool:
        """Return whether a staging directory may be removed."""
        return self._inbox.is_abandoned(work)

    def lock(self, purpose: str = ''
             ) -> contextlib.AbstractContextManager[None]:
        """Exclude other hosts that add."""
        return self._inbox.lock(purpose)

    @property
    def append_only(self) -> bool:
        """Whether nothing may be deleted."""
        return True

    @property
    def exclusive(self) -> bool:
        """Whether the lock excludes all hosts that add."""
        return self._inbox.exclusive

    def age(self, name: str) -> float:
        """Return the seconds since a blob was put."""
        return self._holder(name).age(name)

    @property
    def atomic(self) -> bool:
        """Whether blobs appear complete or not at all."""
        return self._inbox.atomic

    @property
    def ranged(self) -> bool:
        """Whether reading a part of a blob costs only that part."""
        return self._main.ranged and self._inbox.ranged
