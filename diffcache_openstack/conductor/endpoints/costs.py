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
"""RPC endpoint for schedulers: costs of images, and room for volumes."""

from oslo_config import cfg
import oslo_messaging

from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor import costs
from diffcache_openstack.db import engine
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db import volume_caches
from diffcache_openstack.objects import versioned
from diffcache_openstack.remote_calls import conductor_costs_api
from diffcache_openstack.sites import maps as maps
from diffcache_openstack.ssdcache import room


class CostsManager:
    """The endpoint; :class:`.conductor_costs_api.CostsAPI` is the contract.

    :param database: the conductor's
    :param site_maps: makes maps of sites
    """

    target = conductor_costs_api.CostsAPI.target()

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database,
                 site_maps: maps.Maps) -> None:
        self._conf = conf
        self._database = database
        self._maps = site_maps

    @oslo_messaging.expose
    def build_costs(self, ctxt: contexts.RequestContext, image_id: str,
                    hosts: list) -> dict[str, float]:
        """Return the seconds that an image takes to come to hosts, by host."""
        found = {}
        for _site, view, image, names in self._sites(image_id, hosts):
            found.update(self._seconds(view, image, names))
        return found

    @oslo_messaging.expose
    def lazy_costs(self, ctxt: contexts.RequestContext, image_id: str,
                   hosts: list) -> dict[str, float]:
        """Return the seconds that lazy boots wait at hosts, by host."""
        found = {}
        for site, view, image, names in self._sites(image_id, hosts):
            content = boot_sets.BootContent(
                image.content_id, image.size, self._conf.lazy.threshold)
            reads = self._database.read(boot_sets.reads, site, content,
                                        versioned.now())
            found.update(costs.lazy_seconds(
                view, image, self._seconds(view, image, names), reads))
        return found

    def _sites(self, image_id, hosts):
        """Return name, view, image and hosts of each site of some hosts.

        :returns: nothing if the image is unknown, or was withdrawn
        """
        found = []
        for site, names in self._database.read(host_rows.by_site,
                                               set(hosts)).items():
            view = self._maps.view(site)
            try:
                found.append((site, view, view.image(image_id), names))
            except exceptions.NotFound:
                return []
        return found

    def _seconds(self, view, image, names):
        return costs.seconds(view, image.content_id, names,
                             self._conf.planner.hops)

    @oslo_messaging.expose
    def ssd_room(self, ctxt: contexts.RequestContext, server_id: str,
                 hosts: list) -> dict[str, float]:
        """Return the part of a server's working set that hosts can cache."""
        needed = self._database.read(volume_caches.working_set_of, server_id)
        if not needed:
            return {}
        asked = set(hosts)
        return {host: room.share(demand.capacity, demand.working_sets, needed)
                for host, demand in self._database.read(
                    volume_caches.demands, server_id).items()
                if host in asked}
