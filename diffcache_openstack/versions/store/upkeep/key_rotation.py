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
"""Replacing the key of a version store.

A new key encrypts the former one, and everything that is stored from then on
is sealed with it (:func:`rotate`). Packs are sealed again part by part, each
part with a commit of its own (:func:`rewrite`), so that it can be interrupted
at any moment. When none has a former key any more, those are dropped from the
catalogue (:func:`retire`).
"""

import dataclasses
import math
import time
from typing import Any
from typing import Callable

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.upkeep import pruning

# Rewritten with one commit at most.
PART_BYTES = 256 << 20
# A part is no longer than what the rate gives in this time.
_PART_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class KeyState:
    """Which keys a store has. Sizes in bytes."""

    # The number of the present key; the first is 1.
    key_number: int
    # Numbers of former keys that the catalogue has, encrypted.
    former_keys: list[int]
    # Packs that are sealed with a former key.
    packs_left: int
    bytes_left: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, as the toolbox prints them."""
        return dataclasses.asdict(self)


def state(head: catalogue.Catalogue) -> KeyState:
    """Return which keys a store has."""
    left = [pack for pack in head.packs.values()
            if pack.key != head.key_number]
    return KeyState(head.key_number, sorted(head.former_keys), len(left),
                    sum(pack.data_bytes for pack in left))


def rotate(access: store_access.StoreAccess, new: bytes,
           key_id: str | None = None) -> store_access.StoreAccess:
    """Replace the key of a store; what is stored later has the new one.

    :param access: with the present key
    :param new: 32 bytes
    :param key_id: its id in the key manager, if one keeps it
    :returns: access with the new key
    :raises InvalidInput: the store has no key, or has this one already
    """
    if access.key is None:
        raise exceptions.InvalidInput(
            'The store has no key that could be replaced: save to a new store '
            'with a key.')
    if new == access.key:
        raise exceptions.InvalidInput(
            'The store has this key already: create a new one.')
    # Loads cryptography, which other work on a store does not need.
    from diffcache_openstack.versions.store.keys import key_chain
    later = access.with_key(new)
    with access.writing_alone() as writing:
        head = writing.head or access.head()
        key_chain.replace(head, access.key, new)
        head.key_check = store_reader.key_check(new)
        head.key_id = key_id
        # Their names of blocks cannot be computed again without the images:
        # the next save of each image does that.
        head.bases.clear()
        later.commit(head)
    return later


def rewrite(access: store_access.StoreAccess,
            most_bytes: float = PART_BYTES,
            progress: pruning.Progress = None) -> KeyState:
    """Seal some of the packs that have a former key with the present one.

    :param most_bytes: of packs, but at least one
    :raises NoSpace: the store is full
    """
    head = access.head()
    if state(head).packs_left:
        pruning.prune(access, rule=pruning.PruneRule(
            dead_share=math.inf, key=head.key_number, most_bytes=most_bytes),
            progress=progress)
    return state(access.head())


def rewrite_all(access: store_access.StoreAccess,
                report: Callable[[int, int], object],
                rate: float | None = None) -> KeyState:
    """Seal all packs with the present key; after an interruption, the others.

    :param report: gets the bytes done and in total; may raise to interrupt
    :param rate: bytes of packs per second; other writers have the store in
        the pauses
    """
    started = time.monotonic()
    total = state(access.head()).bytes_left
    part = min(PART_BYTES, rate * _PART_SECONDS if rate else math.inf)
    while True:
        now = rewrite(access, part)
        done = total - now.bytes_left
        report(min(done, total), total)
        if not now.packs_left:
            return now
        if rate:
            threads.pause(started + done / rate, lambda: report(done, total))


def retire(access: store_access.StoreAccess) -> KeyState:
    """Drop the former keys from the catalogue.

    :raises Conflict: packs still have them
    """
    with access.writing_alone() as writing:
        head = writing.head or access.head()
        now = state(head)
        if now.packs_left:
            raise exceptions.Conflict(
                f'{now.packs_left} packs are still sealed with former keys: '
                f'rewrite them first (diffcache version key rewrite).')
        if head.former_keys:
            head.former_keys.clear()
            access.commit(head)
        return state(head)
