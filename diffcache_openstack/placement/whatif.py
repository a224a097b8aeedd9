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
"""Estimate what other hosts, capacities or links would save."""

import collections.abc
import dataclasses

import numpy as np

from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import solving


@dataclasses.dataclass(frozen=True)
class Change:
    """A hypothetical change of a site.

    :param hosts: hosts more; they share the requests there are
    :param capacity_mb: MB more (or less) on every host
    :param repo_mbps: the WAN's bandwidth; None leaves it
    :param peer_mbps: the LAN's bandwidth; None leaves it
    :param demand: factor on all requests
    """

    hosts: int = 0
    capacity_mb: float = 0.0
    repo_mbps: float | None = None
    peer_mbps: float | None = None
    demand: float = 1.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The best placement found of a site, and what requests take with it.

    :param wan_mb: from repositories, per period of the rates
    :param demand: requests per period of the rates
    """

    solution: solving.Solution
    wan_mb: float
    demand: float

    @property
    def mean_s(self) -> float:
        """Seconds per request."""
        return self.solution.cost_s / max(self.demand, 1e-12)

    @property
    def mean_wan_mb(self) -> float:
        """MB from repositories per request."""
        return self.wan_mb / max(self.demand, 1e-12)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The best placements found before and after a change."""

    before: Outcome
    after: Outcome

    @property
    def saving(self) -> float:
        """Share of the mean service time that the change saves."""
        return _share_saved(self.before.mean_s, self.after.mean_s)

    @property
    def saving_wan(self) -> float:
        """Share of the bytes from repositories that the change saves."""
        return _share_saved(self.before.mean_wan_mb, self.after.mean_wan_mb)


def _share_saved(before, after):
    return 1.0 - after / before if before else 0.0


def apply(instance: instances.Instance, change: Change) -> instances.Instance:
    """Return the instance after a change; what is placed stays placed.

    :raises InstanceError: a bandwidth or the demand would not be above zero
    """
    for field in ('repo_mbps', 'peer_mbps', 'demand'):
        value = getattr(change, field)
        if value is not None and not value > 0:
            raise instances.InstanceError(f'{field}: must be above 0')
    if change.hosts < 0:
        raise instances.InstanceError('hosts: exclude hosts to drain them')
    changed = _with_hosts(instance, change.hosts)
    hosts = changed.host_count

    def link(present, mbps):
        return present if mbps is None else np.full(hosts, float(mbps))

    links = changed.bandwidths
    return dataclasses.replace(
        changed,
        capacities=np.maximum(changed.capacities + change.capacity_mb, 0.0),
        rates=changed.rates * change.demand,
        bandwidths=instances.Bandwidths(links.local,
                                        link(links.peer, change.peer_mbps),
                                        link(links.repo, change.repo_mbps)),
    )


def compare(
    instance: instances.Instance,
    change: Change,
    solve: collections.abc.Callable[[instances.Instance], solving.Solution],
    hops: int = 1,
) -> Comparison:
    """Solve the instance as it is and as it might be.

    :param hops: patches that may be applied one after another
    """
    return Comparison(*(
        _outcome(each, solve(each), hops)
        for each in (instance, apply(instance, change))))


def _outcome(instance, solution, hops):
    return Outcome(
        solution, cost.wan_megabytes(instance, solution.placement, hops),
        instance.demand)


def _with_hosts(instance, more):
    """Add hosts like the average one of the first site."""
    if not more:
        return instance
    site = instance.sites == instance.sites[0]
    share = site.sum() / (site.sum() + more)
    rates = instance.rates.astype(float)
    rates[:, site] *= share
    moved = instance.rates[:, site].sum(axis=1) * (1 - share) / more
    links = instance.bandwidths

    def extend(values):
        return np.concatenate((values, np.full(more, values[site].mean())))

    return dataclasses.replace(
        instance,
        capacities=extend(instance.capacities),
        rates=np.column_stack([rates] + [moved] * more),
        bandwidths=instances.Bandwidths(
            extend(links.local), extend(links.peer), extend(links.repo)
        ),
        sites=np.concatenate(
            (instance.sites, np.full(more, instance.sites[0]))
        ),
    )
