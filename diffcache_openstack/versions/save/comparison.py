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
"""What disks that are saved are compared with."""

import dataclasses
import logging

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.save import disk_states
from diffcache_openstack.versions.store.access import shared_commits
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.commits import rebasing
from diffcache_openstack.versions.store.indexes import base_images

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The version that a disk is compared with, if there is one."""

    parent: entries.Version | None
    against: entries.Version | None
    # The snapshot of the disk that has the state of that version.
    snapshot: entries.Snapshot | None

    def reference(self, base: entries.Base | None) -> _native.Reference:
        """Return what the disk is compared with."""
        if self.against is None:
            return _native.Reference(empty_root(base), 0)
        snapshot = self.snapshot
        return _native.Reference(
            self.against.root, self.against.size,
            (snapshot.name, snapshot.fingerprint) if snapshot else None)

    def other_parent(self) -> _native.Reference | None:
        """Return the parent if a snapshot of another version was found."""
        if (self.parent is None or self.snapshot is None
                or self.against is self.parent):
            return None
        return _native.Reference(self.parent.root, self.parent.size)


class Comparisons:
    """Chooses what disks are compared with, among the versions of a store.

    :param head: the catalogue that the save began with
    :param opened: its blocks
    """

    def __init__(self, access: store_access.StoreAccess,
                 head: catalogue.Catalogue, opened: _native.BlockStore
                 ) -> None:
        self._access = access
        self._head = head
        self._opened = opened
        # Whether versions can be read, by their ids.
        self._usable: dict[str, bool] = {}

    def choose(self, state: disk_states.DiskState, base: entries.Base | None,
               parent: entries.Version | None) -> Comparison:
        """Choose the version to compare a disk with.

        That is one whose state a snapshot of the disk has, the parent if
        possible, else the newest: only what changed since is read then.
        """
        existing = {(name, fingerprint) for _, name, fingerprint
                    in state.info['snapshots']}
        if parent is not None and not self._is_usable(parent):
            LOG.warning('Saving version %s anew: what it needs of the store '
                        'is damaged or missing', parent.id)
            parent = None
        candidates = sorted(self._head.versions.values(),
                            key=lambda version: -version.number)
        if parent is not None:
            candidates.insert(0, parent)
        against, snapshot = next(
            ((version, snapshot) for version in candidates
             for snapshot in version.snapshots
             if (snapshot.name, snapshot.fingerprint) in existing
             and self._is_usable(version)),
            (parent, None))
        if against is not None and not base_images.same(against.base, base):
            # Marks of another base image would mean other content.
            against, snapshot = None, None
        return Comparison(parent, against, snapshot)

    def _is_usable(self, version: entries.Version) -> bool:
        """Return whether a version can be read, and others may share it."""
        if version.id not in self._usable:
            self._usable[version.id] = shared_commits.is_usable(
                self._opened, version)
            if not self._usable[version.id]:
                self.refuse_lost()
        return self._usable[version.id]

    def refuse_lost(self) -> None:
        """Give up if what cannot be read was removed by another writer.

        :raises Busy: it was
        """
        if rebasing.lost(self._head, self._access.completed_head()):
            raise exceptions.Busy(
                'Another writer removed blocks of the store meanwhile: try '
                'again.')

    def reference_of(self, base: entries.Base | None, series: str
                     ) -> entries.Root | None:
        """Return the tree that differential deltas are computed from.

        The base image, or the oldest version of a series without one.
        """
        if base is not None:
            return entries.BASE_ROOT
        return next((version.root for version in self._head.of_series(series)
                     if self._is_usable(version)), None)


def empty_root(base: entries.Base | None) -> entries.Root:
    """Return the tree of a disk that stores no blocks."""
    return entries.ZERO_ROOT if base is None else entries.BASE_ROOT
