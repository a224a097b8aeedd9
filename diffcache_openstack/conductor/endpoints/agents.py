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
"""RPC endpoint for agents, and for tools of operators.

All state is in the database, so that any conductor can answer any call, and a
call that is repeated does no harm.
"""

from oslo_log import log
import oslo_messaging

from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import revocations
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.conductor import agent_notifier
from diffcache_openstack.conductor import volume_caches
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import engine
from diffcache_openstack.db.patches import pairs as patch_pairs
from diffcache_openstack.db.patches import sketches as image_sketches
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db import senders
from diffcache_openstack.db.sites import fills as fill_reports
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.sites import networks
from diffcache_openstack.db.sites import pending_images
from diffcache_openstack import objects
from diffcache_openstack.objects import fingerprints
from diffcache_openstack.objects import versioned
from diffcache_openstack.planning import planners
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.sites import maps as maps

LOG = log.getLogger(__name__)


class ConductorManager:
    """The RPC endpoint; :class:`.conductor_api.ConductorAPI` is the contract.

    :param database: the conductor's
    :param site_maps: makes maps of sites
    :param site_planner: computes plans
    :param notifier: sends plans to agents
    :param security: verifies records of images, and signs lists of revoked
        keys
    :param volumes: stores reports of SSD caches
    """

    target = conductor_api.ConductorAPI.target()

    def __init__(self, database: engine.Database, site_maps: maps.Maps,
                 site_planner: planners.Planner,
                 notifier: agent_notifier.Notifier,
                 security: signatures.Security,
                 volumes: volume_caches.VolumeCaches):
        self._database = database
        self._records = image_records.Verifier(security)
        self._volumes = volumes
        self._key = security.key
        self._maps = site_maps
        self._planner = site_planner
        self._notifier = notifier

    @oslo_messaging.expose
    def report_holdings(self, ctxt: contexts.RequestContext, host: str,
                        holdings: list) -> None:
        """Replace the list of objects that a host holds."""
        self._notifier.maps_changed(self._database.write(
            held_rows.put_holdings, host, holdings, versioned.now()))

    @oslo_messaging.expose
    def change_holdings(self, ctxt: contexts.RequestContext, host: str,
                        added: list, removed: list, count: int, total: int
                        ) -> None:
        """Change the list of objects that a host holds.

        :raises Conflict: the result is not what the host has
        """
        self._notifier.maps_changed(self._database.write(
            held_rows.change_holdings, host,
            held_rows.HoldingsDelta(added, removed, count, total),
            versioned.now()))

    @oslo_messaging.expose
    def report_borrowed(self, ctxt: contexts.RequestContext, host: str,
                        holdings: list) -> None:
        """Replace the list of images that a host borrows."""
        self._notifier.maps_changed(self._database.write(
            held_rows.put_borrowed, host, holdings))

    @oslo_messaging.expose
    def report_network(self, ctxt: contexts.RequestContext, host: str,
                       network: objects.HostNetwork) -> None:
        """Replace what a host measured of its links, and how it fills."""
        def write(session):
            if networks.put(session, host, network) \
                    and self._maps.show_measured():
                return host_rows.raise_generation_of(session, host)
            return set()

        self._notifier.maps_changed(self._database.write(write))

    @oslo_messaging.expose
    def report_fills(self, ctxt: contexts.RequestContext, host: str,
                     fills: list) -> None:
        """Replace the state of the fills of a host."""
        self._database.write(fill_reports.put, host, fills)

    @oslo_messaging.expose
    def report_pending_images(self, ctxt: contexts.RequestContext, host: str,
                              images: list) -> None:
        """Replace the images that a repository does not have yet."""
        self._database.write(pending_images.put, host, images)

    @oslo_messaging.expose
    def report_volume_caches(self, ctxt: contexts.RequestContext, host: str,
                             cache: objects.SsdCache, volumes: list | None
                             ) -> None:
        """Replace what is known of a host's SSD cache."""
        self._volumes.put(host, cache, volumes)

    @oslo_messaging.expose
    def remove_host(self, ctxt: contexts.RequestContext, host: str) -> None:
        """Remove a host that is not alive."""
        self._notifier.maps_changed(
            self._database.write(host_rows.remove_dead_host, host))
        LOG.info('Host %s removed', host)

    @oslo_messaging.expose
    def register_image(self, ctxt: contexts.RequestContext,
                       image: objects.Image) -> dict:
        """Add an image to the catalogue.

        If another repository has registered it before, that one's record
        stays as long as it is valid.

        :returns: the image in the version that the caller knows
        :raises Forbidden: no repository vouches for it
        :raises Conflict: it was registered with another content or file
        """
        version = image.VERSION
        self._records.check(image)
        known, changed = self._database.write(
            catalogue.put_image, image, versioned.now(),
            self._keeps_record)
        self._notifier.maps_changed(changed)
        return known.obj_to_primitive(target_version=version)

    def _keeps_record(self, session, known, given):
        """Return whether another repository vouches for a known image."""
        later = self._records.check(given)
        return self._is_vouched_for(session, known, later and later.name)

    def _is_vouched_for(self, session, known, host):
        """Return whether another repository than a host vouches for it."""
        try:
            earlier = self._records.check(known)
            if earlier is None:
                return False
            senders.check_key(session, earlier)
        except exceptions.Forbidden as error:
            LOG.info('Replacing the record of image %s: %s', known.id, error)
            return False
        return earlier.name != host

    @oslo_messaging.expose
    def find_unregistered(self, ctxt: contexts.RequestContext, host: str,
                          images: list, patches: list) -> list:
        """Return ids of images and of patches that are to be registered."""
        wanted = {name: fingerprints.Fingerprint(*hashes)
                  for name, *hashes in images}
        pairs = [objects.Patch(id=patch_id, base=source, target=target)
                 for patch_id, source, target in patches]

        def find(session):
            return [
                catalogue.find_unregistered_images(
                    session, wanted, lambda session, known:
                    self._is_vouched_for(session, known, host)),
                catalogue.find_unregistered_patches(session, pairs)]

        return self._database.read(find)

    @oslo_messaging.expose
    def get_image(self, ctxt: contexts.RequestContext, image_id: str
                  ) -> objects.Image:
        """Return an image of the catalogue."""
        return self._database.read(catalogue.get_image, image_id)

    @oslo_messaging.expose
    def remove_image(self, ctxt: contexts.RequestContext,
                     image_id: str) -> None:
        """Remove an image from the catalogue."""
        self._notifier.maps_changed(
            self._database.write(catalogue.remove_image, image_id))
        LOG.info('Image %s removed', image_id)

    @oslo_messaging.expose
    def register_patch(self, ctxt: contexts.RequestContext,
                       patch: objects.Patch) -> objects.Patch:
        """Add a patch to the catalogue."""
        known, changed = self._database.write(
            catalogue.put_patch, patch, versioned.now())
        self._notifier.maps_changed(changed)
        return known

    @oslo_messaging.expose
    def patch_work(self, ctxt: contexts.RequestContext, host: str,
                   terms: str, creations: int) -> objects.PatchWork:
        """Return what a repository is to do next for its patches."""
        return self._database.write(
            patch_pairs.work, patch_pairs.Worker(host, terms, creations),
            versioned.now())

    @oslo_messaging.expose
    def report_sketches(self, ctxt: contexts.RequestContext, host: str,
                        sketches: list) -> None:
        """Store sketches of contents."""
        self._database.write(image_sketches.put_sketches, sketches,
                             versioned.now())

    @oslo_messaging.expose
    def report_pairs(self, ctxt: contexts.RequestContext, host: str,
                     terms: str, pairs: list) -> None:
        """Store what a repository found about pairs."""
        self._database.write(patch_pairs.report, host, terms, pairs,
                             versioned.now())

    @oslo_messaging.expose
    def get_revoked_keys(self, ctxt: contexts.RequestContext, known: int
                         ) -> dict | None:
        """Return the list of revoked keys, unless the caller has it."""
        if self._key is None:
            return None
        found = self._database.read(senders.newer_list, known)
        return found and revocations.sign(self._key, found)

    @oslo_messaging.expose
    def update_site_map(self, ctxt: contexts.RequestContext, site: str,
                        generation: int | None = None
                        ) -> objects.MapChange | objects.SiteMap | None:
        """Return what changed of a site's map, or the whole map."""
        return self._maps.update(site, generation)

    @oslo_messaging.expose
    def report_requests(self, ctxt: contexts.RequestContext, requests: list
                        ) -> None:
        """Add requests to the history.

        :raises NotFound: their host is not registered
        :raises Forbidden: they are of those that Nova and Glance notify of
        """
        self._database.write(history.put_requests, requests)

    @oslo_messaging.expose
    def plan_now(self, ctxt: contexts.RequestContext, site: str
                 ) -> objects.Plan:
        """Plan a site."""
        plan = self._planner.plan(
            site, wait_seconds=remote.PLANNING_SLACK_SECONDS / 2)
        self._notifier.send_plan(plan)
        return plan

    @oslo_messaging.expose
    def get_plan(self, ctxt: contexts.RequestContext, site: str
                 ) -> objects.Plan | None:
        """Return the current plan of a site."""
        return self._database.read(plans.current_plan, site)
