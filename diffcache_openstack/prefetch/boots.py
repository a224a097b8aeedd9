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
"""What lazy boots read of an image, and what of that hosts lack.

All is counted in groups of chunks, which are what repositories send. A boot
set has a group if it has all chunks of it that boots read.
"""

import collections
import collections.abc
import typing

from diffcache_openstack.prefetch import profiles


class HeldSet(typing.NamedTuple):
    """A boot set at a host.

    :ivar chunks: of the set
    :ivar share: of its bytes that are there, 0 to 1
    """

    chunks: frozenset[int]
    share: float


class Reads(typing.NamedTuple):
    """Bytes that a lazy boot reads at a host.

    :ivar total: all of them
    :ivar absent: that the host's boot set lacks; all if it has none
    :ivar at_peers: of those, bytes in whole boot sets of the site
    """

    total: int
    absent: int
    at_peers: int


NO_SET = HeldSet(frozenset(), 0.0)


def at_hosts(rows: profiles.Rows, image_bytes: int,
             hosts: collections.abc.Iterable[str],
             sets: collections.abc.Mapping[str, HeldSet]
             ) -> dict[str, Reads]:
    """Return what boots read at hosts of one site.

    Which chunks of a set are there that is not whole is not known: of each
    group the set's share counts, and peers count on nothing of it.

    :param rows: of the chunks that boots read
    :param sets: by host, of all hosts of the site
    """
    sizes = _sizes(rows, image_bytes)
    groups = {host: _groups_in(held, rows) for host, held in sets.items()}
    holders = collections.Counter(
        group for host, held in sets.items() if held.share >= 1
        for group in groups[host])
    found = {}
    for host in hosts:
        here, share = groups.get(host, set()), sets.get(host, NO_SET).share
        absent = at_peers = 0.0
        for group, size in sizes.items():
            is_here = group in here
            lack = size * (1 - share) if is_here else size
            absent += lack
            if holders[group] > (is_here and share >= 1):
                at_peers += lack
        found[host] = Reads(sum(sizes.values()), round(absent),
                            round(at_peers))
    return found


def _sizes(rows, image_bytes):
    """Return the bytes of each group that boots read a chunk of."""
    return {chunk // profiles.GROUP_CHUNKS: profiles.size_of(
        {chunk: row}, image_bytes) for chunk, row in rows.items()}


def _groups_in(held, rows):
    """Return the groups that a set has all chunks of that boots read."""
    lacking = {chunk // profiles.GROUP_CHUNKS
               for chunk in rows.keys() - held.chunks}
    return {chunk // profiles.GROUP_CHUNKS for chunk in rows} - lacking
