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
"""Restoring versions to new files, and comparing them."""

import dataclasses
import logging
import pathlib
import time
from typing import Any
from typing import Callable

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import block_nodes
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.indexes import base_images

LOG = logging.getLogger(__name__)

Progress = Callable[[int, int], object] | None
FORMATS = ('raw', 'qcow2')


@dataclasses.dataclass(frozen=True)
class Restored:
    """The result of a restore."""

    version: str
    output: str
    format: str
    size: int
    bytes_written: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, as the toolbox prints them."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Output:
    """The file to write a version to."""

    path: pathlib.Path
    # ``raw`` or ``qcow2``.
    format: str
    # A qcow2 file names the version's base as its backing file and has only
    # what differs; otherwise the file has no backing file.
    backed: bool = True


def restore(access: store_reader.StoreReader, name: str, output: Output,
            base: pathlib.Path | None = None, base_id: str | None = None,
            progress: Progress = None) -> Restored:
    """Write a version to a file, which appears when it is durable.

    :param base: the version's base image, if it has one
    :param base_id: the base's content id, if it is known; otherwise it is
        computed
    :raises NotFound: the version does not exist
    :raises BaseMismatch: the base is another image than the version's
    :raises IntegrityError: the store is damaged
    """
    if output.format not in FORMATS:
        raise exceptions.InvalidInput(
            f'Cannot restore to the format {output.format!r}: choose '
            f'{" or ".join(FORMATS)}.')
    started = time.monotonic()
    while True:
        head = access.head()
        version = head.find(name)
        base_images.check(version, base, base_id)
        try:
            written = _write(access, head, version, output, base, progress)
        except exceptions.Busy as exc:
            if access.head().number == head.number:
                raise
            # A prune has rewritten packs under other names.
            LOG.info('Restarting the restore of version %s: %s', version.id,
                     exc)
            continue
        return Restored(version.id, str(output.path), output.format,
                        version.size, written,
                        round(time.monotonic() - started, 3))


def _write(access: store_reader.StoreReader, head: catalogue.Catalogue,
           version: entries.Version, output: Output,
           base: pathlib.Path | None, progress: Progress) -> int:
    """Write a version; return the bytes written."""
    content = _native.Content(version.root, version.size, base)
    with access.opened(head) as opened, native_errors.translated():
        if output.format == 'raw':
            return opened.restore_raw(content, output.path, progress)
        return opened.restore_qcow2(
            content, output.path, _backing(base if output.backed else None),
            progress)


def _backing(base: pathlib.Path | None) -> tuple[str, str] | None:
    if base is None:
        return None
    return str(base.resolve()), block_nodes.format_of_base(base)


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference of two versions. Ranges: (offset, length) in bytes."""

    old: str
    new: str
    blocks: int
    bytes: int
    ranges: list[tuple[int, int]]


def diff(access: store_reader.StoreReader, old: str, new: str) -> Difference:
    """Compare two versions, at the cost of their difference, not size.

    :raises NotFound: a version does not exist
    :raises InvalidInput: the versions have different base images
    """
    head = access.head()
    one, other = head.find(old), head.find(new)
    if not base_images.same(one.base, other.base):
        raise exceptions.InvalidInput(
            f'Cannot compare versions {one.id} and {other.id}: they have '
            f'different base images.')
    with access.opened(head) as opened, native_errors.translated():
        ranges = opened.differences(
            one.root, other.root, max(one.size, other.size),
            base_id=one.base.id if one.base else None)
    blocks = sum(count for _, count in ranges)
    return Difference(
        one.id, other.id, blocks, blocks * head.block_size,
        [(first * head.block_size, count * head.block_size)
         for first, count in ranges])
