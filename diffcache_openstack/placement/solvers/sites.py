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
"""Sites share only the repository, so each is solved by itself."""

import collections.abc
import dataclasses

from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import solving


def solve_each(instance: instances.Instance, options: solving.Options,
               solve_site: collections.abc.Callable) -> solving.Solution:
    """Solve every site with ``solve_site(instance, options)`` and join.

    The time limit is shared out evenly over the sites still to come, so
    that time one site did not need goes to the next.
    """
    clock = solving.Clock(options)
    groups = instance.site_hosts()
    parts = []
    for n, columns in enumerate(groups):
        limit = clock.left
        if limit is not None:
            limit /= len(groups) - n
        site = instance.only_hosts(columns) if len(groups) > 1 else instance
        solution = solve_site(site,
                              dataclasses.replace(options, time_limit=limit))
        parts.append((columns, solution))
    return solving.Solution(
        placement=_join([(c, s.placement) for c, s in parts]),
        cost_s=sum(s.cost_s for _, s in parts),
        lower_bound_s=sum(s.lower_bound_s for _, s in parts),
        proved_optimal=all(s.proved_optimal for _, s in parts),
        seconds=clock.seconds,
    )


def _join(parts) -> placements.Placement:
    templates, patches = [], []
    for columns, placement in parts:
        templates += [(i, int(columns[h - 1]) + 1) for i,
                      h in placement.templates]
        patches += [(i, j, int(columns[h - 1]) + 1) for i, j,
                    h in placement.patches]
    return placements.Placement.of(templates, patches)
