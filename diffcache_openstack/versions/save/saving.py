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

import contextlib
import dataclasses
import datetime
import hashlib
import json
import logging
import math
import os
import pathlib
import time
from typing import Any
from typing import Callable
from typing import Sequence
import uuid

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import locks
from diffcache_openstack.versions.disks import rollback_journal
from diffcache_openstack.versions.save import comparison
from diffcache_openstack.versions.save import disk_states
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import save_uploads
from diffcache_openstack.versions.store.access import shared_commits
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.commits import rebasing
from diffcache_openstack.versions.store.indexes import base_images
from diffcache_openstack.versions.store.indexes import manifests

LOG = logging.getLogger(__name__)

Progress = Callable[[int, int], object] | None
# Of a save whose blocks other writers remove.
_MOST_ATTEMPTS = 3
# Blocks of a pack before compression, as in native code.
_PACK_BYTES = 64 << 20
# Taken for a save that is compared with a version, if numbers that it does not
# use are lost: those of 4 GiB of new blocks.
_FEW_PACKS = 64
# How often a save that writes nothing shows that it is alive.
_TOUCH_SECONDS = 60.0


class _TooFewNumbers(exceptions.Busy):
    """A save has more packs than it has taken numbers for."""


def save(access: store_access.StoreAccess, request: save_request.SaveRequest,
         progress: Progress = None) -> entries.Version:
    """Save a disk as a new version of a series.

    :raises NotFound: the parent does not exist
    :raises InvalidInput: the disk is refused, or an option is out of range
    :raises Busy: another writer holds the store, or a guest uses the disk
    """
    return save_disks(access, [request], progress)[0]


def save_disks(access: store_access.StoreAccess,
               requests: Sequence[save_request.SaveRequest],
               progress: Progress = None, token: str | None = None
               ) -> list[entries.Version]:
    """Save several disks in one commit: all become versions, or none.

    Blocks that they have in common are stored once: nothing is uploaded before
    all of them were read (the delayed commit of the CloudVS paper, section
    3.5).

    :param token: identifies this save: if versions with it exist already,
        these are returned; if it was interrupted, it is resumed
    """
    started = time.monotonic()
    work = None if token is None else hashlib.sha256(
        token.encode()).hexdigest()[:32]
    with access.writing(work) as writing:
        head = writing.head or access.new_head()
        if token is not None and (existing := head.of_token(token)):
            return existing
        if token is not None and head.number == 0:
            # The store's id is part of the snapshot's name, and has to be the
            # same in the next attempt.
            access.commit(head)
        states = disk_states.DiskStates(head.store_id, token)
        try:
            versions = _save(access, store_access.Writing(
                writing.staging, head), states, requests, progress, token)
        except BaseException as exc:
            if token is None or not exceptions.is_resumable(exc):
                states.discard()
            raise
    # Until it is durable, which the record itself cannot know.
    seconds = round(time.monotonic() - started, 3)
    return [dataclasses.replace(version, seconds=seconds)
            for version in versions]


def _save(access: store_access.StoreAccess, writing: store_access.Writing,
          states: disk_states.DiskStates,
          requests: Sequence[save_request.SaveRequest], progress: Progress,
          token: str | None) -> list[entries.Version]:
    """Save disks; again if other writers remove blocks that it refers to."""
    most_packs: float = math.inf if access.arbiter is None else _FEW_PACKS
    for left in reversed(range(_MOST_ATTEMPTS)):
        assert writing.head is not None
        try:
            with access.opened(writing.head) as opened:
                save = _Save(access, writing, opened, states, token,
                             most_packs)
                save.run(requests, progress)
                return save.versions
        except exceptions.Busy as exc:
            last = access.completed_head()
            if token is not None and (existing := last.of_token(token)):
                return existing  # The answer of a decision was lost.
            if isinstance(exc, _TooFewNumbers):
                most_packs = math.inf
            elif not (isinstance(exc, shared_commits.Overtaken)
                      or rebasing.lost(writing.head, last)):
                raise
            if not left:
                raise
            LOG.info('Saving again: %s', exc)
            last.before = last.copy()
            writing = store_access.Writing(writing.staging, last)
            for path in writing.staging.iterdir():
                # It refers to packs that others have numbered since.
                if path.name != save_uploads.NAMES:
                    path.unlink()
    raise AssertionError('the last attempt returns or raises')


class _Save:
    """One save, of one or more disks, that ends with a commit."""

    def __init__(self, access: store_access.StoreAccess,
                 writing: store_access.Writing, opened: _native.BlockStore,
                 states: disk_states.DiskStates, token: str | None,
                 most_packs: float) -> None:
        assert writing.head is not None
        self._access = access
        self._writing = writing
        self._head = writing.head
        self._opened = opened
        self._staging = writing.staging
        self._token = token
        # Numbers for packs of a version that is compared with another one.
        self._most_packs = most_packs
        self._states = states
        # Describes the states of the disks read so far, for the journal.
        self._read: list[list[Any]] = []
        self._done: list[tuple[save_request.SaveRequest,
                               disk_states.DiskState]] = []
        self._uploads = save_uploads.SaveUploads(
            access, writing.head, opened, writing.staging, token is not None)
        self._comparisons = comparison.Comparisons(access, writing.head,
                                                   opened)
        self.versions: list[entries.Version] = []

    def run(self, requests: Sequence[save_request.SaveRequest],
            progress: Progress) -> None:
        """Save the disks and commit them."""
        with contextlib.ExitStack() as held:
            for request in requests:
                if request.descriptor is not None \
                        or request.point is not None:
                    continue  # Cinder keeps others from a volume.
                held.enter_context(locks.reading(request.disk))
                rollback_journal.refuse_unfinished(request.disk)
            self._run(requests, progress)

    def _run(self, requests: Sequence[save_request.SaveRequest],
             progress: Progress) -> None:
        self._states.keep_all(requests)
        for request in requests:
            self._add(request, self._alive(progress))
        self._uploads.commit(self.versions)
        self._states.delete_older(self._done)

    def _alive(self, progress: Progress) -> Callable[[int, int], object]:
        """Have progress show that the save is alive.

        Others remove what has not changed for an hour, unless a lock says that
        its process is alive.
        """
        touched = time.monotonic()

        def report(done: int, total: int) -> object:
            nonlocal touched
            # On NFS each call is a request.
            if time.monotonic() - touched > _TOUCH_SECONDS:
                os.utime(self._staging)
                touched = time.monotonic()
            return progress(done, total) if progress else None

        return report

    def _add(self, request: save_request.SaveRequest, progress: Progress
             ) -> None:
        """Store what changed on a disk, and prepare its version."""
        started = time.monotonic()
        parent = self._parent(request)
        version_id = str(uuid.uuid4())
        state = self._states.open(request)
        base = self._base(request, state, parent, progress)
        self._states.take_snapshot(request, state, version_id)
        compared = self._comparisons.choose(state, base, parent)
        packs = state.info['size'] // _PACK_BYTES + 1
        if compared.against is not None:
            packs = int(min(packs, self._most_packs))
        self._numbers = self._access.take_numbers(
            self._writing, len(self.versions), packs)
        before = state.mark()
        try:
            saved = self._save_disk(self._opened, request, state, base,
                                    compared, progress)
        except (exceptions.IntegrityError, exceptions.ObjectMissing) as exc:
            self._comparisons.refuse_lost()
            LOG.warning('Saving all of %s, since what the store has of it '
                        'cannot be read: %s', request.disk, exc)
            compared = comparison.Comparison(None, None, None)
            with self._access.empty(self._head) as alone:
                saved = self._save_disk(
                    alone, dataclasses.replace(request, alpha=0.0), state,
                    base, compared, progress)
        if state.mark() != before:
            raise exceptions.Busy(
                f'{request.disk} was written to while it was read: stop its '
                f'guest, or name its QMP socket.')
        if len(saved.packs) > packs and not self._access.take_following(
                self._writing, self._numbers.pack + packs,
                len(saved.packs) - packs):
            raise _TooFewNumbers(
                f'{request.disk} has {len(saved.packs)} packs of new blocks, '
                f'and numbers were taken for {packs}.')
        _log(request, compared, saved)
        for pack in saved.packs:
            self._uploads.add_pack(pack, self._numbers.version)
        self._uploads.add_map(saved, self._numbers.map)
        version = entries.Version(
            id=version_id, series=request.series,
            number=self._numbers.version,
            parent=parent.id if parent else None,
            created_at=datetime.datetime.now(datetime.UTC).isoformat(
                timespec='seconds'),
            size=saved.size, root=saved.root, base=base,
            alpha=str(request.alpha), blocks_changed=saved.blocks_changed,
            blocks_stored=sum(pack.blocks for pack in saved.packs),
            bytes_read=saved.bytes_read,
            bytes_stored=saved.map_bytes + sum(
                pack.data_bytes + pack.index_bytes for pack in saved.packs),
            seconds=round(time.monotonic() - started, 3),
            pause_ms=round(state.pause.pause_ms, 3),
            frozen_ms=round(state.pause.frozen_ms, 3),
            quiesced=state.pause.quiesced, token=self._token,
            snapshots=state.snapshots(),
            disk_format=_reliable_format(request, state))
        self._head.next_version = version.number + 1
        self._head.versions[version.id] = version
        self._carry_manifest(request, version, progress)
        self.versions.append(version)
        self._done.append((request, state))

    def _parent(self, request: save_request.SaveRequest
                ) -> entries.Version | None:
        if request.parent is not None:
            return self._head.find(request.parent)
        series = self._head.of_series(request.series)
        return series[-1] if series else None

    def _base(self, request: save_request.SaveRequest,
              state: disk_states.DiskState, parent: entries.Version | None,
              progress: Progress) -> entries.Base | None:
        """Return the disk's base, whose index is added if it is new."""
        indexes = base_images.BaseIndexes(
            self._access, self._opened, self._head, self._staging,
            self._uploads.suffix)
        base = indexes.find(
            state.info, parent.base if parent else None,
            base_images.GivenBase(request.disk, request.base, request.base_id),
            progress)
        self._uploads.add(indexes.uploads)
        return base

    def _save_disk(self, opened: _native.BlockStore,
                   request: save_request.SaveRequest,
                   state: disk_states.DiskState, base: entries.Base | None,
                   compared: comparison.Comparison, progress: Progress
                   ) -> _native.SavedDisk:
        target = _native.SaveTarget(
            self._staging, self._numbers.version, self._numbers.pack,
            self._numbers.map, self._access.level,
            self._journal(request, state, base))

        with state.reading() as place, native_errors.translated():
            source = _native.DiskSource(
                place, state.info['format'], state.snapshot,
                has_base=base is not None, base_id=base.id if base else None,
                rate=request.rate)
            return opened.save_disk(
                source, compared.reference(base), target,
                compared.other_parent(), self._regrouping(request, base),
                progress)

    def _journal(self, request: save_request.SaveRequest,
                 state: disk_states.DiskState, base: entries.Base | None
                 ) -> tuple[pathlib.Path, str] | None:
        """Return the journal of reading a disk, and what identifies it.

        An interrupted save can be resumed only if all disks read so far are
        unchanged, and the versions that they are compared with. The options of
        alpha decide where later disks find their blocks. The moment of a
        volume ends with the attempt.
        """
        if self._token is None or state.point is not None:
            return None
        self._read.append([
            str(state.path), state.snapshot, state.mark(),
            state.info['snapshots'], base and base.id,
            str(request.alpha), request.factor, request.group_blocks])
        tag = json.dumps([self._head.store_id, self._uploads.suffix,
                          self._read])
        return self._staging / f'journal-{len(self._read)}', tag

    def _regrouping(self, request: save_request.SaveRequest,
                    base: entries.Base | None
                    ) -> _native.Regrouping | None:
        """Return which stored blocks alpha stores again, if any."""
        reference = self._comparisons.reference_of(base, request.series)
        if request.alpha == 0 or reference is None:
            return None
        share = None if request.alpha == 'auto' else float(request.alpha)
        return _native.Regrouping(share, request.factor, request.group_blocks,
                                  reference, comparison.empty_root(base))

    def _carry_manifest(self, request: save_request.SaveRequest,
                        version: entries.Version, progress: Progress
                        ) -> None:
        """Keep a manifest of a version, if one of an earlier version is kept.

        Only what changed since is read for it. The first one is kept on
        request.
        """
        if (not request.manifest
                and manifests.known(self._head, version) is None):
            return
        path = self._staging / f'manifest-{version.number}'
        try:
            manifests.compute(self._access, self._head, self._opened, version,
                              path, request.base, progress)
        except (exceptions.PermanentError, exceptions.IntegrityError,
                exceptions.ObjectMissing) as exc:
            LOG.warning('Saving %s without a manifest, which "diffcache '
                        'version manifest" can create later: %s',
                        request.disk, exc)
            return
        name = manifests.add(self._head, version, path, self._uploads.suffix)
        self._uploads.add([(name, path)])


def _log(request: save_request.SaveRequest, compared: comparison.Comparison,
         saved: _native.SavedDisk) -> None:
    if saved.bytes_resumed:
        LOG.info('Resumed reading %s after %d bytes that an interrupted save '
                 'had read', request.disk, saved.bytes_resumed)
    if compared.snapshot and not saved.is_delta:
        LOG.info('Compared all of %s with the stored map: its snapshot of the '
                 'parent is missing', request.disk)


def _reliable_format(request: save_request.SaveRequest,
                     state: disk_states.DiskState) -> str | None:
    """Return the format of a disk if its guest cannot have chosen it.

    A guest can make a raw disk look like qcow2, but not the reverse.
    """
    detected = state.info['format']
    return detected if detected == 'raw' else request.disk_format
