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
"""Writing versions to volumes that the caller has opened."""

import dataclasses
import logging
import os
import stat
import time
from typing import Callable

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.runtime import directories
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.indexes import base_images

LOG = logging.getLogger(__name__)

Progress = Callable[[int, int], object] | None


@dataclasses.dataclass(frozen=True)
class Written:
    """The result of a restore to a volume. Sizes in bytes."""

    size: int
    bytes_read: int
    bytes_written: int
    seconds: float


def write(access: store_reader.StoreReader, name: str, descriptor: int,
          progress: Progress = None) -> Written:
    """Write a version to an open volume, where it differs from it.

    What a larger volume has behind the version's end stays. A restore that was
    interrupted is repeated, and writes the rest.

    :param descriptor: of a block device or a regular file, open for reading
        and writing; a file that is shorter than the version grows
    :raises NotFound: the version does not exist
    :raises InvalidInput: the volume is smaller than the version
    :raises IntegrityError: the store is damaged
    """
    started = time.monotonic()
    while True:
        head = access.head()
        version = head.find(name)
        base_images.check(version, None, None)
        _make_room(descriptor, version)
        try:
            read, written = _write(access, head, version, descriptor, progress)
        except exceptions.Busy as exc:
            if access.head().number == head.number:
                raise
            # A prune has rewritten packs under other names.
            LOG.info('Restarting the restore of version %s: %s', version.id,
                     exc)
            continue
        return Written(version.size, read, written,
                       round(time.monotonic() - started, 3))


def _make_room(descriptor: int, version: entries.Version) -> None:
    size = os.lseek(descriptor, 0, os.SEEK_END)
    if size >= version.size:
        return
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise exceptions.InvalidInput(
            f'The volume has {size} bytes, and version {version.id} has '
            f'{version.size}: restore it to a volume that is large enough.')
    os.ftruncate(descriptor, version.size)


def _write(access: store_reader.StoreReader, head: catalogue.Catalogue,
           version: entries.Version, descriptor: int, progress: Progress
           ) -> tuple[int, int]:
    """Write what differs; return the bytes read and written."""
    path = directories.descriptor_path(descriptor)
    present = _native.Reference(version.root, version.size)
    with access.opened(head) as opened:
        with native_errors.translated():
            source = _native.DiskSource(path, 'raw')
            found = opened.compare_disk(source, present, present, progress)
        with files.space_errors(path), native_errors.translated():
            disk = _native.DiskWriter.raw(descriptor, str(path))
            written = opened.write_ranges(
                _native.Content(version.root, version.size), found.ranges,
                disk, progress)
            disk.flush()
    return found.bytes_read, written
