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
"""Blobs that killed writers left."""

import logging
import pathlib
import shutil
from typing import Collection
from typing import Iterable

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import upload_journal
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.commits import arbitration

LOG = logging.getLogger(__name__)


def find(store: base.BlobStore, head: catalogue.Catalogue | None
         ) -> list[str]:
    """Return the blobs of killed writers, which no catalogue needs.

    Neither names that no version store gives are among them, nor what a
    writer has put that is alive, or may be resumed.
    """
    names = store.traces()
    used = claimed(store)
    found = {name for name in names
             if name not in used and not blob_names.is_bookkeeping(name)
             and blob_names.is_own(name)}
    # Old records are read only if something is left that they may name.
    if found and head:
        found -= head.recent_blobs()
    if found and head:
        found -= head.blobs()
    return sorted(found)


def claimed(store: base.BlobStore) -> set[str]:
    """Return the blobs that writers have put, or will, and not committed."""
    return _listed(store, store.works())


def of_live(store: base.BlobStore) -> set[str]:
    """Return the blobs of writers that may be alive.

    To be read before the head: then these have been committed at most since.
    """
    return _listed(store, [work for work in store.works()
                           if not store.is_abandoned(work)])


def _listed(store: base.BlobStore, works: Iterable[pathlib.Path]) -> set[str]:
    return {name for work in works
            for name in upload_journal.UploadJournal(store, work).listed()}


def remove(store: base.BlobStore, head: catalogue.Catalogue | None,
           kept: Collection[str], is_complete: bool) -> None:
    """Remove what killed writers left; the lock must be held.

    That is what their directories list. Where there are no such directories,
    what this host has put; unless the lock excludes all writers, new blobs
    stay: one that is alive may commit them.

    :param kept: what the work that begins has put before
    :param is_complete: all blobs are looked at, too
    """
    works = [work for work in store.works() if store.is_abandoned(work)]
    if not store.append_only:
        found = _listed(store, works)
        if is_complete or store.names() is None:
            found |= set(find(store, head))
        _remove(store, head, found - set(kept))
    for work in works:
        shutil.rmtree(work, ignore_errors=True)


def _remove(store: base.BlobStore, head: catalogue.Catalogue | None,
            found: set[str]) -> None:
    if found and head:
        found -= head.blobs()
    for name in sorted(found):
        if arbitration.is_pending(name, head) or not _is_abandoned(store,
                                                                   name):
            continue
        LOG.info('Removing blob %s, which no version needs', name)
        store.delete(name)


def _is_abandoned(store: base.BlobStore, name: str) -> bool:
    try:
        return store.exclusive or store.age(name) > base.GRACE_SECONDS
    except exceptions.NotFound:
        return False  # Another writer has removed it.
