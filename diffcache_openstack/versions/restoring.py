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
import pathlib
import time
from typing import Any
from typing import Callable

from diffcache_openstack import _native
from diffcache_openstack.blocks import native as native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import bases
from diffcache_openstack.versions import repository

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


def restore(repo: repository.Repository, name: str, output: pathlib.Path,
            disk_format: str, base: pathlib.Path | None = None,
            progress: Progress = None) -> Restored:
    """Write a version to a file, which appears complete and durable.

    :param disk_format: ``raw``, or ``qcow2``; with a base image, a qcow2
        file names it as its backing file and holds what differs
    :raises NotFound: there is no such version
    :raises BaseMismatch: the base is another image than the version's
    :raises IntegrityError: the store is damaged
    """
    if disk_format not in FORMATS:
        raise exceptions.InvalidInput(
            f'A disk of format {disk_format!r}: choose {" or ".join(FORMATS)}')
    started = time.monotonic()
    head = repo.head()
    version = head.find(name)
    bases.check(version, base)
    with repo.opened(head) as opened, native_errors.translated():
        if disk_format == 'raw':
            written = opened.restore_raw(
                version.root, version.size, output, base=base,
                progress=progress)
        else:
            written = opened.restore_qcow2(
                version.root, version.size, output, base=base,
                backing=_backing(base), progress=progress)
    return Restored(version.id, str(output), disk_format, version.size,
                    written, round(time.monotonic() - started, 3))


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
