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
"""Boot sets in plans: chosen for what a plan leaves to be read elsewhere."""

import collections
import typing

import numpy as np

from diffcache_openstack.common import units
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack import objects
from diffcache_openstack.placement import boot_sets as placing
from diffcache_openstack.placement import replan
from diffcache_openstack.planning import boot_sets as demands
from diffcache_openstack.planning import model


class SetLimits(typing.NamedTuple):
    """Limits of a choice.

    :ivar hops: patches that may be applied one after another
    :ivar per_host: sets of a host
    """

    hops: int
    per_host: int


def choose(demand: demands.Demand, site_model: model.Model,
           plan: objects.Plan, hosts: list[objects.Host],
           terms: replan.Terms, limits: SetLimits) -> list[
               boot_sets.PlannedSet]:
    """Choose the boot sets of the hosts of a site.

    :param plan: what hosts are to hold besides
    :param hosts: of the site, with their capacities
    :returns: by host, those that save most per byte first
    """
    number = {name: n for n, name in enumerate(site_model.hosts, 1)}
    row = {content: n for n, content in enumerate(site_model.contents)}
    images = {content: image for content, image in demand.images.items()
              if content in row and image.bytes}
    if not images:
        return []
    contents = sorted(images)
    capacity = {host.name: host.capacity for host in hosts}

    def numbered(pairs):
        return ((row[content], number[host]) for host, content in pairs
                if content in images and host in number)

    sets = placing.BootSets(
        templates=tuple(row[content] for content in contents),
        megabytes=tuple(images[content].bytes / units.MB
                        for content in contents),
        hosts=frozenset(number[name] for name in demand.standing.hosts
                        if name in number),
        capacities=np.array([capacity[name] / units.MB
                             for name in site_model.hosts]),
        present=frozenset(numbered(demand.standing.present)),
        pinned=tuple(numbered(demand.pins)))
    found = placing.choose(placing.candidates_of(
        site_model.instance, site_model.placement(plan.items), sets, terms,
        limits.hops), demand.share)
    taken: collections.Counter[int] = collections.Counter()
    chosen = []
    for each in found.choices:
        if taken[each.host] < limits.per_host:
            taken[each.host] += 1
            chosen.append(each)
    return [boot_sets.PlannedSet(
        host=site_model.hosts[each.host - 1],
        content_id=contents[each.number],
        image=images[contents[each.number]], requests=each.requests,
        wait_seconds=each.wait_s, from_peer=each.from_peer,
        saved_seconds=each.saves_s, pinned=each.pinned)
        for each in chosen]
