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
"""Reading a store that has a copy."""

import functools
import logging
import pathlib
from typing import Callable
from typing import Collection

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.versions.blobs import base

LOG = logging.getLogger(__name__)


class CopiedStore:
    """Blobs of a store, or of its copy where the store does not give them.

    Those that a catalogue names are the same in both.

    :param copy: opens the copy
    :param distrusted: names of blobs that are damaged in the store
    :param note: called with the name of each that is read from the copy
    """

    def __init__(self, store: base.BlobStore,
                 copy: Callable[[], base.BlobStore], distrusted: set[str],
                 note: Callable[[str], object]) -> None:
        self._store = store
        self._copy = functools.cache(copy)
        self._distrusted = distrusted
        self._note = note
        # Of what was not there, or could not be reached.
        self._refused: set[str] = set()

    def distrust(self, names: Collection[str]) -> bool:
        """Read blobs from the copy from now on.

        :returns: whether that is new, so that reading may succeed now
        """
        new = set(names) - self._distrusted
        self._distrusted |= new
        for name in new:
            LOG.warning('Blob %s of a version store is damaged, and is read '
                        'from the copy', name)
            self._note(name)
        return bool(new)

    def read(self, name: str, offset: int = 0, length: int | None = None
             ) -> bytes:
        """Read bytes of a blob."""
        if name not in self._distrusted | self._refused:
            try:
                return self._store.read(name, offset, length)
            except (exceptions.PermanentError,
                    exceptions.ServiceUnavailable) as exc:
                self._refuse(name, str(exc))
        return self._copy().read(name, offset, length)

    def local_path(self, name: str) -> pathlib.Path | None:
        """Return a blob's file; None if it is to be read by its name."""
        path = self._store.local_path(name)
        if path is None:
            return None
        if name not in self._distrusted:
            if files.is_there(path):
                return path
            if name not in self._refused and self._copy().exists(name):
                self._refuse(name, 'it is missing')
        path = self._copy().local_path(name)
        return path if path is not None and files.is_there(path) else None

    @property
    def ranged(self) -> bool:
        """Whether reading a part of a blob costs only that part."""
        return self._store.ranged

    def _refuse(self, name: str, reason: str) -> None:
        LOG.warning('Reading blob %s of a version store from the copy: %s',
                    name, reason)
        self._refused.add(name)
        self._note(name)
