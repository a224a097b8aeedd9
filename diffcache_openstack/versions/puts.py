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
"""Files of a staging directory on their way to a store.

A list beside them says which was to become what, before any does. Work that
goes on after it was interrupted so finds what the store took, and sends that
no second time.
"""

import logging
import os
import pathlib
from typing import Collection

from diffcache_openstack import _native
from diffcache_openstack.common import files
from diffcache_openstack.store import base

LOG = logging.getLogger(__name__)

_LIST, _SENT = 'puts', 'sent'


class Puts:
    """The way to a store of what one piece of work made."""

    def __init__(self, store: base.BlobStore, staging: pathlib.Path) -> None:
        self._store = store
        self._staging = staging

    def take_back(self, needed: Collection[str]) -> None:
        """Bring back the files that a store of files took by renaming them.

        :param needed: blobs that count by now, and stay
        """
        for name, file in self._read(_LIST).items():
            if name in needed:
                continue
            path, target = self._store.local_path(name), self._staging / file
            if path is not None and path.exists() and not target.exists():
                os.rename(path, target)

    def put(self, made: list[tuple[str, pathlib.Path]]) -> None:
        """Give files to the store, except those that it was given."""
        self._write(_LIST, {name: path.name for name, path in made})
        sent = self._read(_SENT)
        for name, path in made:
            if self._store.local_path(name) is not None:
                self._store.put_file(name, path)
                continue
            checksum = _native.hash_file(path)
            if sent.get(name) == checksum:
                LOG.info('%s is in the store already', name)
                continue
            # A part of it that was cut off, or what has become another.
            if self._store.exists(name):
                self._store.delete(name)
            self._store.put_file(name, path)
            self._write(_SENT, sent := sent | {name: checksum})

    def _read(self, what: str) -> dict[str, str]:
        return files.read_json(self._staging / what) or {}

    def _write(self, what: str, fields: dict[str, str]) -> None:
        files.write_json(self._staging / what, fields)
