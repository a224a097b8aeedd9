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
"""Making disks be what versions were.

In place, only what differs is written: the *reverse delta* of the CloudVS
paper, section 3.7. Where that is much, the disks are built anew beside the old
ones, and put in their places. Either way nothing is written before all disks
were looked at, and a journal beside each disk says that it is being changed
until all of them are what they shall be: they go back together, or are known
not to have yet. The state before is kept as a version unless the caller says
otherwise; then after any crash both the old state and the new can be had from
the store.
"""

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import shutil
import stat
import time
from typing import Any
from typing import Callable
from typing import Iterator
from typing import Sequence

from diffcache_openstack import _native
from diffcache_openstack.blocks import native as native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.versions import bases
from diffcache_openstack.versions import heads
from diffcache_openstack.versions import locks
from diffcache_openstack.versions import nbd
from diffcache_openstack.versions import repository
from diffcache_openstack.versions import saving
from diffcache_openstack.versions import snapshots

LOG = logging.getLogger(__name__)

Progress = Callable[[int, int], object] | None
# How disks become what they were; ``AUTO`` is the cheaper way.
ROLLBACK, REBUILD, AUTO = 'rollback', 'rebuild', 'auto'
WAYS = (AUTO, ROLLBACK, REBUILD)
# A write in place moves the disk's head; one of a rebuild follows the last.
_IN_PLACE_FACTOR = 2.0
# Replacing a block of this many bytes costs at least one write.
_WRITE_OVERHEAD = 16 << 10
# A new disk has tables, and is made durable under a name of its own.
_DISK_OVERHEAD = 1 << 20


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
        return cheaper([self])

    def summary(self) -> dict[str, Any]:
        """What users are told of the plan."""
        return {
            'version': self.version, 'dry_run': True,
            'bytes_to_write': self.bytes_differing,
            'ranges': len(self.ranges), 'bytes_rebuild': self.bytes_rebuild,
            'cheaper': self.cheaper, 'bytes_read': self.bytes_read}


def _costs(plans: Sequence[Plan]) -> tuple[int, int]:
    """What both ways cost, as bytes that are written one after the other."""
    in_place = sum(plan.bytes_differing * _IN_PLACE_FACTOR
                   + len(plan.ranges) * _WRITE_OVERHEAD for plan in plans)
    anew = sum(plan.bytes_rebuild + _DISK_OVERHEAD for plan in plans)
    return int(in_place), anew


def cheaper(plans: Sequence[Plan]) -> str:
    """The cheaper way for all disks: ``rollback`` or ``rebuild``."""
    in_place, anew = _costs(plans)
    return ROLLBACK if in_place <= anew else REBUILD


def reason(plans: Sequence[Plan]) -> str:
    """Why that is the cheaper way, for people."""
    in_place, anew = _costs(plans)
    return (f'{sum(plan.bytes_differing for plan in plans)} bytes in'
            f' {sum(len(plan.ranges) for plan in plans)} places cost as much'
            f' as {in_place} in a row; the disks anew cost {anew}.')


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
    info = snapshots.disk_info(request.disk, request.disk_format)
    with native_errors.translated():
        anchor = _anchor(head, version, info)
        against = anchor[0] if anchor else version
        base_id = version.base.id if version.base else None
        draft = opened.scan(
            request.disk, against.root, against.size, 'names',
            request.disk.parent, 0, repository.LEVEL,
            disk_format=info['format'],
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


@dataclasses.dataclass(frozen=True)
class Back:
    """How disks went back, and why so; one entry for each disk."""

    way: str
    reason: str
    disks: list[RolledBack]


class _NotOurs(exceptions.PermanentError):
    """A new disk cannot belong to whom the old one belongs to."""


@dataclasses.dataclass(frozen=True)
class _Work:
    """One disk that is to go back."""

    version: heads.Version
    request: saving.Request
    info: dict[str, Any]
    plan: Plan

    @property
    def disk(self) -> pathlib.Path:
        """The file."""
        return self.request.disk

    @property
    def format(self) -> str:
        """``qcow2`` or ``raw``."""
        return self.info['format']

    def done(self, written: int, started: float) -> RolledBack:
        """What it came to."""
        return RolledBack(
            self.version.id, None, self.plan.bytes_differing, written,
            self.plan.bytes_read, round(time.monotonic() - started, 3))


def roll_back(repo: repository.Repository, name: str,
              request: saving.Request, keep: bool = True,
              progress: Progress = None) -> RolledBack:
    """Make a disk be what a version was, in place.

    After a crash the same call, or one with another version, finishes: the
    disk is compared with the version anew. A disk in the middle of a
    rollback is not saved again, for it is neither state.

    :param keep: save the state before as a version of the request's series
    :raises Busy: a guest has the disk
    :raises InvalidInput: the disk and the version have different sizes
    """
    started = time.monotonic()
    version = repo.head().find(name)
    bases.check(version, request.base, request.base_id)
    unfinished = interrupted(request.disk)
    kept = unfinished['kept'] if unfinished else None
    if keep and unfinished is None:
        kept = saving.save(repo, request, progress).id
    back = go_back(repo, [(version.id, request)], ROLLBACK, kept, progress)
    return dataclasses.replace(
        back.disks[0], kept=kept,
        seconds=round(time.monotonic() - started, 3))


def go_back(repo: repository.Repository,
            targets: Sequence[tuple[str, saving.Request]], way: str = AUTO,
            kept: str | None = None, progress: Progress = None) -> Back:
    """Make disks be what versions were: all of them.

    Nothing is changed if one of them cannot be. After a crash the same call,
    or one with other versions, finishes.

    :param targets: the versions' names, and the disks
    :param way: one of :data:`WAYS`
    :param kept: the version that has the state before, for the journal
    :raises Busy: a guest has a disk
    :raises Conflict: a disk that would be built anew has snapshots of others
    :raises InvalidInput: a disk and its version have different sizes
    :raises NoSpace: there is no room for disks anew, and they were asked for
    :raises PermanentError: the same of the right to make them
    """
    head = repo.head()
    with repo.opened(head) as opened:
        works = [_work(opened, head, name, request, progress)
                 for name, request in targets]
        plans = [work.plan for work in works]
        chosen, why = _chosen(works, way)
        if chosen == REBUILD:
            try:
                done = _rebuild(opened, works, kept, progress)
            except (exceptions.NoSpace, _NotOurs) as exc:
                if way != AUTO:
                    raise
                chosen, why = ROLLBACK, f'Disks anew cannot be made: {exc}'
        if chosen == ROLLBACK:
            done = _in_place(opened, head, works, kept, progress)
    LOG.info('Disks went back by %s, %d bytes differed: %s', chosen,
             sum(plan.bytes_differing for plan in plans), why)
    for work in works:
        if work.format == 'qcow2' and work.request.snapshotter is not None:
            _anchor_again(repo, work.version, work.request)
    for work in works:
        journal_path(work.disk).unlink()
    for directory in {work.disk.parent for work in works}:
        files.sync_directory(directory)
    return Back(chosen, why, done)


def _work(opened: _native.VersionStore, head: heads.Head, name: str,
          request: saving.Request, progress: Progress) -> _Work:
    version = head.find(name)
    bases.check(version, request.base, request.base_id)
    _clear(request.disk)
    info = snapshots.disk_info(request.disk, request.disk_format)
    return _Work(version, request, info,
                 _compare(opened, head, version, request, progress))


def _chosen(works: list[_Work], way: str) -> tuple[str, str]:
    """A way for all disks, and why it is that one.

    :raises InvalidInput: there is no such way
    :raises Conflict: it would lose what is not ours
    """
    if way not in WAYS:
        raise exceptions.InvalidInput(
            f'{way!r} is no way back: choose one of {", ".join(WAYS)}.')
    foreign = [str(work.disk) for work in works
               if any(not name.startswith(f'{saving.PREFIX}-')
                      for _, name, _ in work.info['snapshots'])]
    if way == REBUILD and foreign:
        raise exceptions.Conflict(
            f'{", ".join(foreign)} has internal snapshots that somebody else'
            f' made, and would lose them: go back in place.')
    if way != AUTO:
        return way, 'It was asked for.'
    if foreign:
        return ROLLBACK, 'Somebody else has made internal snapshots.'
    plans = [work.plan for work in works]
    return cheaper(plans), reason(plans)


def _in_place(opened: _native.VersionStore, head: heads.Head,
              works: list[_Work], kept: str | None, progress: Progress
              ) -> list[RolledBack]:
    """Write what differs."""
    done = []
    with contextlib.ExitStack() as stack:
        # Before anything is changed, for a guest may have one of them.
        for work in works:
            stack.enter_context(_opened_disk(work.disk, work.format))
        for work in works:
            _write_journal(work.request, work.version, kept)
    for work in works:
        started = time.monotonic()
        if work.format == 'qcow2':
            _drop_snapshots(work.request, head, work.info)
        with _opened_disk(work.disk, work.format) as disk:
            with native_errors.translated():
                opened.give(work.version.root, work.version.size,
                            work.plan.ranges, disk.write, disk.zero,
                            base=work.request.base, progress=progress)
            disk.flush()
        done.append(work.done(disk.written, started))
    return done


def _rebuild(opened: _native.VersionStore, works: list[_Work],
             kept: str | None, progress: Progress) -> list[RolledBack]:
    """Build the disks anew, and put them in the places of the old ones.

    :raises NoSpace: there is no room for both; nothing is changed
    """
    built = [_nest(work.disk) / work.disk.name for work in works]
    done = []
    try:
        for work, path in zip(works, built):
            started = time.monotonic()
            written = _build(opened, work, path, progress)
            done.append(work.done(written, started))
        with contextlib.ExitStack() as stack:
            # As long as they are open here, no guest begins to use them.
            for work in works:
                stack.enter_context(_opened_disk(work.disk, work.format))
            for work in works:
                _write_journal(work.request, work.version, kept)
            for work, path in zip(works, built):
                os.replace(path, work.disk)
                files.sync_directory(work.disk.parent)
    finally:
        for work in works:
            _clear(work.disk)
    return done


def _nest(disk: pathlib.Path) -> pathlib.Path:
    """The directory that a disk is built anew in, beside the old one."""
    return disk.with_name(f'.{disk.name}.rebuilt')


def _clear(disk: pathlib.Path) -> None:
    """Remove what was built anew, or a part of it that a killed one left."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(_nest(disk))


def _build(opened: _native.VersionStore, work: _Work, path: pathlib.Path,
           progress: Progress) -> int:
    """Write a version to a file that can take a disk's place.

    :returns: bytes written
    """
    path.parent.mkdir(mode=0o700)
    base = work.request.base
    with native_errors.translated():
        if work.format == 'raw':
            written = opened.restore_raw(
                work.version.root, work.version.size, path, base=base,
                progress=progress)
        else:
            backing = None
            if base is not None and work.info['backing'] is not None:
                is_qcow2, _size = _native.qcow2_probe(base)
                # Named as before, which is how Nova and others know it.
                backing = (work.info['backing'],
                           'qcow2' if is_qcow2 else 'raw')
            written = opened.restore_qcow2(
                work.version.root, work.version.size, path, base=base,
                backing=backing, progress=progress)
    _give(path, work.disk)
    return written


def _give(path: pathlib.Path, disk: pathlib.Path) -> None:
    """Let a file belong to whom a disk belongs to.

    :raises _NotOurs: this process may not do that
    """
    old, new = disk.stat(), path.stat()
    try:
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            os.chown(path, old.st_uid, old.st_gid)
        os.chmod(path, stat.S_IMODE(old.st_mode))
    except PermissionError as exc:
        raise _NotOurs(
            f'a file cannot be given to the owner of {disk}: run as root, or '
            f'as that owner, or go back in place.') from exc


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
    files.sync_directory(path.parent)


def _drop_snapshots(request: saving.Request, head: heads.Head,
                    info: dict[str, Any]) -> None:
    """Remove our snapshots, so that blocks are written where they are.

    A cluster that a snapshot shares would be copied whole for each block.
    The next save takes a new one.
    """
    if request.snapshotter is None:
        return
    for _, name, _ in info['snapshots']:
        if name.startswith(f'{saving.PREFIX}-{head.store_id}-'):
            request.snapshotter.delete(name)


def _anchor_again(repo: repository.Repository, version: heads.Version,
                  request: saving.Request) -> None:
    """Take a snapshot of the state that the disk has now: the version's.

    The next save then has to look only at what changed since.
    """
    assert request.snapshotter is not None
    with repo.writing():
        head = repo.head()
        name = f'{saving.PREFIX}-{head.store_id}-{version.id[:8]}'
        request.snapshotter.create(name)
        info = snapshots.disk_info(request.disk, request.disk_format)
        print_of = {each: fingerprint for _, each, fingerprint
                    in info['snapshots']}
        taken = heads.Snapshot(name, print_of[name])
        head.versions[version.id] = dataclasses.replace(
            head.versions[version.id],
            snapshots=(*version.snapshots, taken))
        repo.commit(head)


class _RawDisk:
    """A raw disk, written in place. No guest can begin to use it meanwhile.

    :raises Busy: one does
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._stream = open(path, 'r+b', buffering=0)
        self.written = 0
        try:
            locks.exclude(self._stream.fileno(), path)
        except exceptions.Busy:
            self.close()
            raise

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


def snapshots_for(disk: pathlib.Path, disk_format: str | None = None
                  ) -> snapshots.Snapshots | None:
    """How snapshots of a stopped guest's disk are made; None for raw.

    :param disk_format: see :func:`.snapshots.disk_info`
    """
    if snapshots.can_keep(disk, disk_format):
        return snapshots.Offline(disk)
    return None
