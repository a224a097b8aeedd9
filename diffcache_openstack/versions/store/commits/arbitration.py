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
"""Commits that an arbiter decides, where locks do not exclude writers.

On a network filesystem without locks, and in an object store, two writers may
create the catalogue of the same number. There the conductor decides: it has
number and digest of the head, and moves it for one of them.

1. Packs, indexes and maps are durable.
2. The catalogue is durable as a *candidate*, under a name that has its digest.
3. The arbiter moves the head from the catalogue that was read to this one.
4. The candidate is published: as the next catalogue, and in a pointer.
5. The candidate is removed.

A writer that is killed before 3 leaves the old state, and a candidate that no
writer uses. One that is killed later leaves the new state: the next writer
publishes the candidate that the arbiter names.
"""

import dataclasses
import re
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.commits import reservations

_CANDIDATE = re.compile(r'next-(\d{10})-[0-9a-f]{32}')


@dataclasses.dataclass(frozen=True)
class Position:
    """The number of a catalogue, and the checksum of its blob in hex."""

    number: int
    digest: str


class Arbiter(typing.Protocol):
    """Decides which of several writers moves the head of one store."""

    def read(self) -> Position | None:
        """Return the head that was decided last; None if there is none.

        :raises ServiceUnavailable: the arbiter does not answer
        """

    def move(self, base: Position | None, new: Position) -> None:
        """Move the head from one catalogue to the next.

        A repeated call has no further effect.

        :param base: the catalogue that was changed; None in an empty store
        :raises Busy: another writer moved it from there
        :raises ServiceUnavailable: it is unknown whether it was moved
        """

    def take_numbers(self, least: reservations.Numbers,
                     count: reservations.Numbers) -> reservations.Numbers:
        """Return the first of numbers that no writer uses.

        :param least: numbers that no catalogue gives
        :raises ServiceUnavailable: the arbiter does not answer
        """


def position_of(head: catalogue.Catalogue | None) -> Position | None:
    """Return the position of a catalogue; None for a new one."""
    if head is None or not head.digest:
        return None
    return Position(head.number, head.digest)


def candidate_name(position: Position) -> str:
    """Return the name of the blob of a catalogue that is not published."""
    return f'next-{position.number:010d}-{position.digest[:32]}'


def is_pending(name: str, head: catalogue.Catalogue | None) -> bool:
    """Return whether a blob is a candidate that may still be published."""
    match = _CANDIDATE.fullmatch(name)
    return match is not None and int(match[1]) > (head.number if head else 0)


def commit(store: base.BlobStore, arbiter: Arbiter, new: catalogue.Catalogue,
           key: bytes | None) -> None:
    """Commit a catalogue, whose number follows that of the one it was read as.

    :raises Conflict: another writer was faster; load and try again
    :raises ServiceUnavailable: the arbiter did not answer. If it decided
        nevertheless, the next writer completes the commit
    """
    known = Position(new.number - 1, new.digest) if new.digest else None
    data = new.encode(key)
    position = Position(new.number, catalogue.digest_of(data))
    store.flush()
    candidate = candidate_name(position)
    store.replace(candidate, data)
    try:
        arbiter.move(known, position)
    except exceptions.Busy as exc:
        there = heads.try_read(store, new.number)
        if there is not None and there.digest == position.digest:
            # It was decided; the answer was lost, and others went on.
            new.digest = position.digest
            return
        store.delete(candidate)
        raise exceptions.Conflict(
            f'Catalogue {new.number} was committed by another writer '
            f'already.') from exc
    new.digest = position.digest
    _publish(store, new, data)


def publish_decided(store: base.BlobStore, decided: Position | None) -> None:
    """Complete the commit of a writer that was killed after the decision.

    :param decided: what the arbiter decided last
    :raises IntegrityError: the candidate is damaged
    """
    if decided is None:
        return
    candidate = candidate_name(decided)
    if store.exists(blob_names.of_head(decided.number)):
        store.delete(candidate)
    elif store.exists(candidate):
        data = store.read(candidate)
        head = catalogue.Catalogue.decode(data, candidate, store.read)
        if position_of(head) != decided:
            raise exceptions.IntegrityError(
                f'{candidate} is not the catalogue that the conductor has: '
                f'restore it from a copy of the store.')
        _publish(store, head, data)


def check(decided: Position | None, head: catalogue.Catalogue | None) -> None:
    """Check that a store is not behind what was decided.

    It may be ahead, by commits of writers that have no arbiter.

    :raises IntegrityError: it is behind, or another catalogue
    """
    if decided is None:
        return
    number = head.number if head else 0
    if number > decided.number or position_of(head) == decided:
        return
    found = (f'is back at catalogue {number}' if number < decided.number
             else f'has another catalogue {number}')
    raise exceptions.IntegrityError(
        f'The store of versions {found}, but the conductor has catalogue '
        f'{decided.number} with the digest {decided.digest[:16]}: it was put '
        f'back to an earlier state, or changed. If it was restored from a '
        f'copy on purpose, run "diffcache-manage version-store reset '
        f'PROJECT".')


def _publish(store: base.BlobStore, head: catalogue.Catalogue, data: bytes
             ) -> None:
    """Publish a catalogue that was decided; others may do so, too."""
    there = heads.try_read(store, head.number)
    if there is None:
        store.replace(blob_names.of_head(head.number), data)
    elif there.digest != head.digest:
        raise exceptions.IntegrityError(
            f'Catalogue {head.number} was written by a writer that did not '
            f'ask the conductor. Give all agents of the store the same '
            f'release, and see "diffcache-manage version-store reset".')
    heads.complete(store, head)
    store.delete(candidate_name(Position(head.number, head.digest)))
