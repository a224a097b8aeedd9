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
"""Saving disks as versions."""

import dataclasses
import datetime
import hashlib
import json
import logging
import pathlib
import secrets
import time
from typing import Any
from typing import Callable
from typing import Sequence
import uuid

from diffcache_openstack import _native
from diffcache_openstack.blocks import native as native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import bases
from diffcache_openstack.versions import heads
from diffcache_openstack.versions import puts
from diffcache_openstack.versions import repository
from diffcache_openstack.versions import snapshots
from diffcache_openstack.versions import views

LOG = logging.getLogger(__name__)

Progress = Callable[[int, int], object] | None
# Chunks of a chunk group, as in the CloudVS paper's experiment 5.
GROUP_BLOCKS = 500
# With alpha 'auto' a restore of any version costs at most this multiple of
# what it would cost if the version were stored as differential.
FACTOR = 1.15
# Snapshots that versions are told from are called something beginning so.
PREFIX = 'dc'


@dataclasses.dataclass(frozen=True)
class Request:
    """What is to be saved, and how."""

    disk: pathlib.Path
    series: str
    # A version's id; the series' newest if None.
    parent: str | None = None
    # 0 (incremental) to 1 (differential), or 'auto'.
    alpha: float | str = 0.0
    # The internal snapshot to save. Made if there is none of this name.
    snapshot: str | None = None
    # Bytes per second that are read of the disk at most.
    rate: float | None = None
    # The base image that the disk lies on, and its content id if the caller
    # knows it: then the image is not read to tell which it is.
    base: pathlib.Path | None = None
    base_id: str | None = None
    # How internal snapshots are made; None: the disk is read as it is.
    snapshotter: snapshots.Snapshots | None = None
    # With alpha 'auto': how much a restore may cost, as a multiple of what a
    # differential version's would.
    factor: float = FACTOR
    # Nothing writes to the disk meanwhile: it needs no view either.
    as_it_is: bool = False
    # ``raw`` or ``qcow2``; if None, what the file begins with is believed.
    disk_format: str | None = None
    # What is read in place of raw disks.
    view: views.Together | None = None
    group_blocks: int = GROUP_BLOCKS


@dataclasses.dataclass
class _State:
    """What is saved of a disk, and how it is found."""

    # The file that is read.
    path: pathlib.Path
    info: dict[str, Any]
    base: heads.Base | None
    # The snapshot that is read; None: the disk's present state.
    snapshot: str | None = None
    made: bool = False
    taken: snapshots.Taken = snapshots.Taken()


@dataclasses.dataclass(frozen=True)
class _Made:
    """A snapshot that this commit took, of all disks of a snapshotter."""

    snapshotter: snapshots.Snapshots
    name: str
    taken: snapshots.Taken


def save(repo: repository.Repository, request: Request,
         progress: Progress = None) -> heads.Version:
    """Save a disk as a new version of a series.

    :raises NotFound: there is no such parent
    :raises InvalidInput: the disk is refused, or an option is out of range
    :raises Busy: another writer holds the store, or a guest the disk
    """
    return save_together(repo, [request], progress)[0]


def save_together(repo: repository.Repository, requests: Sequence[Request],
                  progress: Progress = None, token: str | None = None
                  ) -> list[heads.Version]:
    """Save several disks at once: all become versions, or none.

    What is equal in them is stored once: nothing goes to the store before
    all of them were looked at (the delayed commit of the CloudVS paper,
    section 3.5).

    :param token: tells this save from others. If versions with it are there
        already, the save was made, and these are returned
    """
    started = time.monotonic()
    work = None if token is None else hashlib.sha256(
        token.encode()).hexdigest()[:32]
    with repo.writing(work) as staging:
        head = repo.head_or_new()
        if token is not None and (made := head.of_token(token)):
            return made
        if token is not None and head.number == 0:
            # The store's id is part of the snapshot's name: who tries again
            # must find the same.
            repo.commit(head)
        with repo.opened(head) as opened:
            saving = _Saving(repo, head, opened, staging, token)
            try:
                saving.take_moment(requests)
                for request in requests:
                    saving.add(request, progress)
                saving.commit()
            except BaseException as exc:
                if token is None or not exceptions.goes_on(exc):
                    saving.forget_snapshots()
                raise
            saving.drop_older_snapshots()
            # Until it is durable, which the record itself cannot know.
            seconds = round(time.monotonic() - started, 3)
            return [dataclasses.replace(version, seconds=seconds)
                    for version in saving.versions]


class _Saving:
    """One commit in the making."""

    def __init__(self, repo: repository.Repository, head: heads.Head,
                 opened: _native.VersionStore, staging: pathlib.Path,
                 token: str | None) -> None:
        self._repo = repo
        self._head = head
        self._opened = opened
        self._staging = staging
        self._save_token = token
        # Blobs to be put before the commit, in this order.
        self._puts: list[tuple[str, pathlib.Path]] = []
        self._made: list[_Made] = []
        # What tells the disks' states that were looked at from others.
        self._seen: list[list[Any]] = []
        self._done: list[tuple[Request, _State, heads.Version]] = []
        self._token = _names(staging)

    @property
    def versions(self) -> list[heads.Version]:
        """What was added, in order."""
        return [version for _, _, version in self._done]

    def take_moment(self, requests: Sequence[Request]) -> None:
        """Keep the state of a guest's disks of both kinds, in one pause.

        Disks of one kind are kept together when the first one's turn comes.
        """
        view = next((request.view for request in requests if request.view
                     is not None and request.view.running), None)
        kept = [request for request in requests if request.snapshot is None
                and isinstance(request.snapshotter, snapshots.Running)]
        if view is None or not kept:
            return
        name = self._snapshot_name(str(uuid.uuid4()))
        running = kept[0].snapshotter
        assert isinstance(running, snapshots.Running)
        if self._save_token is not None:
            if view.left() and all(_has(request, name) for request in kept):
                return
            # Of a try that was interrupted before it had both.
            running.delete(name)
        taken = view.take(views.Beside(running, name))
        self._made.append(_Made(running, name, taken))

    def add(self, request: Request, progress: Progress) -> None:
        """Find what changed on a disk, and prepare its version."""
        started = time.monotonic()
        parent = self._parent(request)
        version_id = str(uuid.uuid4())
        state = self._state(request, parent, version_id)
        anchor = self._anchor(state.info, parent)
        before = _mark(state)
        draft = self._scan(request, state, anchor, progress)
        if _mark(state) != before:
            raise exceptions.Busy(
                f'{request.disk} was written to while it was read: stop its '
                f'guest, or give the QMP socket of it.')
        if draft.bytes_before:
            LOG.info('%s: went on after %d bytes that an interrupted save had '
                     'read', request.disk, draft.bytes_before)
        if anchor and not draft.delta:
            LOG.info('%s: the snapshot of the parent is not there: the whole '
                     'disk was compared with the stored map', request.disk)
        stored = self._store(request, state, parent, anchor, draft)
        for path in stored['packs']:
            self._add_pack(path)
        self._add_map(stored)
        version = heads.Version(
            id=version_id, series=request.series,
            number=self._head.next_version,
            parent=parent.id if parent else None,
            created_at=datetime.datetime.now(datetime.UTC).isoformat(
                timespec='seconds'),
            size=draft.size, root=stored['root'], base=state.base,
            alpha=str(request.alpha),
            blocks_changed=self._changed(draft, parent, anchor, state,
                                         stored['root']),
            blocks_stored=sum(pack['blocks'] for pack in stored['packs']),
            bytes_read=draft.bytes_read,
            bytes_stored=stored['map_bytes'] + sum(
                pack['data_bytes'] + pack['index_bytes']
                for pack in stored['packs']),
            seconds=round(time.monotonic() - started, 3),
            pause_ms=round(state.taken.pause_ms, 3),
            frozen_ms=round(state.taken.frozen_ms, 3),
            quiesced=state.taken.quiesced, token=self._save_token,
            snapshots=self._anchors(request, state))
        self._head.next_version += 1
        self._head.versions[version.id] = version
        self._done.append((request, state, version))

    def _parent(self, request: Request) -> heads.Version | None:
        if request.parent is not None:
            return self._head.find(request.parent)
        series = self._head.of_series(request.series)
        return series[-1] if series else None

    def _state(self, request: Request, parent: heads.Version | None,
               version_id: str) -> _State:
        path, taken = request.disk, snapshots.Taken()
        if request.view is not None:
            path, taken = request.view.of(request.disk)
        info = snapshots.disk_info(path, request.disk_format)
        known = bases.Bases(self._opened, self._head, self._staging,
                            self._token)
        lies_on = known.of_disk(
            info, parent.base if parent else None, bases.Given(
                request.disk, request.base, request.base_id))
        self._puts += known.puts
        state = _State(path, info, lies_on, taken=taken)
        if info['format'] != 'qcow2':
            return state
        names = [name for _, name, _ in info['snapshots']]
        if request.snapshot in names:
            state.snapshot = request.snapshot
        elif request.snapshotter is not None:
            name = request.snapshot or self._snapshot_name(version_id)
            if name in names and not self._made_by(request.snapshotter):
                LOG.info('%s: going on with the save that made the snapshot '
                         '%s', request.disk, name)
            else:
                made = self._snapshot(request.snapshotter, name)
                name, state.taken = made.name, made.taken
            state.snapshot, state.made = name, True
            state.info = snapshots.disk_info(path, request.disk_format)
        elif request.snapshot is not None:
            raise exceptions.NotFound(
                f'{request.disk} has no snapshot {request.snapshot!r}')
        return state

    def _snapshot_name(self, version_id: str) -> str:
        """What the snapshot is called that this save takes.

        A save that is told by a token finds the snapshot that it took before
        it was interrupted, and so saves the state of that moment.
        """
        told = version_id
        if self._save_token is not None:
            told = hashlib.sha256(self._save_token.encode()).hexdigest()
        return f'{PREFIX}-{self._head.store_id}-{told[:8]}'

    def _snapshot(self, snapshotter: snapshots.Snapshots, name: str) -> _Made:
        """The snapshot of a guest's disks: one, however many they are."""
        made = self._made_by(snapshotter)
        if made is None:
            made = _Made(snapshotter, name, snapshotter.create(name))
            self._made.append(made)
        return made

    def _made_by(self, snapshotter: snapshots.Snapshots) -> _Made | None:
        """The snapshot that this commit took, if it did already."""
        return next((made for made in self._made
                     if made.snapshotter is snapshotter), None)

    def _anchor(self, info: dict[str, Any], parent: heads.Version | None
                ) -> tuple[heads.Version, heads.Snapshot] | None:
        """A version whose state a snapshot of the disk still keeps.

        The parent if it can be, otherwise the newest.
        """
        there = {(name, print_) for _, name, print_ in info['snapshots']}
        candidates = sorted(self._head.versions.values(),
                            key=lambda version: -version.number)
        if parent is not None:
            candidates.insert(0, parent)
        for version in candidates:
            for snapshot in version.snapshots:
                if (snapshot.name, snapshot.fingerprint) in there:
                    return version, snapshot
        return None

    def _scan(self, request: Request, state: _State,
              anchor: tuple[heads.Version, heads.Snapshot] | None,
              progress: Progress) -> _native.VersionDraft:
        against = anchor[0] if anchor else self._parent(request)
        has_base = state.base is not None
        if against is not None and not bases.same(against.base, state.base):
            # Marks of another base image would mean other content.
            against, anchor = None, None
        root = against.root if against else (
            heads.BASE_ROOT if has_base else heads.ZERO_ROOT)
        with native_errors.translated():
            return self._opened.scan(
                state.path, root, against.size if against else 0,
                'packs' if request.alpha == 0 else 'spool', self._staging,
                self._head.next_pack, self._repo.level,
                disk_format=state.info['format'], snapshot=state.snapshot,
                has_base=has_base,
                parent_snapshot=(anchor[1].name, anchor[1].fingerprint)
                if anchor else None,
                base_id=state.base.id if state.base else None,
                rate=request.rate, journal=self._journal(request, state),
                progress=progress)

    def _journal(self, request: Request, state: _State
                 ) -> tuple[pathlib.Path, str] | None:
        """Where a scan writes down how far it is, and what tells it apart.

        It can go on only if the store is what it was, and all disks are that
        were looked at. What alpha stores again decides where later disks find
        their blocks.
        """
        if self._save_token is None:
            return None
        self._seen.append([
            str(state.path), state.snapshot, _mark(state),
            state.info['snapshots'], state.base and state.base.id,
            str(request.alpha), request.factor, request.group_blocks])
        tag = json.dumps([self._head.store_id, self._head.number,
                          self._token, self._seen])
        return self._staging / f'journal-{len(self._seen)}', tag

    def _store(self, request: Request, state: _State,
               parent: heads.Version | None,
               anchor: tuple[heads.Version, heads.Snapshot] | None,
               draft: _native.VersionDraft) -> dict[str, Any]:
        again: list[tuple[int, int]] = []
        if request.alpha != 0:
            again = self._groups(request, state, parent, draft)
        with native_errors.translated():
            return self._opened.store(
                draft, self._head.next_map, again, self._staging,
                self._head.next_pack, self._repo.level)

    def _groups(self, request: Request, state: _State,
                parent: heads.Version | None, draft: _native.VersionDraft
                ) -> list[tuple[int, int]]:
        """What alpha wants to be stored again."""
        # Brings numpy, which most saves can do without.
        from diffcache_openstack.versions import groups
        reference = self._reference(state, request.series)
        if reference is None:
            return []
        with native_errors.translated():
            preview = self._opened.preview(draft, self._head.next_map)
            runs = self._opened.differential(
                reference, preview, self._head.next_version)
        delta = groups.Delta(runs, request.group_blocks)
        if request.alpha != 'auto':
            return delta.exact(float(request.alpha))
        if not delta.blocks:
            return []
        with native_errors.translated():
            frames = self._opened.frames(delta.stored_runs())
            # All that a restore reads from the store, whichever version
            # brought it.
            stored = self._opened.differential(
                heads.BASE_ROOT if state.base else heads.ZERO_ROOT, preview,
                self._head.next_version)
        shared = sum(run[1] for run in stored) - delta.blocks
        costs = delta.costs(frames, self._head, shared)
        return delta.automatic(costs, request.factor)

    def _reference(self, state: _State, series: str) -> heads.Root | None:
        """What a differential delta is told from.

        The base image, or the oldest version of a series that lies on none.
        """
        if state.base is not None:
            return heads.BASE_ROOT
        older = self._head.of_series(series)
        return older[0].root if older else None

    def _add_pack(self, pack: dict[str, Any]) -> None:
        number = pack['id']
        entry = heads.Pack(
            blob=f'pack-{number:08d}-{self._token}',
            index=f'index-{number:08d}-{self._token}', generation=0,
            origin=self._head.next_version, blocks=pack['blocks'],
            data_bytes=pack['data_bytes'], index_bytes=pack['index_bytes'],
            level=self._repo.level)
        # The next disk of this commit finds its blocks there.
        self._opened.add_pack(number, entry.origin, pack['index'],
                              data=pack['data'])
        self._puts += [(entry.blob, pack['data']),
                       (entry.index, pack['index'])]
        self._head.packs[number] = entry
        self._head.next_pack = number + 1

    def _add_map(self, stored: dict[str, Any]) -> None:
        if stored['map'] is None:
            return
        number = self._head.next_map
        blob = heads.Blob(f'map-{number:08d}-{self._token}',
                          stored['map_bytes'])
        self._puts.append((blob.blob, stored['map']))
        self._head.maps[number] = blob
        self._head.next_map += 1

    def _changed(self, draft: _native.VersionDraft,
                 parent: heads.Version | None,
                 anchor: tuple[heads.Version, heads.Snapshot] | None,
                 state: _State, root: heads.Root) -> int:
        """Blocks that differ from the parent's."""
        if parent is None or anchor is None or anchor[0].id == parent.id:
            return draft.blocks_changed
        with native_errors.translated():
            ranges = self._opened.differences(
                parent.root, root, max(parent.size, draft.size),
                base_id=state.base.id if state.base else None)
        return sum(count for _, count in ranges)

    def _anchors(self, request: Request, state: _State
                 ) -> tuple[heads.Snapshot, ...]:
        return tuple(
            heads.Snapshot(name, fingerprint)
            for _, name, fingerprint in state.info['snapshots']
            if name == state.snapshot)

    def commit(self) -> None:
        """Put everything into the store, and make it count."""
        puts.Puts(self._repo.store, self._staging).put(
            [(name, pathlib.Path(path)) for name, path in self._puts])
        self._repo.commit(self._head)

    def forget_snapshots(self) -> None:
        """Remove the snapshots of a commit that failed."""
        for made in self._made:
            _delete_snapshot(made.snapshotter, made.name)

    def drop_older_snapshots(self) -> None:
        """Remove our snapshots that the new ones replace."""
        ours = f'{PREFIX}-{self._head.store_id}-'
        older: dict[tuple[int, str], snapshots.Snapshots] = {}
        for request, state, _version in self._done:
            if not state.made:
                continue
            assert request.snapshotter is not None
            for _, name, _ in state.info['snapshots']:
                if name.startswith(ours) and name != state.snapshot:
                    older[id(request.snapshotter), name] = request.snapshotter
        for (_, name), snapshotter in older.items():
            _delete_snapshot(snapshotter, name)


def _names(staging: pathlib.Path) -> str:
    """What the names of a save's blobs end with, also when it goes on.

    No two saves, killed or not, ever choose the same.
    """
    path = staging / 'names'
    try:
        if name := path.read_text():
            return name
    except FileNotFoundError:
        pass
    name = secrets.token_hex(4)
    path.write_text(name)
    return name


def _has(request: Request, name: str) -> bool:
    """Whether a disk has a snapshot of a name."""
    info = snapshots.disk_info(request.disk, request.disk_format)
    return any(each == name for _, each, _ in info['snapshots'])


def _mark(state: _State) -> tuple[int, ...] | None:
    """What changes when a raw disk is written to; snapshots stay the same."""
    if state.snapshot is not None:
        return None
    found = state.path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _delete_snapshot(snapshotter: snapshots.Snapshots, name: str) -> None:
    try:
        snapshotter.delete(name)
    except exceptions.DiffCacheError as exc:
        # It costs space in the disk, and goes with the next save.
        LOG.warning('Snapshot %s stays: %s', name, exc)
