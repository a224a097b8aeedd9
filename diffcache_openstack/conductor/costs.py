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
"""What bringing an image to each of some hosts would cost.

Each host is given the cost of the way that its agent would choose, by the
same code. All peers of a host are equally near, so whichever of them holds an
object, the cost is the same: hosts that hold the same of what matters cost
the same, and are looked at once.
"""

import collections
import collections.abc
import dataclasses

from oslo_config import cfg
import oslo_messaging

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.conductor import site_maps as maps
from diffcache_openstack.db import engine
from diffcache_openstack.db import sites
from diffcache_openstack.objects import site as site_objects
from diffcache_openstack.rpc import conductor_costs_api
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import view as views

_OWN = 'own'
_PEER = 'peer'


class CostsManager:
    """The RPC endpoint; :class:`.costs_rpcapi.CostsAPI` is the contract."""

    target = oslo_messaging.Target(namespace=conductor_costs_api.NAMESPACE,
                                   version=conductor_costs_api.VERSION)

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database,
                 site_maps: maps.Maps) -> None:
        self._conf = conf
        self._database = database
        self._views = maps.Views(site_maps)

    @messaging.exposed
    def build_costs(self, ctxt: contexts.RequestContext, image_id: str,
                    hosts: list) -> dict[str, float]:
        """Seconds by host."""
        asked = set(hosts)
        by_site = collections.defaultdict(list)
        for host in self._database.read(sites.list_hosts):
            if host.name in asked:
                by_site[host.site].append(host.name)
        found = {}
        for site, names in by_site.items():
            view = self._views.get(site)
            try:
                content_id = view.template(image_id).content_id
            except exceptions.NotFound:
                return {}
            found.update(seconds(view, content_id, names,
                                 self._conf.planner.hops))
        return found


def seconds(view: views.SiteView, content_id: str,
            hosts: collections.abc.Iterable[str], hops: int
            ) -> dict[str, float]:
    """Seconds that bringing a template to each of some hosts takes.

    :param hops: patches that may be applied one after another
    :returns: by host; hosts that are dead, unknown, or have no way to come
        to the template are missing
    """
    part = _around(view, content_id, hops)
    living = {host.name: host for host in part.compute_hosts() if host.alive}
    holders = collections.Counter(
        key for host in living.values() for key in host.holdings)
    known: dict[tuple, float | None] = {}
    found = {}
    for name in hosts:
        if name not in living:
            continue
        own = living[name].holdings
        peers = frozenset(key for key, count in holders.items()
                          if count > (key in own))
        if (own, peers) not in known:
            known[own, peers] = _cheapest(part, content_id, own, peers, hops)
        cost = known[own, peers]
        if cost is not None:
            found[name] = cost
    return found


def _around(view, content_id, hops):
    """The part of a view that ways to a template can be about."""
    patches, reached, latest = [], {content_id}, [content_id]
    for _ in range(hops):
        found = [patch for target in latest
                 for patch in view.patches_into.get(target, ())]
        patches += found
        latest = sorted({patch.base for patch in found} - reached)
        reached.update(latest)
    keys = frozenset(
        [views.Key(views.TEMPLATES, content) for content in reached]
        + [views.Key(views.PATCHES, patch.id) for patch in patches])
    return dataclasses.replace(
        view, patches=tuple(patches),
        templates=tuple(template for template in view.templates
                        if template.content_id in reached),
        hosts=tuple(dataclasses.replace(host, holdings=host.holdings & keys)
                    for host in view.hosts))


def _cheapest(part, content_id, own, peers, hops):
    """Seconds to come to a template, or None if there is no way."""
    hosts = [views.HostRef(_OWN, site_objects.COMPUTE, '', True, own),
             views.HostRef(_PEER, site_objects.COMPUTE, '', True, peers)]
    repository = part.repository()
    if repository is not None:
        hosts.append(repository)
    around = dataclasses.replace(part, hosts=tuple(hosts))
    ways = routes.Routes(around, _OWN, own, hops=hops).to_template(content_id)
    return ways[0].seconds if ways else None
