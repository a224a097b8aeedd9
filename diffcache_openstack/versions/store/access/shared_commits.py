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
"""Commits of writers that others may overtake.

Who finds that another writer was faster applies its changes to the catalogue
of that (:mod:`.rebasing`), and tries again.
"""

import logging
import random
import time
from typing import Iterable
from typing import TYPE_CHECKING

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.catalogue import segments
from diffcache_openstack.versions.store.commits import arbitration
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.commits import rebasing

if TYPE_CHECKING:
    from diffcache_openstack.versions.store.access import store_access

LOG = logging.getLogger(__name__)

# Attempts of a commit, and the longest pause before the next one.
MOST_ATTEMPTS = 12
_LONGEST_PAUSE_S = 2.0
_FIRST_PAUSE_S = 0.02


class Overtaken(exceptions.Busy):
    """Blocks that a version refers to were removed meanwhile."""


def commit(access: 'store_access.StoreAccess', head: catalogue.Catalogue,
           new: list[str], doubtful: Iterable[entries.Version] = ()
           ) -> None:
    """Commit a changed catalogue, behind those of other writers if need be.

    :param new: blobs in it that the last catalogue does not have
    :param doubtful: versions whose blocks another writer may have removed
    :raises Busy: another writer changed the same, or removed one of the blobs
    :raises Overtaken: another writer removed blocks of a version
    """
    access.refuse_gone(new)
    doubtful = list(doubtful)
    reason = None
    for attempt in range(MOST_ATTEMPTS):
        if doubtful:
            _check(access, head, doubtful)
            doubtful = []
        try:
            return _attempt(access, head)
        except exceptions.Conflict as exc:
            reason = exc
        if (not access.is_shared or head.before is None
                or head.key_check != head.before.key_check):
            break
        if not access.store.exclusive:
            time.sleep(random.uniform(0, min(
                _LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** attempt)))
        LOG.info('Committing behind another writer: %s', reason)
        try:
            doubtful = rebasing.rebase(head, access.completed_head())
        except exceptions.Conflict as exc:
            reason = exc
            break
        access.refuse_gone(new)
    raise exceptions.Busy(f'{reason} Try again.' if access.is_shared else (
        'Another writer changed the store meanwhile: try again. Nothing '
        'excludes two writers of this store: have one at a time.')
    ) from reason


def _attempt(access: 'store_access.StoreAccess', head: catalogue.Catalogue
             ) -> None:
    """Commit a catalogue behind the one that it was read as.

    :raises Conflict: another writer was faster; the catalogue is unchanged
    """
    if (access.store.append_only and head.number
            and not heads.is_there(access.store, head)):
        # A catalogue behind one that was refused would be lost.
        raise exceptions.Conflict(
            f'Catalogue {head.number} was refused, or is no longer there.')
    next_head = head.copy()
    next_head.number += 1
    try:
        replaced = segments.pack(access.store, next_head)
    except exceptions.NotFound as exc:
        if access.completed_head().number == head.number:
            raise
        raise exceptions.Conflict(str(exc)) from exc
    try:
        if access.arbiter is None:
            heads.commit(access.store, next_head, access.key)
        else:
            arbitration.commit(access.store, access.arbiter, next_head,
                               access.key)
    except exceptions.Conflict:
        if new := segments.names(next_head) - segments.names(head):
            # If the answer of a decision was lost, others have built on it.
            for name in new - segments.names(access.completed_head()):
                access.store.delete(name)
        raise
    head.packs, head.maps = next_head.packs, next_head.maps
    head.versions = next_head.versions
    head.number, head.digest = next_head.number, next_head.digest
    head.pointers = next_head.pointers
    head.before = head.copy()
    for name in replaced:
        access.store.delete(name)


def is_usable(opened: _native.BlockStore, version: entries.Version) -> bool:
    """Return whether a store has all maps and packs that a version needs.

    Maps and the indexes of packs are read, packs themselves are not.
    """
    with native_errors.translated():
        return not opened.hits([version.root], {})[0]


def _check(access: 'store_access.StoreAccess', head: catalogue.Catalogue,
           versions: list[entries.Version]) -> None:
    """Check that versions have their blocks.

    :raises Overtaken: one has not
    """
    with access.lenient(head, whole=False) as opened:
        for version in versions:
            if not is_usable(opened, version):
                raise Overtaken(
                    f'Another writer removed blocks of version {version.id} '
                    f'meanwhile: try again.')
