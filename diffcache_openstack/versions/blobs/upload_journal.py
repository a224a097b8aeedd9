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
"""Uploading the files of a staging directory to a store, resumably.

Two lists in the directory say which file becomes which blob, and which blobs
are complete. Work that is resumed after an interruption so uploads no file a
second time.
"""

import logging
import os
import pathlib
from typing import Collection

from diffcache_openstack import _native
from diffcache_openstack.common import files
from diffcache_openstack.versions.blobs import base

LOG = logging.getLogger(__name__)

_LIST, _SENT = 'puts', 'sent'


class UploadJournal:
    """The uploads of one save, or of other work with its own directory.

    :param staging: has the files, and the lists over restarts
    """

    def __init__(self, store: base.BlobStore, staging: pathlib.Path) -> None:
        self._store = store
        self._staging = staging

    def return_files(self, needed: Collection[str]) -> None:
        """Move files back that a store of files took by renaming them.

        :param needed: blobs that the catalogue names by now; they stay
        """
        for name, file in self._read(_LIST).items():
            if name in needed:
                continue
            path, target = self._store.local_path(name), self._staging / file
            if path is not None and files.is_there(path) \
                    and not files.is_there(target):
                os.rename(path, target)

    def listed(self) -> set[str]:
        """Return the blobs that the work has put, or was to put, before."""
        return set(self._read(_LIST))

    def upload(self, files_of: list[tuple[str, pathlib.Path]]) -> None:
        """Upload files, by blobs' names, except those that were uploaded."""
        before = self._read(_LIST)
        self._write(_LIST, {name: path.name for name, path in files_of})
        sent = self._read(_SENT)
        for name, path in files_of:
            if self._store.local_path(name) is not None:
                self._store.put_file(name, path)
                continue
            checksum = _native.hash_file(path)
            if sent.get(name) == checksum and self._store.exists(name):
                LOG.info('Blob %s is in the store already', name)
                continue
            # An incomplete upload of an attempt before, or another content.
            if name in before and self._store.exists(name):
                self._store.delete(name)
            self._store.put_file(name, path)
            self._write(_SENT, sent := sent | {name: checksum})

    def _read(self, what: str) -> dict[str, str]:
        found = files.read_state(self._staging / what)
        return found if isinstance(found, dict) else {}

    def _write(self, what: str, fields: dict[str, str]) -> None:
        files.write_json(self._staging / what, fields)
