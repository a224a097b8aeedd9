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
"""The part of a store that one project has, where names have a prefix."""

import contextlib
import pathlib

from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import upload_ledger
from diffcache_openstack.versions.store import commits


class PrefixedStore(base.BlobStore):
    """The blobs of a store whose names have a prefix.

    See :class:`diffcache_openstack.versions.blobs.base.BlobStore`.

    :param ledger: what this host has put, if the whole cannot list its blobs
    """

    def __init__(self, whole: base.BlobStore, tag: str,
                 ledger: upload_ledger.UploadLedger | None = None) -> None:
        self._whole = whole
        self._ledger = ledger if whole.names() is None else None
        self._prefix = f'{tag}-'

    def _name(self, name: str) -> str:
        return self._prefix + base.check_name(name)

    def create(self, name: str, data: bytes) -> None:
        """Create a small blob."""
        self._note(name)
        self._whole.create(self._name(name), data)

    def replace(self, name: str, data: bytes) -> None:
        """Create or replace a small blob."""
        self._note(name)
        self._whole.replace(self._name(name), data)

    def put_file(self, name: str, path: pathlib.Path) -> None:
        """Create a blob from a file."""
        self._note(name)
        self._whole.put_file(self._name(name), path)

    def flush(self) -> None:
        """Make all blobs durable."""
        self._whole.flush()

    def read(self, name: str, offset: int = 0,
             length: int | None = None) -> bytes:
        """Read bytes of a blob."""
        return self._whole.read(self._name(name), offset, length)

    def size(self, name: str) -> int:
        """Return the size of a blob."""
        return self._whole.size(self._name(name))

    def delete(self, name: str) -> None:
        """Remove a blob."""
        self._whole.delete(self._name(name))
        if self._ledger is not None:
            self._ledger.forget(name)

    def _note(self, name: str) -> None:
        if self._ledger is not None and not commits.is_bookkeeping(name):
            self._ledger.note(name)

    def traces(self) -> list[str]:
        """Return the names of blobs that killed writers may have left."""
        if self._ledger is not None:
            return self._ledger.names()
        return self.names() or []

    def names(self) -> list[str] | None:
        """Return the names of the blobs with the prefix."""
        names = self._whole.names()
        if names is None:
            return None
        return [name.removeprefix(self._prefix) for name in names
                if name.startswith(self._prefix)]

    def local_path(self, name: str) -> pathlib.Path | None:
        """Return the file that a blob is."""
        return self._whole.local_path(self._name(name))

    def staging(self, work: str | None = None
                ) -> contextlib.AbstractContextManager[pathlib.Path]:
        """Return a directory, empty or with files of the same work."""
        return self._whole.staging(work)

    def works(self) -> list[pathlib.Path]:
        """Return the staging directories that exist, of all writers."""
        return self._whole.works()

    def is_abandoned(self, work: pathlib.Path) -> bool:
        """Return whether a staging directory may be removed."""
        return self._whole.is_abandoned(work)

    def lock(self, purpose: str = ''
             ) -> contextlib.AbstractContextManager[None]:
        """Exclude other writers, also those of other prefixes."""
        return self._whole.lock(purpose)

    def keep_reserve(self, size: int) -> None:
        """Set space aside for deleting."""
        self._whole.keep_reserve(size)

    def spend_reserve(self, size: int) -> None:
        """Give up some of the space that was set aside."""
        self._whole.spend_reserve(size)

    def reserved(self) -> int:
        """Return the bytes that are set aside."""
        return self._whole.reserved()

    def regain_reserve(self, size: int) -> int:
        """Set aside what there is room for; return how much it is."""
        return self._whole.regain_reserve(size)

    @property
    def exclusive(self) -> bool:
        """Whether the lock excludes all writers."""
        return self._whole.exclusive

    def age(self, name: str) -> float:
        """Return the seconds since a blob was put."""
        if self._ledger is not None:
            return self._ledger.age(name)
        return self._whole.age(self._name(name))

    @property
    def atomic(self) -> bool:
        """Whether blobs appear complete or not at all."""
        return self._whole.atomic

    @property
    def ranged(self) -> bool:
        """Whether reading a part of a blob costs only that part."""
        return self._whole.ranged
