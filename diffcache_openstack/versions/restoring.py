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
"""Versions as disks again."""

import dataclasses
import logging
import pathlib
import time
from typing import Any
from typing import Callable

from diffcache_openstack import _native
from diffcache_openstack.blocks import native as native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import bases
from diffcache_openstack.versions import heads
from diffcache_openstack.versions import repository

LOG = logging.getLogger(__name__)

Progress = Callable[[int, int], object] | None
FORMATS = ('raw', 'qcow2')


@dataclasses.dataclass(frozen=True)
class Restored:
    """What a restore did."""

    version: str
    output: str
    format: str
    size: int
    bytes_written: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The fields, as the toolbox prints them."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Output:
    """The file that a version is written to."""

    path: pathlib.Path
    # ``raw`` or ``qcow2``.
    format: str
    # A qcow2 file names the version's base as its backing file and holds
    # what differs; otherwise the file lies on nothing.
    backed: bool = True


def restore(repo: repository.Repository, name: str, output: Output,
            base: pathlib.Path | None = None, base_id: str | None = None,
            progress: Progress = None) -> Restored:
    """Write a version to a file, which appears complete and durable.

    :param base: the version's base image, if it has one
    :param base_id: the base's content id, if it is known; otherwise the
        image is read to tell which it is
    :raises NotFound: there is no such version
    :raises BaseMismatch: the base is another image than the version's
    :raises IntegrityError: the store is damaged
    """
    if output.format not in FORMATS:
        raise exceptions.InvalidInput(
            f'A disk of format {output.format!r}: choose '
            f'{" or ".join(FORMATS)}')
    started = time.monotonic()
    while True:
        head = repo.head()
        version = head.find(name)
        bases.check(version, base, base_id)
        try:
            written = _write(repo, head, version, output, base, progress)
        except exceptions.Busy as exc:
            if repo.head().number == head.number:
                raise
            # Of a prune: what it wrote anew is elsewhere now.
            LOG.info('Restoring %s begins again: %s', version.id, exc)
            continue
        return Restored(version.id, str(output.path), output.format,
                        version.size, written,
                        round(time.monotonic() - started, 3))


def _write(repo: repository.Repository, head: heads.Head,
           version: heads.Version, output: Output,
           base: pathlib.Path | None, progress: Progress) -> int:
    """Write a version; the bytes that were written."""
    with repo.opened(head) as opened, native_errors.translated():
        if output.format == 'raw':
            return opened.restore_raw(
                version.root, version.size, output.path, base=base,
                progress=progress)
        return opened.restore_qcow2(
            version.root, version.size, output.path, base=base,
            backing=_backing(base if output.backed else None),
            progress=progress)


def _backing(base: pathlib.Path | None) -> tuple[str, str] | None:
    if base is None:
        return None
    is_qcow2, _size = _native.qcow2_probe(base)
    return str(base.resolve()), 'qcow2' if is_qcow2 else 'raw'


@dataclasses.dataclass(frozen=True)
class Difference:
    """In what two versions differ. Ranges are (offset, length) in bytes."""

    old: str
    new: str
    blocks: int
    bytes: int
    ranges: list[tuple[int, int]]


def diff(repo: repository.Repository, old: str, new: str) -> Difference:
    """In what two versions differ; costs what differs, not what they are.

    :raises NotFound: there is no such version
    :raises InvalidInput: the versions lie on different base images
    """
    head = repo.head()
    one, other = head.find(old), head.find(new)
    if not bases.same(one.base, other.base):
        raise exceptions.InvalidInput(
            f'{one.id} and {other.id} lie on different base images: their '
            f'maps cannot be compared.')
    with repo.opened(head) as opened, native_errors.translated():
        ranges = opened.differences(
            one.root, other.root, max(one.size, other.size),
            base_id=one.base.id if one.base else None)
    blocks = sum(count for _, count in ranges)
    return Difference(
        one.id, other.id, blocks, blocks * head.block_size,
        [(first * head.block_size, count * head.block_size)
         for first, count in ranges])
