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
"""The lookup table of a placement: the ways to a template at a host."""

import typing

from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import ways
from diffcache_openstack.placement import ways as finder


class Patch(typing.NamedTuple):
    """A patch of an instance; ``size`` is in MB."""

    base: int
    target: int
    size: float
    apply_seconds: float


class LookupTable:
    """Ways to serve requests under one placement.

    Holds indexes only, so that one table answers many requests.
    """

    def __init__(self, instance: instances.Instance,
                 placement: placements.Placement):
        self._sizes = instance.sizes.tolist()
        self._wire_sizes = instance.wire_sizes_priced().tolist()
        links = instance.bandwidths
        self._links = [
            link.tolist() for link in (links.local, links.peer, links.repo)
        ]
        self._sites = instance.sites.tolist()
        self._holders: dict[tuple, list[int]] = {}
        for *key, host in (*sorted(placement.templates),
                           *sorted(placement.patches)):
            self._holders.setdefault(tuple(key), []).append(host)
        self._into: dict[int, list[Patch]] = {}
        for patch in map(Patch, instance.patch_base.tolist(),
                         instance.patch_target.tolist(),
                         instance.patch_sizes.tolist(),
                         instance.patch_seconds.tolist()):
            self._into.setdefault(patch.target, []).append(patch)

    def ways(self, template: int, host: int, hops: int = 1,
             limit: int = 32) -> list[finder.Way]:
        """Rank the ``limit`` cheapest ways for ``template`` at ``host``.

        The last is always the whole template from the repository unless it
        ranks higher; ways dearer than it are left out.

        :param host: 1..K; 0 among the sources is the repository
        :param hops: patches that may be applied one after another
        """
        network = _Network(self, host)
        last = self._seconds(self._wire_sizes[template], host,
                             instances.REPOSITORY)
        whole = finder.Way(last, template, instances.REPOSITORY, (), ())
        found = finder.rank(network, template, hops, limit, last)
        return [*(way for way in found if way != whole), whole]

    def patches_into(self, template: int) -> list[Patch]:
        """List the patches to a template."""
        return self._into.get(template, [])

    def template_sources(self, template: int,
                         host: int) -> list[finder.Source]:
        """List where a host can read a template, cheapest first."""
        return self._sources((template,), self._sizes[template],
                             self._wire_sizes[template], host)

    def patch_sources(self, patch: Patch, host: int) -> list[finder.Source]:
        """List where a host can read a patch, cheapest first."""
        return self._sources((patch.base, patch.target), patch.size,
                             patch.size, host)

    def _sources(self, key, size, wire_size, host):
        near = [
            holder
            for holder in self._holders.get(key, ())
            if self._sites[holder - 1] == self._sites[host - 1]
        ]
        return sorted(
            (
                *(
                    finder.Source(self._seconds(size, host, holder), holder)
                    for holder in near
                ),
                finder.Source(
                    self._seconds(wire_size, host, instances.REPOSITORY),
                    instances.REPOSITORY,
                ),
            ),
            key=lambda source: source.seconds,
        )

    def _seconds(self, size, host, source):
        local, peer, repo = self._links
        if source == instances.REPOSITORY:
            link = repo
        else:
            link = local if source == host else peer
        return ways.fetch_seconds(size, link[host - 1])


class _Network:
    """A lookup table as seen from one host; see :class:`.ways.Network`."""

    def __init__(self, table: LookupTable, host: int) -> None:
        self._table = table
        self._host = host

    def steps_into(self, template: int, within: float) -> list[finder.Step]:
        steps = (
            finder.Step(
                self.patch_sources(patch)[0].seconds + patch.apply_seconds,
                patch.base,
                patch,
            )
            for patch in self._table.patches_into(template)
        )
        return [step for step in steps if step.seconds < within]

    def template_sources(self, template: int) -> list[finder.Source]:
        return self._table.template_sources(template, self._host)

    def patch_sources(self, patch: Patch) -> list[finder.Source]:
        return self._table.patch_sources(patch, self._host)

    def template_seconds(self, template: int) -> float:
        return self.template_sources(template)[0].seconds
