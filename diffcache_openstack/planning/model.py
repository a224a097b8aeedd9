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
"""A site as a placement instance, and a placement as a plan's items.

The placement package numbers templates and hosts and weighs in MB; the
conductor knows content ids, names and bytes. A :class:`Model` holds both.
"""

import dataclasses
import functools
import itertools
import math

import numpy as np
from oslo_config import cfg
from oslo_log import log

from diffcache_openstack.common import time_windows
from diffcache_openstack.common import units
from diffcache_openstack import objects
from diffcache_openstack.placement import demand
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import objectives
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import replan
from diffcache_openstack.placement.solvers import auto
from diffcache_openstack.planning import site_state
from diffcache_openstack.sites import link_rates
from diffcache_openstack.sites import site_map as site_maps

LOG = log.getLogger(__name__)

MBIT = 1e6
SECONDS_PER_DAY = 86400.0
# Images of less are planned as if they had this much: an empty image exists,
# and the model knows no size of zero.
_SMALLEST = 4096
# Images that a plan considers, those with the highest forecast: they limit
# the solver's time and memory in catalogues of many thousand images.
MAX_TEMPLATES = 1000
# Assumed for applying a patch before it was measured, beside the time for the
# size of its target.
PATCH_SECONDS = 0.5
FORECAST = demand.Model()
# Recent requests assumed of each image at each host: images that were never
# requested fill the room that is left, and count little beside one that was.
PRIOR = 0.05


@dataclasses.dataclass(frozen=True)
class Model:
    """An instance with the names of its numbers.

    :param hosts: name of each column, host number minus one
    :param contents: content id of each template number
    :param sizes: bytes of each template number
    :param patches: the patch of each pair of template numbers
    :param fill_limits: by host number, for hosts that reported theirs
    """

    instance: instances.Instance
    hosts: list[str]
    contents: list[str]
    sizes: list[int]
    patches: dict[tuple[int, int], objects.Patch]
    fill_limits: dict[int, replan.FillLimits] = dataclasses.field(
        default_factory=dict)

    def placement(self, items: list[objects.PlanItem]
                  ) -> placements.Placement:
        """Return the part of a plan whose hosts and objects the model has."""
        host_number = {name: n for n, name in enumerate(self.hosts, 1)}
        content_number = {c: n for n, c in enumerate(self.contents)}
        pair_of = {patch.id: pair for pair, patch in self.patches.items()}
        templates, patches = [], []
        for item in items:
            host = host_number.get(item.host)
            if host is None:
                continue
            if item.kind == objects.IMAGES and item.id in content_number:
                templates.append((content_number[item.id], host))
            elif item.kind == objects.PATCHES and item.id in pair_of:
                patches.append((*pair_of[item.id], host))
        return placements.Placement.of(templates, patches)

    def placed_too(self, items: list[objects.PlanItem]) -> 'Model':
        """Return the model with a plan's objects placed in addition.

        A plan that is still being filled is not to be given up for the sake
        of transfers that it has made already or is about to.
        """
        planned = self.placement(items)
        placed = self.instance.placed
        both = instances.Held(
            tuple(sorted({*placed.templates, *planned.templates})),
            tuple(sorted({*placed.patches, *planned.patches})))
        return dataclasses.replace(self, instance=dataclasses.replace(
            self.instance, placed=both))

    def items(self, placement: placements.Placement, hops: int,
              objective: objectives.Objective
              ) -> list[objects.PlanItem]:
        """Convert a placement to items, the first to be fetched first.

        Those lower the objective most per second of transfer.
        """
        saved = auto.losses(self.instance, placement, hops)
        priced = objective.priced(self.instance)
        worth = saved if priced is self.instance \
            else auto.losses(priced, placement, hops)
        transfers = replan.fill_seconds(self.instance, placement)
        return _prioritised([
            (self._item(entry, seconds),
             max(0.0, worth[entry]) / transfers[entry])
            for entry, seconds in saved.items()])

    def _item(self, entry, saved_seconds):
        """Return the item of (template, host) or (base, target, host)."""
        *key, host = entry
        if len(key) == 1:
            kind, object_id = objects.IMAGES, self.contents[key[0]]
            size = self.sizes[key[0]]
        else:
            patch = self.patches[tuple(key)]
            kind, object_id, size = objects.PATCHES, patch.id, patch.size
        return objects.PlanItem(
            host=self.hosts[host - 1], kind=kind, id=object_id, bytes=size,
            priority=0, saved_seconds=float(max(0.0, saved_seconds)))


def _prioritised(valued):
    """Number (item, worth per second) on each host, the highest first."""
    valued.sort(key=lambda entry: (entry[0].host, -entry[1], entry[0].id))
    items = [item for item, _worth in valued]
    for _host, group in itertools.groupby(items, lambda item: item.host):
        for priority, item in enumerate(group):
            item.priority = priority
    return items


def build(state: site_state.SiteState, options: cfg.ConfigOpts.GroupAttr
          ) -> Model:
    """Build the instance of a site.

    Images with the same content are one template. Of a large catalogue only
    the templates in highest demand are taken.

    What a precache job has pinned is held whatever it costs, as long as it
    fits; a job that is not is demand like any other.

    :param options: the group [planner]
    """
    hosts = sorted(host.name for host in state.hosts)
    sizes = _wanted_contents(state, options)
    contents = sorted(sizes)
    pinned = _pinned(state, contents, sizes, options)
    capacity = _capacities(state, hosts, contents, sizes, pinned)
    patches = _patches_between(contents, state.patches)
    seconds = [_apply_seconds(patch, sizes[patch.target], options)
               for patch in patches.values()]
    wire_sizes = _wire_sizes(state, sizes)
    instance = instances.Instance(
        sizes=np.array([sizes[c] / units.MB for c in contents]),
        wire_sizes=np.array([wire_sizes[c] / units.MB for c in contents]),
        patch_base=np.array([i for i, _ in patches], dtype=np.int64),
        patch_target=np.array([j for _, j in patches], dtype=np.int64),
        patch_sizes=np.array([max(1, patch.size) / units.MB
                              for patch in patches.values()], dtype=float),
        patch_seconds=np.array(seconds, dtype=float),
        capacities=np.array([capacity[name] / units.MB for name in hosts]),
        rates=_daily_rates(state, hosts, contents),
        bandwidths=_bandwidths(state, hosts, options),
        placed=_placed(state, hosts, contents, patches),
        pinned=pinned,
        excluded=frozenset(n for n, name in enumerate(hosts, 1)
                           if name in options.drained_hosts),
        name=state.site)
    return Model(instance, hosts, contents, [sizes[c] for c in contents],
                 patches, _fill_limits(state, hosts))


def objective_of(site: str, options: cfg.ConfigOpts.GroupAttr
                 ) -> objectives.Objective:
    """Return what the plans of a site minimize.

    :param options: the group [planner]
    """
    return objectives.OBJECTIVES[
        options.site_objective.get(site, options.objective)]


def _bandwidths(state, hosts, options):
    """Return the links of each host: its own, where they are known."""
    links = site_maps.to_links(link_rates.links_of(
        state.site, options, state.networks))
    each = [links.of(name) for name in hosts]
    return instances.Bandwidths(
        local=np.array([own.local for own in each]),
        peer=np.array([own.peer for own in each]),
        repo=np.array([own.fastest_repository(state.repositories)
                       for own in each]))


def _fill_limits(state, hosts):
    return {
        number: fill_limits(network.fill_rate, tuple(network.fill_windows))
        for number, name in enumerate(hosts, 1)
        if (network := state.networks.get(name)) is not None}


@functools.lru_cache(maxsize=1000)
def fill_limits(rate: int | None, open_windows: tuple[str, ...]
                ) -> replan.FillLimits:
    """Return the limits of fills of a host.

    :param rate: bytes per second; none or 0 for no limit
    """
    return replan.FillLimits(
        8 * rate / MBIT if rate else None,
        time_windows.Windows(list(open_windows)).seconds_per_day())


def _placed(state, hosts, contents, patches):
    """Return the objects of the model that hosts hold already."""
    host_number = {name: n for n, name in enumerate(hosts, 1)}
    content_number = {content: n for n, content in enumerate(contents)}
    pair_of = {patch.id: pair for pair, patch in patches.items()}
    templates, pairs = [], []
    for host in state.hosts:
        number = host_number[host.name]
        for held in host.holdings:
            if held.kind == objects.IMAGES and held.id in content_number:
                templates.append((content_number[held.id], number))
            elif held.kind == objects.PATCHES and held.id in pair_of:
                pairs.append((*pair_of[held.id], number))
    return instances.Held(tuple(sorted(templates)), tuple(sorted(pairs)))


def _wanted_contents(state, options):
    """Return bytes by content id, for the contents in highest demand."""
    sizes = {image.content_id: max(_SMALLEST, image.data_size)
             for image in state.images}
    if len(sizes) <= MAX_TEMPLATES:
        return sizes
    hosts = [host.name for host in state.hosts]
    contents = sorted(sizes)
    rates = _daily_rates(state, hosts, contents).sum(axis=1)
    highest = np.argsort(-rates, kind='stable')[:MAX_TEMPLATES]
    wanted = {contents[n] for n in highest}
    # Whatever else is asked for, jobs are to be met.
    wanted |= {job.content_id for job in state.jobs} & set(sizes)
    wanted |= {content_id for _host, content_id
               in state.boot_sets.pins} & set(sizes)
    return {content: sizes[content] for content in wanted}


def _wire_sizes(state, sizes):
    """Return the bytes that cross the WAN by content id, of some contents."""
    found = dict(sizes)
    for image in state.images:
        if image.content_id in found and image.compressed_size:
            found[image.content_id] = min(
                found[image.content_id],
                max(_SMALLEST, image.compressed_size))
    return found


def _pinned(state, contents, sizes, options):
    """Return pins of jobs, the heaviest first, while they fit."""
    number = {content: n for n, content in enumerate(contents)}
    left = {host.name: host.capacity for host in state.hosts}
    host_number = {name: n for n, name in enumerate(sorted(left), 1)}
    found = []
    for job in sorted(state.jobs, key=lambda job: -job.requests):
        if not job.pinned or job.host not in left \
                or job.host in options.drained_hosts \
                or job.content_id not in number:
            continue
        size = sizes[job.content_id]
        if size > left[job.host]:
            LOG.warning('Host %s has no room to pin %s (%d bytes) beside what'
                        ' is pinned there; lift a precache job', job.host,
                        job.content_id, size)
            continue
        left[job.host] -= size
        found.append((number[job.content_id], host_number[job.host]))
    return instances.Held(templates=tuple(found))


def _capacities(state, hosts, contents, sizes, pinned):
    """Return by host the bytes for all but boot sets."""
    taken = dict.fromkeys(hosts, 0)
    for number, host in pinned.templates:
        taken[hosts[host - 1]] += sizes[contents[number]]
    return {host.name: host.capacity - state.boot_sets.room_at(
        host.name, host.capacity, taken[host.name]) for host in state.hosts}


def _daily_rates(state, hosts, contents):
    """Return expected requests per day of each content at each host."""
    number = {content: n for n, content in enumerate(contents)}
    host_number = {name: n for n, name in enumerate(hosts, 1)}
    # The clock of a host may be ahead of ours; its requests are no older.
    now = state.now.timestamp()
    requests = [
        demand.Arrival(min(now, past.started_at.timestamp()),
                       number[past.content_id], host_number[past.host])
        for past in state.demand
        if past.content_id in number and past.host in host_number]
    shape = (len(contents), len(hosts))
    expected = demand.rates(requests, now, shape, FORECAST,
                            _families(state, number))
    counts = np.full(shape, PRIOR)
    for job in state.jobs:
        if job.content_id in number and job.host in host_number:
            counts[number[job.content_id],
                   host_number[job.host] - 1] += job.requests
    # Requests at a steady rate leave rate * half-life / ln 2 behind.
    return expected + counts * SECONDS_PER_DAY * math.log(2) \
        / FORECAST.half_life_s


def _families(state, number):
    """Return the family of each content, connected by patches and origins."""
    content_of = {image.id: image.content_id
                  for image in state.images}
    kin = [(patch.base, patch.target) for patch in state.patches]
    kin += [(content_of[image.family], image.content_id)
            for image in state.images if image.family in content_of]
    pairs = [(number[a], number[b]) for a, b in kin
             if a in number and b in number]
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return demand.families(len(number), ends[:, 0], ends[:, 1])


def _patches_between(contents, patches):
    number = {content: n for n, content in enumerate(contents)}
    return {(number[patch.base], number[patch.target]): patch
            for patch in sorted(patches, key=lambda p: (p.base, p.target))
            if patch.base in number and patch.target in number}


def _apply_seconds(patch, target_bytes, options):
    if patch.apply_seconds:
        return patch.apply_seconds
    return (PATCH_SECONDS
            + 8 * target_bytes / (options.local_bandwidth * MBIT))
