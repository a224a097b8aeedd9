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
"""Verifying a version store: what is damaged, and which versions need it."""

import dataclasses
import logging
from typing import Callable

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import blob_parts
from diffcache_openstack.versions.store.access import orphans
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.catalogue import segments
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.indexes import manifests

LOG = logging.getLogger(__name__)

Progress = Callable[[int, int], object] | None


@dataclasses.dataclass(frozen=True)
class Damage:
    """One object that is damaged or missing."""

    object: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Verified:
    """The result of a verification."""

    packs_checked: int
    bytes_checked: int
    damage: list[Damage]
    versions_damaged: list[str]
    orphans: int

    @property
    def intact(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damage and not self.versions_damaged


def verify(access: store_reader.StoreReader, progress: Progress = None
           ) -> Verified:
    """Read everything in the store; report damage and the versions hit.

    If a prune removes or rewrites blobs meanwhile, everything is read again.

    :raises IntegrityError: the last catalogue itself is damaged, so that
        versions cannot be checked
    """
    while True:
        head = access.head()
        result = _verify(access, head, progress)
        gone = head.blobs() - access.head().blobs()
        if result.intact or not gone:
            return result
        LOG.info('Restarting the verification: the store was pruned meanwhile')


def _verify(access: store_reader.StoreReader, head: catalogue.Catalogue,
            progress: Progress) -> Verified:
    found = [Damage(reason.split(' ', 1)[0], reason)
             for reason in heads.find_damage(access.store, head)]
    found += [Damage(*each) for each in segments.damage(access.store, head)]
    slots: dict[int, set[int]] = {}
    checked = 0
    with access.lenient(head) as opened:
        for number, pack in head.packs.items():
            checked += pack.data_bytes + pack.index_bytes
            damage, bad = verify_pack(access, opened, number, pack, progress)
            found += damage
            if bad is None:
                # Versions that need it are hit as if it were missing.
                opened.remove_pack(number)
            else:
                slots[number] = bad
        for number, blob in head.maps.items():
            checked += blob.bytes
            found += verify_map(opened, number, blob)
        for base_id, blob in head.bases.items():
            found += verify_base(opened, base_id, blob)
        for number, blob in head.hooks.items():
            found += verify_hooks(opened, number, blob)
        for blob in head.manifests.values():
            checked += blob.bytes
            if reason := manifests.damage(access, blob):
                found.append(Damage(blob.blob, reason))
        versions = list(head.versions.values())
        with native_errors.translated():
            hits = opened.hits([version.root for version in versions], slots)
    return Verified(
        len(head.packs), checked, found,
        [version.id for version, hit in zip(versions, hits) if hit],
        len(orphans.find(access.store, head)))


def _found(name: str, check: Callable[[], None]) -> list[Damage]:
    """Return the damage of a blob that a check raises, if any."""
    try:
        with native_errors.translated():
            check()
    except store_reader.DAMAGE as exc:
        return [Damage(name, f'{name}: {exc}')]
    return []


def verify_pack(access: store_reader.StoreReader,
                opened: _native.BlockStore, number: int,
                pack: entries.Pack, progress: Progress = None
                ) -> tuple[list[Damage], set[int] | None]:
    """Read a pack and its index.

    :returns: what is wrong with them, and the slots that cannot be had: None
        for all
    """
    if damage := _found(pack.index, lambda: opened.verify_index(number)):
        return damage, None
    try:
        # A blob that has more than a pack is longer.
        size = (pack.data_bytes if blob_parts.parse(pack.index)
                else access.store.size(pack.blob))
        with native_errors.translated():
            reasons, bad = opened.verify_pack(number, size, progress=progress)
    except (exceptions.NotFound, exceptions.ObjectMissing) as exc:
        return [Damage(pack.blob, str(exc))], None
    return [Damage(pack.blob, reason) for reason in reasons], set(bad)


def verify_map(opened: _native.BlockStore, number: int,
               blob: entries.Blob) -> list[Damage]:
    """Read a map; return what is wrong with it."""
    return _found(blob.blob, lambda: opened.verify_map(number))


def verify_hooks(opened: _native.BlockStore, number: int,
                 blob: entries.Blob) -> list[Damage]:
    """Read a file of hooks; return what is wrong with it."""
    return _found(blob.blob, lambda: _native.verify_hooks(opened, number))


def verify_base(opened: _native.BlockStore, base_id: str,
                blob: entries.Blob) -> list[Damage]:
    """Read the index of a base image; return what is wrong with it."""
    return _found(blob.blob, lambda: opened.verify_base(
        base_id, blob.blob, store_reader.check_of(blob)))
