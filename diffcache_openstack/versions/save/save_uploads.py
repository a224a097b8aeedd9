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
"""The blobs that a save puts into a store, and their commit."""

import contextlib
import logging
import pathlib
import secrets
from typing import Collection
from typing import Iterable
from typing import Sequence

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.versions.blobs import blob_parts
from diffcache_openstack.versions.blobs import checksums
from diffcache_openstack.versions.blobs import upload_journal
from diffcache_openstack.versions.store.access import reserve
from diffcache_openstack.versions.store.access import shared_commits
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.indexes import hook_files

LOG = logging.getLogger(__name__)

# In a staging directory, for a save that resumes.
NAMES = 'names'


class SaveUploads:
    """The blobs of one save, which a catalogue names.

    :param head: the catalogue, which is changed
    :param opened: the blocks of the last one
    :param staging: has the files
    :param resumes: whether the save is resumed after an interruption

    :ivar suffix: of the names of the blobs
    """

    def __init__(self, access: store_access.StoreAccess,
                 head: catalogue.Catalogue, opened: _native.BlockStore,
                 staging: pathlib.Path, resumes: bool) -> None:
        self._access = access
        self._head = head
        self._opened = opened
        self._staging = staging
        self._resumes = resumes
        # In the order in which they are put.
        self._uploads: list[tuple[str, pathlib.Path]] = []
        # Indexes of the packs of the save.
        self._indexes: list[pathlib.Path] = []
        self.suffix, begun = _blob_suffix(staging, head.number)
        # What an interrupted attempt referred to may be gone.
        self._is_doubtful = begun != head.number

    def add(self, uploads: Iterable[tuple[str, pathlib.Path]]) -> None:
        """Have files become blobs, which the catalogue names already."""
        self._uploads += uploads

    def add_pack(self, pack: _native.WrittenPack, origin: int) -> None:
        """Add a pack of a version, by the number of the version."""
        number = pack.id
        entry = entries.Pack(
            blob=f'pack-{number:08d}-{self.suffix}',
            index=f'index-{number:08d}-{self.suffix}', generation=0,
            origin=origin, blocks=pack.blocks,
            data_bytes=pack.data_bytes, index_bytes=pack.index_bytes,
            level=self._access.level, check=checksums.of_file(pack.index),
            key=self._head.key_number)
        self._uploads += [(entry.blob, pack.data), (entry.index, pack.index)]
        self._indexes.append(pack.index)
        self._head.packs[number] = entry
        self._head.next_pack = number + 1

    def add_map(self, saved: _native.SavedDisk, number: int) -> None:
        """Add the map of a version, if it has one."""
        if saved.map is None:
            return
        blob = entries.Blob(f'map-{number:08d}-{self.suffix}',
                            saved.map_bytes, checksums.of_file(saved.map))
        self._uploads.append((blob.blob, saved.map))
        self._head.maps[number] = blob
        self._head.next_map = number + 1

    def commit(self, versions: Sequence[entries.Version]) -> None:
        """Put everything, and commit the catalogue.

        :param versions: that the save adds to it
        """
        before = self._head.replaceable_blobs()
        try:
            self._uploads += hook_files.add(
                self._head, self._opened, self._indexes,
                self._staging / 'hooks', self.suffix,
                merges=not self._access.store.append_only)
            self._join_uploads()
            upload_journal.UploadJournal(
                self._access.store, self._staging).upload(self._uploads)
            reserve.keep(self._access.store, self._head)
        except BaseException as exc:
            if not self._is_resumed_after(exc):
                self._remove_uploads()
            raise
        try:
            self._access.commit(
                self._head, [name for name, _ in self._uploads],
                versions if self._is_doubtful else ())
        except exceptions.Busy as exc:
            if (isinstance(exc, shared_commits.Overtaken)
                    or not self._is_resumed_after(exc)):
                # If the answer of a decision was lost, they are committed.
                self._remove_uploads(self._access.completed_head().blobs())
            raise
        self._remove(before - self._head.replaceable_blobs(),
                     'an earlier state')

    def _join_uploads(self) -> None:
        """Make the files of a small save one blob of a store of objects."""
        store = self._access.store
        # What a later save replaces has to be a blob that can be removed.
        small = [(name, path) for name, path in self._uploads
                 if not name.startswith(('base-', 'hooks-'))]
        if (store.append_only or not small
                or store.local_path(small[0][0]) is not None):
            return
        joined = self._staging / 'joined'
        if parts := blob_parts.join(small, joined):
            self._head.rename(parts)
            self._uploads = [(small[0][0], joined), *(
                upload for upload in self._uploads if upload not in small)]

    def _is_resumed_after(self, error: BaseException) -> bool:
        return self._resumes and exceptions.is_resumable(error)

    def _remove_uploads(self, needed: Collection[str] = ()) -> None:
        """Remove blobs that no catalogue will name.

        :param needed: those that one names
        """
        self._remove((name for name, _ in self._uploads
                      if name not in needed), 'a save that failed')

    def _remove(self, names: Iterable[str], what: str) -> None:
        for name in names:
            try:
                self._access.store.delete(name)
            except exceptions.DiffCacheError as exc:
                LOG.warning('Could not remove blob %s of %s: %s', name, what,
                            exc)


def _blob_suffix(staging: pathlib.Path, number: int) -> tuple[str, int]:
    """Return the suffix of a save's blobs, the same when it is resumed.

    No two saves, killed or not, ever choose the same.

    :param number: of the catalogue that the save begins with
    :returns: the suffix, and the number that the save began with first
    """
    path = staging / NAMES
    with contextlib.suppress(FileNotFoundError, ValueError):
        suffix, begun = path.read_text().split()
        return suffix, int(begun)
    suffix = secrets.token_hex(4)
    with files.space_errors(path):
        path.write_text(f'{suffix} {number}')
    return suffix, number
