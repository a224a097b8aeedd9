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
"""Base images of disks: which one a disk lies on, and the names of its
blocks, by which copied blocks are told from changed ones.
"""

import dataclasses
import logging
import os
import pathlib
from typing import Any

from diffcache_openstack import _native
from diffcache_openstack.blocks import native as native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import heads

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Given:
    """What a caller tells of a disk's base."""

    disk: pathlib.Path
    image: pathlib.Path | None
    # The image's content id, if it is known.
    image_id: str | None


def identify(image: pathlib.Path, known: str | None = None) -> heads.Base:
    """The base that an image is, raw or qcow2.

    :param known: its content id; if None the image is read to tell
    :raises InvalidInput: the image lies itself on another, or is refused
    """
    with native_errors.translated():
        _, size = _native.qcow2_probe(image)
        content_id = known or _native.qcow2_content_id(image)
        return heads.Base(content_id, str(image), size)


class Bases:
    """The bases that a head knows, and those that come to it.

    :param token: what the names of new blobs end with
    """

    def __init__(self, opened: _native.VersionStore, head: heads.Head,
                 staging: pathlib.Path, token: str) -> None:
        self._opened = opened
        self._head = head
        self._staging = staging
        self._token = token
        # Blobs to be put before the head that names them is committed.
        self.puts: list[tuple[str, pathlib.Path]] = []

    def of_disk(self, info: dict[str, Any], parents: heads.Base | None,
                given: Given) -> heads.Base | None:
        """The base that a disk lies on; None if it lies on none.

        A disk that names a backing file is taken at its word only that there
        is one: the file is not opened, and the caller may tell which it is.
        """
        if given.image is None:
            return self._untold(given.disk, info, parents)
        lies_on = identify(given.image, given.image_id)
        if parents is not None and parents.id == lies_on.id:
            # One base has one record, however it was named.
            lies_on = parents
        assert lies_on.id is not None
        if lies_on.id not in self._head.bases:
            self._learn(lies_on.id, given.image)
        return lies_on

    def _untold(self, disk: pathlib.Path, info: dict[str, Any],
                parents: heads.Base | None) -> heads.Base | None:
        if info['backing'] is None:
            if parents is not None and info['format'] == 'raw':
                return parents
            return None
        if parents is not None:
            return parents
        LOG.warning('%s lies on %s: blocks that it copied from there are '
                    'stored, and restoring cannot check the base; name it '
                    'with --base', disk, info['backing'])
        return heads.Base(None, info['backing'], None)

    def _learn(self, base_id: str, image: pathlib.Path) -> None:
        path = self._staging / f'base-{base_id[:16]}'
        if not path.exists():
            part = path.with_name(f'{path.name}.part')
            with native_errors.translated():
                self._opened.create_base(image, part)
            os.replace(part, path)
        with native_errors.translated():
            self._opened.add_base(base_id, path)
        blob = heads.Blob(f'{path.name}-{self._token}', path.stat().st_size)
        self._head.bases[base_id] = blob
        self.puts.append((blob.blob, path))


def same(one: heads.Base | None, other: heads.Base | None) -> bool:
    """Whether two versions lie on the same image, or both on none."""
    if one is None or other is None:
        return one is other
    if one.id is None or other.id is None:
        return (one.id, one.name) == (other.id, other.name)
    return one.id == other.id


def check(version: heads.Version, given: pathlib.Path | None,
          known: str | None = None) -> None:
    """Whether an image is the base that a version lies on.

    :param known: the image's content id; if None the image is read to tell

    :raises InvalidInput: a base is missing, or one is given for nothing
    :raises BaseMismatch: it is another one
    """
    if version.base is None:
        if given is not None:
            raise exceptions.InvalidInput(
                f'Version {version.id} lies on no base image: leave out '
                f'--base.')
        return
    if given is None:
        raise exceptions.InvalidInput(
            f'Version {version.id} lies on the base image '
            f'{version.base.name}: name it with --base.')
    if version.base.id is None:
        LOG.warning('Nobody told which base image version %s lies on: %s is '
                    'not checked', version.id, given)
        return
    if identify(given, known).id != version.base.id:
        raise exceptions.BaseMismatch(
            f'{given} is not the base image of version {version.id}, which '
            f'was {version.base.name}, content {version.base.id}.')
