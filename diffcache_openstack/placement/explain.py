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
"""Reasons for placed objects: who reads them and what they save."""

import dataclasses

from diffcache_openstack.placement import instances
from diffcache_openstack.placement import lookup
from diffcache_openstack.placement import placements
from diffcache_openstack.placement.solvers import auto


@dataclasses.dataclass(frozen=True)
class Reason:
    """One object on one host.

    :param key: (template,) or (base, target)
    :param saves_s: what all requests would cost more without it, seconds
    :param requests: those whose cheapest way reads it
    :param targets: templates that those requests are for
    :param eviction: 1 for the object its host would lose first, and so on,
        by what is saved per MB
    :param pinned: the instance pins it to the host
    """

    key: tuple[int, ...]
    host: int
    megabytes: float
    saves_s: float
    requests: float
    targets: tuple[int, ...]
    eviction: int
    pinned: bool

    @property
    def why(self) -> str:
        """The reason in words."""
        if self.pinned:
            return 'pinned'
        if not self.requests:
            return 'read by no expected request: first to be evicted'
        plural = '' if self.requests == 1 else 's'
        what = f'{self.requests:.3g} expected request{plural}'
        if len(self.key) == 2:
            return f'builds {self.key[1]} from {self.key[0]} for {what}'
        uses = ['delivered whole'] if self.key[0] in self.targets else []
        others = len(set(self.targets) - {self.key[0]})
        if others:
            uses.append(f'base of {others} other template'
                        + 's' * (others > 1))
        return f'{" and ".join(uses)} for {what}'


def explain(instance: instances.Instance, placement: placements.Placement,
            hops: int = 1) -> list[Reason]:
    """List reasons for all objects, by host, the most saved per MB first.

    :raises PlacementError: the placement names what does not exist
    """
    placements.check_names(instance, placement)
    saves = _saves(instance, placement, hops)
    users = _users(instance, placement, hops)
    patch_index = instance.patch_index()
    pins = {*instance.pinned.templates, *instance.pinned.patches}
    by_host: dict[int, list] = {}
    for entry, saved in saves.items():
        *key, host = entry
        size = float(
            instance.sizes[key[0]]
            if len(key) == 1
            else instance.patch_sizes[patch_index[tuple(key)]]
        )
        by_host.setdefault(host, []).append((saved / size, entry, size))
    found = []
    for host in sorted(by_host):
        ranked = sorted(by_host[host], reverse=True)
        for n, (_, entry, size) in enumerate(ranked):
            requests = users.get(entry, {})
            found.append(
                Reason(key=entry[:-1], host=host, megabytes=size,
                       saves_s=saves[entry], requests=sum(requests.values()),
                       targets=tuple(sorted(requests)),
                       eviction=len(ranked) - n, pinned=entry in pins)
            )
    return found


def _saves(instance, placement, hops):
    """Compute the loss without each object, site by site."""
    saves = {}
    for columns in instance.site_hosts():
        part = placement.only_hosts(columns)
        lost = auto.losses(instance.only_hosts(columns), part, hops)
        saves.update(
            ((*entry[:-1], int(columns[entry[-1] - 1]) + 1), max(0.0, seconds))
            for entry, seconds in lost.items()
        )
    return saves


def _users(instance, placement, hops):
    """Count requests by object read and requested template."""
    table = lookup.LookupTable(instance, placement)
    users: dict[tuple, dict[int, float]] = {}
    for j, column in zip(*instance.rates.nonzero()):
        j, column = int(j), int(column)
        rate = float(instance.rates[j, column])
        way = table.ways(j, column + 1, hops, limit=1)[0]
        read: list[tuple[int, ...]] = [
            (patch.base, patch.target, source)
            for patch, source in zip(way.patches, way.patch_sources)
        ]
        read.append((way.template, way.source))
        for entry in read:
            if entry[-1] != instances.REPOSITORY:
                requested = users.setdefault(entry, {})
                requested[j] = requested.get(j, 0.0) + rate
    return users
