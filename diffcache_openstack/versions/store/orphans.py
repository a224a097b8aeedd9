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
from typing import Collection

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.store import arbitration
from diffcache_openstack.versions.store import blob_names
from diffcache_openstack.versions.store import catalogue
from diffcache_openstack.versions.store import commits

LOG = logging.getLogger(__name__)


def find(store: base.BlobStore, head: catalogue.Catalogue | None
         ) -> list[str]:
    """Return the blobs of killed writers, which no catalogue needs.

    Names that no version store gives are not among them.
    """
    needed = head.blobs() if head else set()
    return sorted(
        name for name in store.traces()
        if name not in needed and not commits.is_bookkeeping(name)
        and blob_names.is_own(name))


def _find_new(store: base.BlobStore, head: catalogue.Catalogue) -> list[str]:
    """Return orphans whose numbers are not given, as those of saves are.

    Those that a killed prune left are found by the next one.
    """
    needed = head.recent_blobs()
    return sorted(
        name for name in store.traces()
        if blob_names.is_after(name, head.next_pack, head.next_map,
                               head.next_version) and name not in needed)


def remove(store: base.BlobStore, head: catalogue.Catalogue | None,
           kept: Collection[str], is_complete: bool) -> None:
    """Remove blobs of killed writers; the lock must be held.

    Where a store cannot list its blobs, those that this host has put.
    Unless the lock excludes all writers, new blobs stay: one that is not
    killed may commit them.

    :param kept: what the work that begins has put before
    :param is_complete: all are looked for in a large store, too
    """
    if store.append_only:
        return
    found = (_find_new(store, head)
             if head is not None and head.is_large and not is_complete
             else find(store, head))
    for name in found:
        if (name in kept or arbitration.is_pending(name, head)
                or not _is_abandoned(store, name)):
            continue
        LOG.info('Removing blob %s, which no version needs', name)
        store.delete(name)


def _is_abandoned(store: base.BlobStore, name: str) -> bool:
    try:
        return store.exclusive or store.age(name) > base.GRACE_SECONDS
    except exceptions.NotFound:
        return False  # Another writer has removed it.
