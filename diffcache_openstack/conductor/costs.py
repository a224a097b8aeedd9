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
"""Costs of bringing an image, or what boots read of it, to some hosts.

Each host is given the cost of the route that its agent would choose, found
by the same code.
"""

import collections.abc
import math

from diffcache_openstack.prefetch import boots
from diffcache_openstack.sites import lazy_boots
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views


def seconds(view: views.SiteView, content_id: str,
            hosts: collections.abc.Iterable[str], hops: int
            ) -> dict[str, float]:
    """Compute the seconds that bringing an image to some hosts takes.

    :param hops: patches that may be applied one after another
    :returns: by host; hosts that are dead, unknown, or have no way to come
        to the image are missing
    """
    living = {host.name: host for host in view.compute_hosts() if host.alive}
    found = {}
    for name in hosts:
        if name not in living:
            continue
        cost = routes.Routes(
            view, name, living[name].holdings, hops=hops
        ).cheapest_seconds(content_id)
        if cost < math.inf:
            found[name] = cost
    return found


def lazy_seconds(view: views.SiteView, image: views.ImageRef,
                 whole_seconds: collections.abc.Mapping[str, float],
                 reads: collections.abc.Mapping[str, boots.Reads]
                 ) -> dict[str, float]:
    """Compute the seconds that servers wait if they boot lazily.

    :param whole_seconds: of the whole image, by host
    :param reads: of boots, by host; the others deliver the image whole
    :returns: by host, those of ``whole_seconds``
    """
    return {name: lazy_boots.estimate(
        view, name, image, reads[name], cost).seconds
        if name in reads else cost for name, cost in whole_seconds.items()}
