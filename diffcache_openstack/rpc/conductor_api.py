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
"""Client side of the conductor RPC API."""

import collections.abc

from diffcache_openstack.common import contexts
from diffcache_openstack import objects
from diffcache_openstack.objects import fields
from diffcache_openstack.objects import fingerprints
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.remote_calls import wire

# In the SSD cache of a host; those of all its servers are fewer.
_MOST_VOLUMES = 65_536


class ConductorAPI(remote.API):
    """Client side of the conductor RPC API.

    Every method may be called again after a lost answer: doing something
    twice has the effect of doing it once.
    """

    @remote.call(remote.HOSTS, {'host': fields.ObjectField('Host')},
                 prepare=remote.heartbeat_topic)
    def register_host(self, ctxt: contexts.RequestContext,
                      host: objects.Host) -> objects.HeartbeatAnswer:
        """Register a host, or renew its registration: its heartbeat.

        If ``host.plan_generation`` is not that of the current plan, the plan
        is sent to the host again. What else the host lacks it sees by the
        answer, and fetches.
        """

    @remote.call(remote.CONTROLLER, {}, changes=False,
                 prepare=remote.heartbeat_topic)
    def await_heartbeats(self, ctxt: contexts.RequestContext) -> None:
        """Return when the heartbeats that were sent before are stored."""

    @remote.call(remote.HOSTS, {
        'host': wire.HOST, 'holdings': fields.ListOfObjectsField('Holding')})
    def report_holdings(self, ctxt: contexts.RequestContext, host: str,
                        holdings: collections.abc.Sequence[objects.Holding]
                        ) -> None:
        """Replace what a host is known to hold; counts as heartbeat.

        :raises NotFound: the host is not registered
        """

    @remote.call(remote.HOSTS, {
        'host': wire.HOST, 'added': fields.ListOfObjectsField('Holding'),
        'removed': fields.ListOfObjectsField('Holding'), 'count': wire.COUNT,
        'total': wire.COUNT})
    def change_holdings(self, ctxt: contexts.RequestContext, host: str,
                        added: collections.abc.Sequence[objects.Holding],
                        removed: collections.abc.Sequence[objects.Holding],
                        count: int, total: int) -> None:
        """Change what a host is known to hold; counts as heartbeat.

        :param count: all objects that the host holds now
        :param total: bytes of all of them
        :raises NotFound: the host is not registered
        :raises Conflict: the result is not that; nothing was changed, and all
            holdings have to be reported
        """

    @remote.call(remote.HOSTS, {
        'host': wire.HOST, 'holdings': fields.ListOfObjectsField('Holding')})
    def report_borrowed(self, ctxt: contexts.RequestContext, host: str,
                        holdings: collections.abc.Sequence[objects.Holding]
                        ) -> None:
        """Replace the images that a host borrows, and does not hold.

        :raises NotFound: the host is not registered
        """

    @remote.call(remote.HOSTS, {
        'host': wire.HOST, 'network': fields.ObjectField('HostNetwork')})
    def report_network(self, ctxt: contexts.RequestContext, host: str,
                       network: objects.HostNetwork) -> None:
        """Replace what a host measured of its links, and how it fills.

        :raises NotFound: the host is not registered
        :raises InvalidInput: a window cannot be parsed
        """

    @remote.call(remote.HOSTS, {
        'host': wire.HOST, 'fills': fields.ListOfObjectsField('Fill')})
    def report_fills(self, ctxt: contexts.RequestContext, host: str,
                     fills: collections.abc.Sequence[objects.Fill]) -> None:
        """Replace the progress of a host with its plan.

        :param fills: all that the plan places there and is not held
        :raises NotFound: the host is not registered
        """

    @remote.call(remote.HOSTS, {
        'host': wire.HOST,
        'images': fields.ListOfObjectsField('PendingImage')})
    def report_pending_images(
            self, ctxt: contexts.RequestContext, host: str,
            images: collections.abc.Sequence[objects.PendingImage]) -> None:
        """Replace the images that a repository does not have yet.

        :raises NotFound: the host is not registered
        """

    @remote.call(remote.HOSTS, {
        'host': wire.HOST, 'cache': fields.ObjectField('SsdCache'),
        'volumes': fields.ListOfObjectsField('VolumeCache', _MOST_VOLUMES,
                                             nullable=True)})
    def report_volume_caches(
            self, ctxt: contexts.RequestContext, host: str,
            cache: objects.SsdCache,
            volumes: collections.abc.Sequence[objects.VolumeCache] | None
            ) -> None:
        """Replace what is known of a host's SSD cache.

        :param volumes: in it; None if the cache does not answer
        :raises NotFound: the host is not registered
        """

    @remote.call(remote.CONTROLLER, {'host': wire.HOST})
    def remove_host(self, ctxt: contexts.RequestContext, host: str) -> None:
        """Delete a host and its records permanently, unless it is alive.

        :raises NotFound: the host is not registered
        :raises Conflict: it is alive, and would be back with its next report
        """

    @remote.call(remote.REPOSITORY, {
        'image': fields.ObjectField('Image')})
    def register_image(self, ctxt: contexts.RequestContext,
                       image: objects.Image) -> objects.Image:
        """Add an image to the catalogue.

        :raises Conflict: its id is registered with other content
        """

    @remote.method(remote.REPOSITORY, {
        'host': wire.HOST,
        'images': wire.tuples(wire.ID, wire.HASH, wire.HASH),
        'patches': wire.tuples(wire.HASH, wire.HASH, wire.HASH)},
        changes=False)
    def find_unregistered(
            self, ctxt: contexts.RequestContext, host: str,
            images: collections.abc.Mapping[str, fingerprints.Fingerprint],
            patches: collections.abc.Sequence[objects.Patch]
    ) -> tuple[list[str], list[str]]:
        """Return what a repository has to register.

        :param images: fingerprints of images by their ids
        :returns: ids of images that the catalogue has not like that, and
            of patches whose pair has none
        """
        found = self._client.call(
            ctxt, 'find_unregistered', host=host,
            images=[[name, *hashes] for name, hashes in images.items()],
            patches=[[patch.id, patch.base, patch.target]
                     for patch in patches])
        return found[0], found[1]

    @remote.call(remote.HOSTS, {'image_id': wire.ID}, changes=False)
    def get_image(self, ctxt: contexts.RequestContext, image_id: str
                  ) -> objects.Image:
        """Return an image of the catalogue.

        :raises NotFound: there is none with that id
        """

    @remote.call(remote.CONTROLLER, {'image_id': wire.ID})
    def remove_image(self, ctxt: contexts.RequestContext,
                     image_id: str) -> None:
        """Remove an image and its patches from the catalogue.

        :raises NotFound: there is none with that id
        """

    @remote.call(remote.REPOSITORY, {'patch': fields.ObjectField('Patch')})
    def register_patch(self, ctxt: contexts.RequestContext,
                       patch: objects.Patch) -> objects.Patch:
        """Add a patch to the catalogue.

        :returns: the patch that is registered for its pair; another host
            may have registered one before
        :raises NotFound: no image has the content of an end
        """

    @remote.call(remote.REPOSITORY, {
        'host': wire.HOST, 'terms': wire.TERMS, 'creations': wire.COUNT})
    def patch_work(self, ctxt: contexts.RequestContext, host: str,
                   terms: str, creations: int) -> objects.PatchWork:
        """Return what a repository is to do next for its patches.

        A pair to create a patch of is the host's for an hour, or until it
        reports it; until then the host gets it again.

        :param terms: what the host declines patches by; those that it
            declined by other terms are considered again
        :param creations: patches that the host can create now
        :raises NotFound: the host is not registered
        """

    @remote.call(remote.REPOSITORY, {
        'host': wire.HOST,
        'sketches': fields.ListOfObjectsField('ImageSketch')})
    def report_sketches(self, ctxt: contexts.RequestContext, host: str,
                        sketches: collections.abc.Sequence[
                            objects.ImageSketch]) -> None:
        """Report sketches of contents; unknown contents are ignored."""

    @remote.call(remote.REPOSITORY, {
        'host': wire.HOST, 'terms': wire.TERMS,
        'pairs': fields.ListOfObjectsField('PairReport')})
    def report_pairs(self, ctxt: contexts.RequestContext, host: str,
                     terms: str,
                     pairs: collections.abc.Sequence[objects.PairReport]
                     ) -> None:
        """Report estimated, declined and failed pairs.

        Unknown pairs are ignored; of a patch that was created,
        :meth:`register_patch` is report enough.
        """

    @remote.call(remote.HOSTS, {'known': wire.COUNT}, changes=False)
    def get_revoked_keys(self, ctxt: contexts.RequestContext, known: int
                         ) -> dict[str, str] | None:
        """Return the signed list of revoked keys, or None if it is known.

        :param known: number of the list that the caller has
        """

    @remote.call(remote.HOSTS, {
        'site': wire.SITE, 'generation': wire.GENERATION}, changes=False)
    def update_site_map(self, ctxt: contexts.RequestContext, site: str,
                        generation: int | None = None
                        ) -> objects.MapChange | objects.SiteMap | None:
        """Return what changed of the map of a site since a generation.

        :returns: the whole map if the difference is not known (any more), or
            without generation; None if the generation is unchanged
        :raises NotFound: no host of the site was ever registered
        """

    @remote.call(remote.HOSTS, {
        'requests': fields.ListOfObjectsField('Request')},
        speakers=lambda arguments: {
            request.host for request in arguments['requests']})
    def report_requests(self, ctxt: contexts.RequestContext,
                        requests: collections.abc.Sequence[objects.Request]
                        ) -> None:
        """Add requests to the history; known ones are skipped."""

    @remote.call(remote.CONTROLLER, {'site': wire.SITE},
                 prepare=remote.solver_runs(1))
    def plan_now(self, ctxt: contexts.RequestContext, site: str
                 ) -> objects.Plan:
        """Plan a site and return the plan that is current afterwards.

        :raises NotFound: the site has no living compute host, or the
            catalogue is empty
        :raises Busy: another conductor is planning the site for too long
        """

    @remote.call(remote.HOSTS, {'site': wire.SITE}, changes=False)
    def get_plan(self, ctxt: contexts.RequestContext, site: str
                 ) -> objects.Plan | None:
        """Return the current plan of a site, or None.

        :raises NotFound: no host of the site was ever registered
        """
