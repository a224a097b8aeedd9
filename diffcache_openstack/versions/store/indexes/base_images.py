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
"""Base images of disks: identification, and indexes of their blocks.

By the index a save distinguishes blocks copied from the base from changed
ones.
"""

import dataclasses
import logging
import pathlib
from typing import Any
from typing import Callable

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.versions.blobs import checksums
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries

LOG = logging.getLogger(__name__)

Progress = Callable[[int, int], object] | None


@dataclasses.dataclass(frozen=True)
class GivenBase:
    """A disk, and its base image as the caller names it."""

    disk: pathlib.Path
    image: pathlib.Path | None
    # The image's content id, if it is known.
    image_id: str | None


def identify(image: pathlib.Path, known: str | None = None,
             progress: Progress = None) -> entries.Base:
    """Describe an image, raw or qcow2, as a base.

    :param known: its content id; if None the image is read to compute it
    :raises InvalidInput: the image has a backing file itself, or is refused
    """
    with native_errors.translated():
        _, size = _native.qcow2_probe(image)
        content_id = known or _native.qcow2_content_id(image, progress)
        return entries.Base(content_id, str(image), size)


class BaseIndexes:
    """The indexes of base images in a catalogue, and new ones.

    One that this host has neither created nor compared with the image before
    is compared with it first: a wrong one would have a save leave out blocks
    that the image does not have.

    :param token: suffix of the names of new blobs
    """

    def __init__(self, access: store_access.StoreAccess,
                 opened: _native.BlockStore, head: catalogue.Catalogue,
                 staging: pathlib.Path, token: str) -> None:
        self._access = access
        self._opened = opened
        self._head = head
        self._staging = staging
        self._token = token
        # Blobs to upload before the catalogue is committed.
        self.uploads: list[tuple[str, pathlib.Path]] = []

    def find(self, info: dict[str, Any], parents: entries.Base | None,
             given: GivenBase, progress: Progress = None
             ) -> entries.Base | None:
        """Return the base of a disk; None if it has none.

        A backing file that a qcow2 disk names is not opened: only an image
        that the caller names is.
        """
        if given.image is None:
            return self._recorded(given.disk, info, parents)
        found = identify(given.image, given.image_id, progress)
        if parents is not None and parents.id == found.id:
            # One base has one record, however it was named.
            found = parents
        assert found.id is not None
        known = self._head.bases.get(found.id)
        if known is None:
            self._add(found.id, self._create(found.id, given.image, progress))
        elif known.blob.endswith(f'-{self._token}'):
            return found  # Another disk of this save has the same base.
        elif self._is_damaged(found.id, known):
            self._replace(found.id, known,
                          self._create(found.id, given.image, progress))
        elif not self._access.may_use_index(found.id, known):
            self._compare(found.id, known,
                          self._create(found.id, given.image, progress))
        return found

    def _is_damaged(self, base_id: str, known: entries.Blob) -> bool:
        try:
            with native_errors.translated():
                self._opened.verify_base(base_id, known.blob,
                                         store_reader.check_of(known))
        except store_reader.DAMAGE as exc:
            LOG.warning('The index of base image %s cannot be read: %s',
                        base_id, exc)
            return True
        return False

    def _recorded(self, disk: pathlib.Path, info: dict[str, Any],
                  parents: entries.Base | None) -> entries.Base | None:
        """Return the base by the parent's record or the disk's tables."""
        if info['backing'] is None:
            if parents is not None and info['format'] == 'raw':
                return parents
            return None
        if parents is not None:
            return parents
        LOG.warning('Saving %s without its base image %s: blocks copied from '
                    'the base are stored, and a restore cannot check the '
                    'base; name it with --base', disk, info['backing'])
        return entries.Base(None, info['backing'], None)

    def _create(self, base_id: str, image: pathlib.Path, progress: Progress
                ) -> pathlib.Path:
        """Create the index of an image, and use it for this save."""
        path = self._staging / f'base-{base_id[:16]}'
        if not files.is_there(path):
            with (files.replacing(path) as part,
                  native_errors.translated()):
                self._opened.create_base(image, part, progress)
        with native_errors.translated():
            self._opened.add_base(base_id, path)
        return path

    def _compare(self, base_id: str, known: entries.Blob,
                 path: pathlib.Path) -> None:
        """Compare the index in the store with that of the image."""
        # Each ends with a hash of all that is before it.
        if checksums.of_file(path) == known.check:
            self._access.note_index(base_id, known)
            return
        LOG.error('Not using the index %s of base image %s in the store of'
                  ' versions, which is not that of the image: a host that'
                  ' writes to the store is compromised or faulty. Delete the'
                  ' versions on that image, and prune, to have a new one',
                  known.blob, base_id)

    def _replace(self, base_id: str, damaged: entries.Blob,
                 path: pathlib.Path) -> None:
        """Replace an index that is damaged or missing, if this host may."""
        if self._access.store.append_only:
            return
        LOG.warning('Replacing the index %s of base image %s, which is '
                    'damaged or missing', damaged.blob, base_id)
        self._add(base_id, path)

    def _add(self, base_id: str, path: pathlib.Path) -> None:
        blob = entries.Blob(
            f'{path.name}-{self._token}', path.stat().st_size,
            checksums.of_file(path))
        self._head.bases[base_id] = blob
        self._access.note_index(base_id, blob)
        self.uploads.append((blob.blob, path))


def same(one: entries.Base | None, other: entries.Base | None) -> bool:
    """Return whether two versions have the same base, or both have none."""
    if one is None or other is None:
        return one is other
    if one.id is None or other.id is None:
        return (one.id, one.name) == (other.id, other.name)
    return one.id == other.id


def check(version: entries.Version, given: pathlib.Path | None,
          known: str | None = None) -> None:
    """Check that an image is the base of a version.

    :param known: the image's content id; if None it is computed
    :raises InvalidInput: a base is missing, or the version has none
    :raises BaseMismatch: it is another image
    """
    if version.base is None:
        if given is not None:
            raise exceptions.InvalidInput(
                f'Version {version.id} has no base image: omit --base.')
        return
    if given is None:
        raise exceptions.InvalidInput(
            f'Version {version.id} needs its base image '
            f'{version.base.name}: name it with --base.')
    if version.base.id is None:
        LOG.warning('Cannot check that %s is the base image of version %s: '
                    'it was saved without --base', given, version.id)
        return
    if identify(given, known).id != version.base.id:
        raise exceptions.BaseMismatch(
            f'{given} is not the base image of version {version.id}: use '
            f'{version.base.name}, content {version.base.id}.')
