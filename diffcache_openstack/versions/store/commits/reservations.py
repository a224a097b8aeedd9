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
"""Numbers of packs, maps and versions that no two writers use.

A save takes numbers before it writes: those of a store with an arbiter from
that, others under the store's lock, past those that the directories of other
writers record. What a save does not use is lost only if another one has taken
later numbers meanwhile.
"""

import dataclasses
import pathlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import record_checks

_FILE = 'numbers'


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The first number of each kind, or how many there are."""

    pack: int
    map: int
    version: int

    def plus(self, count: 'Numbers') -> 'Numbers':
        """Return the numbers that follow some."""
        return Numbers(self.pack + count.pack, self.map + count.map,
                       self.version + count.version)


def free(head: catalogue.Catalogue) -> Numbers:
    """Return the first numbers that a catalogue does not give."""
    return Numbers(head.next_pack, head.next_map, head.next_version)


def check(end: Numbers) -> None:
    """Check that a catalogue can have the numbers before these.

    :raises PermanentError: they are too large
    """
    try:
        for number in dataclasses.astuple(end):
            record_checks.number(number)
    except ValueError as exc:
        raise exceptions.PermanentError(
            f'The store has no numbers left: {exc}.') from exc


def are_free(head: catalogue.Catalogue, first: Numbers, count: Numbers
             ) -> bool:
    """Return whether a catalogue has nothing of these numbers.

    It has if the work was committed before, and its versions were deleted, or
    if an arbiter has forgotten numbers.
    """
    end = first.plus(count)
    return not (
        any(number in head.packs for number in range(first.pack, end.pack))
        or any(number in head.maps for number in range(first.map, end.map))
        or any(number in head.versions.table
               for number in range(first.version, end.version)))


def taken(staging: pathlib.Path) -> list[tuple[Numbers, Numbers]]:
    """Return the numbers that a writer has taken: first ones, and counts."""
    found = files.read_state(staging / _FILE) or []
    return [(Numbers(*first), Numbers(*count)) for first, count in found]


def note(staging: pathlib.Path, first: Numbers, count: Numbers) -> None:
    """Record that a writer has taken numbers; the lock must be held."""
    files.write_json(staging / _FILE, [
        [dataclasses.astuple(each) for each in pair]
        for pair in (*taken(staging), (first, count))])


def after_others(store: base.BlobStore, least: Numbers) -> Numbers:
    """Return numbers that no writer has taken; the lock must be held."""
    ends = [least, *(first.plus(count) for work in store.works()
                     for first, count in taken(work))]
    return Numbers(*map(max, zip(*map(dataclasses.astuple, ends))))
