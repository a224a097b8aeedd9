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
"""An evaluator that shares no code with solvers: it tries every chain."""

import collections
import itertools

from diffcache_openstack.placement import placements


def fetch_seconds(instance, megabytes, holders, host, far=None):
    """Seconds to fetch an object that some hosts hold, and the repository.

    :param far: MB that cross if it is fetched from the repository
    """
    links = instance.bandwidths
    found = [8 * (far or megabytes) / links.repo[host - 1]]
    for holder in holders:
        if instance.sites[holder - 1] == instance.sites[host - 1]:
            link = links.local if holder == host else links.peer
            found.append(8 * megabytes / link[host - 1])
    return min(found)


def chains(instance, template, hops):
    """All (base, [(base, target), ...]) of at most ``hops`` patches.

    Patches are counted one by one; no template comes twice.
    """
    into = collections.defaultdict(list)
    for pair in instance.patch_index():
        into[pair[1]].append(pair)
    found = []

    def extend(base, patches):
        found.append((base, patches))
        if len(patches) == hops:
            return
        for before, after in into[base]:
            passed = {template, *(pair[0] for pair in patches)}
            if before not in passed:
                extend(before, [(before, after), *patches])

    extend(template, [])
    return found


def service_seconds(instance, placement, template, host, hops):
    """Seconds of the cheapest of all chains."""
    holders = collections.defaultdict(list)
    for *key, holder in (*placement.templates, *placement.patches):
        holders[tuple(key)].append(holder)
    number = instance.patch_index()

    def seconds(base, patches):
        total = fetch_seconds(
            instance, instance.sizes[base], holders[base,], host,
            instance.wire_sizes[base])
        for pair in patches:
            total += instance.patch_seconds[number[pair]] + fetch_seconds(
                instance, instance.patch_sizes[number[pair]], holders[pair],
                host)
        return total

    return min(
        seconds(*chain) for chain in chains(instance, template, hops))


def total_cost(instance, placement, hops):
    """Equation 5, term by term."""
    return sum(
        instance.rates[j, r] * service_seconds(
            instance, placement, j, r + 1, hops)
        for j in range(instance.template_count)
        for r in range(instance.host_count)
    )


def least_cost(instance):
    """The least cost of all placements of templates that fit, in bytes."""
    sizes = [round(size * 1e6) for size in instance.sizes.tolist()]
    free = [round(room * 1e6) for room in instance.capacities.tolist()]
    fitting = [
        [chosen for n in range(len(sizes) + 1)
         for chosen in itertools.combinations(range(len(sizes)), n)
         if sum(sizes[i] for i in chosen) <= room]
        for room in free
    ]
    return min(
        total_cost(instance, placements.Placement.of(
            (i, host + 1) for host, chosen in enumerate(each)
            for i in chosen), 0)
        for each in itertools.product(*fitting))
