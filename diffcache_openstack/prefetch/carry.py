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
"""What is known of one image's boots, carried to another image.

The next build of an image has most of the content of the one before, and an
unrelated image of the same distribution has files of the same paths. Where
the content of a chunk is in the other image, a profile's row goes there.
"""

import collections.abc
import typing

from diffcache_openstack.prefetch import profiles

# A chunk of the target gets the row of a source chunk that has at least this
# share of its content there.
LEAST_SHARE = 0.25
# Targets that get the row of one source chunk. With the least share more than
# four have it only where content is repeated.
MOST_TARGETS = 4


class Common(typing.NamedTuple):
    """Content of a source's chunk that a target's chunk has.

    :ivar target: number of the chunk in the image that is carried to
    :ivar source: number of the chunk in the image of the profile
    :ivar amount: of the content, in the unit of the source chunk's size
    """

    target: int
    source: int
    amount: int


def carry(rows: profiles.Rows, sizes: collections.abc.Mapping[int, int],
          common: collections.abc.Iterable[Common]) -> profiles.Rows:
    """Return the profile of another image, as far as it has the content.

    A source chunk's row goes to each target chunk that has at least
    :data:`LEAST_SHARE` of the source chunk's content, to
    :data:`MOST_TARGETS` at most: those that have the most of it, the lowest
    of equals. A target chunk that several rows go to gets the one of the most
    instances, then the earliest. So no count and no time is greater than in
    the source, each target chunk is one that ``common`` names, and a profile
    carried to its own image (each chunk in common with itself alone) stays.

    :param rows: {chunk: (count, total_us)} of the image that was booted
    :param sizes: {source chunk: content}, in any unit, such as blocks that are
        not zero, or bytes of files; chunks without one are not carried
    :param common: what the two images have in common, each pair of target and
        source once; sources without a row are passed over
    """
    found: dict[int, list[Common]] = {}
    for each in common:
        size = sizes.get(each.source, 0)
        if each.source in rows and size > 0 and (
                each.amount >= LEAST_SHARE * size):
            found.setdefault(each.source, []).append(each)
    carried: profiles.Rows = {}
    for source, places in found.items():
        places.sort(key=lambda place: (-place.amount, place.target))
        for place in places[:MOST_TARGETS]:
            known = carried.get(place.target)
            if known is None or _urgency(rows[source]) < _urgency(known):
                carried[place.target] = rows[source]
    return profiles.bounded(carried)


def _urgency(row: tuple[int, int]) -> tuple[int, float]:
    """Return a key that orders rows: most instances first, then earliest."""
    count, total_us = row
    return -count, total_us / count
