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
"""What a plan moves, and what it saves."""

from diffcache_openstack.common import units
from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import replan


def of_plan(instance: instances.Instance, placement: placements.Placement,
            terms: replan.Terms, hops: int) -> dict[str, float]:
    """Compare a placement with what hosts hold.

    :param instance: its ``placed`` is what needs no transfer
    :param hops: patches that may be applied one after another
    :returns: ``objects.PLAN_FIGURES``, in bytes and seconds, savings by day
    """
    change = replan.compare(instance, placement, terms, hops)
    before, after = (
        cost.wan_megabytes(instance, each, hops)
        for each in (replan.current(instance), placement))
    return {
        'move_wan_bytes': float(round(change.wan_mb * units.MB)),
        'move_lan_bytes': float(round(change.peer_mb * units.MB)),
        'cost_wan_bytes': float(round(after * units.MB)),
        'fill_seconds': max(change.fill_s.values(), default=0.0),
        'saved_seconds': change.cost_before_s - change.cost_after_s,
        'saved_wan_bytes': float(round((before - after) * units.MB))}
