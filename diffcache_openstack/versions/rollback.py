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
"""Rolling a disk back to a version, in place.

Only what differs is written: the *reverse delta* of the CloudVS paper,
section 3.7. A journal beside the disk is written first, so that a rollback
that was cut short is known to be one. The state before is kept as a version
unless the caller says otherwise; then after any crash both the old state and
the new can be had from the store.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import time
from typing import Any
from typing import Callable
from typing import Iterator

from diffcache_openstack import _native
from diffcache_openstack.blocks import native as native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import bases
from diffcache_openstack.versions import heads
from diffcache_openstack.versions import nbd
from diffcache_openstack.versions import repository
from diffcache_openstack.versions import saving
from diffcache_openstack.versions import snapshots

Progress = Callable[[int, int], object] | None
# A write in place moves the disk's head; one of a rebuild follows the last.
_IN_PLACE_FACTOR = 2.0
# Replacing a block of this many bytes costs at least one write.
_WRITE_OVERHEAD = 16 << 10


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a rollback would write, and what rebuilding would."""

    version: str
    # Ranges of blocks (first, count).
    ranges: list[tuple[int, int]]
    bytes_differing: int
    bytes_rebuild: int
    bytes_read: int

    @property
    def cheaper(self) -> str:
        """``rollback``, or ``rebuild`` if writing the disk anew is."""
        in_place = (self.bytes_differing * _IN_PLACE_FACTOR
                    + len(self.ranges) * _WRITE_OVERHEAD)
        return 'rollback' if in_place <= self.bytes_rebuild else 'rebuild'

    def summary(self) -> dict[str, Any]:
        """What users are told of the plan."""
        return {
            'version': self.version, 'dry_run': True,
            'bytes_to_write': self.bytes_differing,
            'ranges': len(self.ranges), 'bytes_rebuild': self.bytes_rebuild,
            'cheaper': self.cheaper, 'bytes_read': self.bytes_read}


@dataclasses.dataclass(frozen=True)
class RolledBack:
    """What a rollback did. Sizes in bytes."""

    version: str
    # The version that has the state before; None if it was not kept.
    kept: str | None
    bytes_differing: int
    bytes_written: int
    bytes_read: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The fields, as the toolbox prints them."""
        return dataclasses.asdict(self)


def plan(repo: repository.Repository, name: str, request: saving.Request,
         progress: Progress = None) -> Plan:
    """What rolling a disk back would write; changes nothing.

    :param request: the disk, its series and its base image
    """
    head = repo.head()
    version = head.find(name)
    bases.check(version, request.base, request.base_id)
    with repo.opened(head) as opened:
        return _compare(opened, head, version, request, progress)


def _anchor(head: heads.Head, version: heads.Version, info: dict[str, Any]
            ) -> tuple[heads.Version, heads.Snapshot] | None:
    there = {(name, fingerprint) for _, name, fingerprint
             in info['snapshots']}
    for candidate in sorted(head.versions.values(),
                            key=lambda each: -each.number):
        for snapshot in candidate.snapshots:
            if ((snapshot.name, snapshot.fingerprint) in there
                    and bases.same(candidate.base, version.base)):
                return candidate, snapshot
    return None


def _compare(opened: _native.VersionStore, head: heads.Head,
             version: heads.Version, request: saving.Request,
             progress: Progress) -> Plan:
    """Find in what the disk's present state differs from a version."""
    with native_errors.translated():
        info = _native.version_disk_info(request.disk)
        anchor = _anchor(head, version, info)
        against = anchor[0] if anchor else version
        base_id = version.base.id if version.base else None
        draft = opened.scan(
            request.disk, against.root, against.size, 'names',
            request.disk.parent, 0, repository.LEVEL,
            has_base=version.base is not None, base_id=base_id,
            parent_snapshot=(anchor[1].name, anchor[1].fingerprint)
            if anchor else None, rate=request.rate, progress=progress)
        if draft.size != version.size:
            raise exceptions.InvalidInput(
                f'{request.disk} has {draft.size} bytes and version '
                f'{version.id} has {version.size}: resize the disk, or '
                f'restore the version to a new file.')
        preview = opened.preview(draft, head.next_map)
        ranges = opened.differences(preview, version.root, version.size,
                                    base_id=base_id, draft=draft)
        reference = heads.BASE_ROOT if version.base else heads.ZERO_ROOT
        runs = opened.differential(reference, version.root, 0)
    differing = sum(count for _, count in ranges)
    return Plan(version.id, ranges, differing * head.block_size,
                sum(run[1] for run in runs) * head.block_size,
                draft.bytes_read)


def journal_path(disk: pathlib.Path) -> pathlib.Path:
    """The file that says that a disk is being rolled back."""
    return disk.with_name(f'{disk.name}.rollback')


def interrupted(disk: pathlib.Path) -> dict[str, Any] | None:
    """What a rollback that was cut short was doing; None if none was.

    The keys are ``version``, ``kept`` and ``series``.
    """
    try:
        return json.loads(journal_path(disk).read_text())
    except FileNotFoundError:
        return None


def roll_back(repo: repository.Repository, name: str,
              request: saving.Request, keep: bool = True,
              progress: Progress = None) -> RolledBack:
    """Make a disk be what a version was.

    After a crash the same call, or one with another version, finishes: the
    disk is compared with the version anew. A disk in the middle of a
    rollback is not saved again, for it is neither state.

    :param keep: save the state before as a version of the request's series
    :raises Busy: a guest has the disk
    :raises InvalidInput: the disk and the version have different sizes
    """
    started = time.monotonic()
    head = repo.head()
    version = head.find(name)
    bases.check(version, request.base, request.base_id)
    unfinished = interrupted(request.disk)
    kept = unfinished['kept'] if unfinished else None
    if keep and unfinished is None:
        kept = saving.save(repo, request, progress).id
        head = repo.head()
    with native_errors.translated():
        info = _native.version_disk_info(request.disk)
    with repo.opened(head) as opened:
        what = _compare(opened, head, version, request, progress)
        _write_journal(request, version, kept)
        if info['format'] == 'qcow2':
            _drop_snapshots(request, head, info)
        with _opened_disk(request.disk, info['format']) as disk:
            with native_errors.translated():
                opened.give(version.root, version.size, what.ranges,
                            disk.write, disk.zero, base=request.base,
                            progress=progress)
            disk.flush()
    if info['format'] == 'qcow2' and request.snapshotter is not None:
        _anchor_again(repo, version, request)
    journal_path(request.disk).unlink()
    _sync_directory(request.disk.parent)
    return RolledBack(
        version.id, kept, what.bytes_differing, disk.written,
        what.bytes_read, round(time.monotonic() - started, 3))


def _write_journal(request: saving.Request, version: heads.Version,
                   kept: str | None) -> None:
    path = journal_path(request.disk)
    part = path.with_name(f'.{path.name}.part')
    fields = {'version': version.id, 'kept': kept, 'series': request.series}
    with open(part, 'w', encoding='utf-8') as stream:
        json.dump(fields, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, path)
    _sync_directory(path.parent)


def _sync_directory(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _drop_snapshots(request: saving.Request, head: heads.Head,
                    info: dict[str, Any]) -> None:
    """Remove our snapshots, so that blocks are written where they are.

    A cluster that a snapshot shares would be copied whole for each block.
    The next save takes a new one.
    """
    if request.snapshotter is None:
        return
    for _, name, _ in info['snapshots']:
        if name.startswith(f'dc-{head.store_id}-'):
            request.snapshotter.delete(name)


def _anchor_again(repo: repository.Repository, version: heads.Version,
                  request: saving.Request) -> None:
    """Take a snapshot of the state that the disk has now: the version's.

    The next save then has to look only at what changed since.
    """
    assert request.snapshotter is not None
    with repo.writing():
        head = repo.head()
        name = f'dc-{head.store_id}-{version.id[:8]}'
        request.snapshotter.create(name)
        with native_errors.translated():
            info = _native.version_disk_info(request.disk)
        print_of = {each: fingerprint for _, each, fingerprint
                    in info['snapshots']}
        taken = heads.Snapshot(name, print_of[name])
        head.versions[version.id] = dataclasses.replace(
            head.versions[version.id],
            snapshots=(*version.snapshots, taken))
        repo.commit(head)


class _RawDisk:
    """A raw disk, written in place."""

    def __init__(self, path: pathlib.Path) -> None:
        self._stream = open(path, 'r+b', buffering=0)
        self.written = 0

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes at an offset."""
        self.written += len(data)
        while data:
            done = os.pwrite(self._stream.fileno(), data, offset)
            offset, data = offset + done, data[done:]

    def zero(self, offset: int, length: int) -> None:
        """Write zeroes at an offset."""
        while length > 0:
            part = min(length, 1 << 20)
            self.write(offset, bytes(part))
            offset, length = offset + part, length - part

    def flush(self) -> None:
        """Return when all is durable."""
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Let go of the disk."""
        self._stream.close()


class _ServedDisk:
    """A disk of another format, written through a server that knows it."""

    def __init__(self, client: nbd.Client) -> None:
        self._client = client
        self.written = 0

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes at an offset."""
        self._client.write(offset, data)
        self.written += len(data)

    def zero(self, offset: int, length: int) -> None:
        """Write zeroes at an offset."""
        self._client.zero(offset, length)
        self.written += length

    def flush(self) -> None:
        """Return when all is durable."""
        self._client.flush()


@contextlib.contextmanager
def _opened_disk(path: pathlib.Path, disk_format: str
                 ) -> Iterator[_RawDisk | _ServedDisk]:
    if disk_format == 'raw':
        disk = _RawDisk(path)
        try:
            yield disk
        finally:
            disk.close()
        return
    with nbd.Server(path, disk_format) as client:
        yield _ServedDisk(client)


def snapshots_for(disk: pathlib.Path) -> snapshots.Snapshots | None:
    """How snapshots of a stopped guest's disk are made; None for raw."""
    return snapshots.Offline(disk) if snapshots.can_keep(disk) else None
