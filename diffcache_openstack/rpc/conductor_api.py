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

from oslo_config import cfg
import oslo_messaging

from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import messaging
from diffcache_openstack.common import rpc_history
from diffcache_openstack import objects
from diffcache_openstack.objects import fingerprints

TOPIC = 'diffcache-conductor'
HISTORY = rpc_history.History({
    '1.0': ('register_host', 'report_holdings', 'remove_host',
            'register_template', 'get_template', 'remove_template',
            'register_patch', 'report_requests', 'plan_now',
            'get_plan', 'report_fills', 'get_revoked_keys', 'patch_work',
            'report_sketches', 'report_pairs', 'report_pending_images',
            'update_site_map', 'change_holdings', 'report_borrowed',
            'find_unregistered', 'report_network', 'report_volume_caches'),
})
VERSION = HISTORY.latest

# What a plan takes beside the solver's time limit: reading, writing, and
# waiting for a round that another conductor is in.
PLANNING_SLACK_SECONDS = 60


class ConductorAPI:
    """Client side of the conductor RPC API.

    Every method may be called again after a lost answer: doing something
    twice has the effect of doing it once. All raise ServiceUnavailable if no
    conductor answers.
    """

    def __init__(self, bus: messaging.Bus, conf: cfg.ConfigOpts):
        target = oslo_messaging.Target(topic=TOPIC)
        self._conf = conf
        self._client = bus.client(target, conf.conductor.rpc_timeout,
                                  HISTORY)

    def register_host(self, ctxt: contexts.RequestContext,
                      host: objects.Host) -> objects.Host:
        """Register a host, or renew its registration; counts as heartbeat.

        If ``host.plan_generation`` is not that of the current plan, the plan
        is sent to the host again.
        """
        return self._client.call(ctxt, 'register_host', host=host)

    def report_holdings(self, ctxt: contexts.RequestContext, host: str,
                        holdings: collections.abc.Sequence[objects.Holding]
                        ) -> None:
        """Replace what a host is known to hold; counts as heartbeat.

        :raises NotFound: the host is not registered
        """
        self._client.call(ctxt, 'report_holdings', host=host,
                          holdings=list(holdings))

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
        self._client.call(ctxt, 'change_holdings', host=host,
                          added=list(added), removed=list(removed),
                          count=count, total=total)

    def report_borrowed(self, ctxt: contexts.RequestContext, host: str,
                        holdings: collections.abc.Sequence[objects.Holding]
                        ) -> None:
        """Replace the templates that a host borrows, and does not hold.

        :raises NotFound: the host is not registered
        """
        self._client.call(ctxt, 'report_borrowed', host=host,
                          holdings=list(holdings))

    def report_network(self, ctxt: contexts.RequestContext, host: str,
                       network: objects.HostNetwork) -> None:
        """Replace what a host measured of its links, and how it fills.

        :raises NotFound: the host is not registered
        :raises InvalidInput: a window cannot be parsed, or the conductor is
            older than this method
        """
        self._client.call(ctxt, 'report_network', host=host, network=network)

    def report_fills(self, ctxt: contexts.RequestContext, host: str,
                     fills: collections.abc.Sequence[objects.Fill]) -> None:
        """Replace the progress of a host with its plan.

        :param fills: all that the plan places there and is not held
        :raises NotFound: the host is not registered
        """
        self._client.call(ctxt, 'report_fills', host=host, fills=list(fills))

    def report_pending_images(
            self, ctxt: contexts.RequestContext, host: str,
            images: collections.abc.Sequence[objects.PendingImage]) -> None:
        """Replace the images that a repository does not have yet.

        :raises NotFound: the host is not registered
        """
        self._client.call(ctxt, 'report_pending_images', host=host,
                          images=list(images))

    def report_volume_caches(
            self, ctxt: contexts.RequestContext, host: str,
            cache: objects.SsdCache,
            volumes: collections.abc.Sequence[objects.VolumeCache] | None
            ) -> None:
        """Replace what is known of a host's SSD cache.

        :param volumes: in it; None if the cache does not answer
        :raises NotFound: the host is not registered
        """
        self._client.call(ctxt, 'report_volume_caches', host=host,
                          cache=cache,
                          volumes=None if volumes is None else list(volumes))

    def remove_host(self, ctxt: contexts.RequestContext, host: str) -> None:
        """Delete a host and its records permanently, unless it is alive.

        :raises NotFound: the host is not registered
        :raises Conflict: it is alive, and would be back with its next report
        """
        self._client.call(ctxt, 'remove_host', host=host)

    def register_template(self, ctxt: contexts.RequestContext,
                          template: objects.Template) -> objects.Template:
        """Add a template to the catalogue.

        :raises Conflict: its id is registered with other content
        """
        return self._client.call(ctxt, 'register_template',
                                 template=template)

    def find_unregistered(
            self, ctxt: contexts.RequestContext, host: str,
            templates: collections.abc.Mapping[str, fingerprints.Fingerprint],
            patches: collections.abc.Sequence[objects.Patch]
    ) -> tuple[list[str], list[str]]:
        """Return what a repository has to register.

        :param templates: fingerprints of images by their ids
        :returns: ids of templates that the catalogue has not like that, and
            of patches whose pair has none
        """
        found = self._client.call(
            ctxt, 'find_unregistered', host=host,
            templates=[[name, *hashes] for name, hashes in templates.items()],
            patches=[[patch.id, patch.base, patch.target]
                     for patch in patches])
        return found[0], found[1]

    def get_template(self, ctxt: contexts.RequestContext, template_id: str
                     ) -> objects.Template:
        """Return a template of the catalogue.

        :raises NotFound: there is none with that id
        """
        return self._client.call(ctxt, 'get_template',
                                 template_id=template_id)

    def remove_template(self, ctxt: contexts.RequestContext,
                        template_id: str) -> None:
        """Remove a template and its patches from the catalogue.

        :raises NotFound: there is none with that id
        """
        self._client.call(ctxt, 'remove_template', template_id=template_id)

    def register_patch(self, ctxt: contexts.RequestContext,
                       patch: objects.Patch) -> objects.Patch:
        """Add a patch to the catalogue.

        :returns: the patch that is registered for its pair; another host
            may have registered one before
        :raises NotFound: no template has the content of an end
        """
        return self._client.call(ctxt, 'register_patch', patch=patch)

    def patch_work(self, ctxt: contexts.RequestContext, host: str,
                   terms: str, nearest: int, creations: int
                   ) -> objects.PatchWork:
        """Return what a repository is to do next for its patches.

        A pair to create a patch of is the host's for an hour, or until it
        reports it; until then the host gets it again.

        :param terms: what the host declines patches by; those that it
            declined by other terms are considered again
        :param nearest: bases of each target that patches are created from
        :param creations: patches that the host can create now
        :raises NotFound: the host is not registered
        """
        return self._client.call(ctxt, 'patch_work', host=host, terms=terms,
                                 nearest=nearest, creations=creations)

    def report_sketches(self, ctxt: contexts.RequestContext, host: str,
                        sketches: collections.abc.Sequence[
                            objects.ImageSketch]) -> None:
        """Report sketches of contents; unknown contents are ignored."""
        self._client.call(ctxt, 'report_sketches', host=host,
                          sketches=list(sketches))

    def report_pairs(self, ctxt: contexts.RequestContext, host: str,
                     terms: str,
                     pairs: collections.abc.Sequence[objects.PairReport]
                     ) -> None:
        """Report estimated, declined and failed pairs.

        Unknown pairs are ignored; of a patch that was created,
        :meth:`register_patch` is report enough.
        """
        self._client.call(ctxt, 'report_pairs', host=host, terms=terms,
                          pairs=list(pairs))

    def get_revoked_keys(self, ctxt: contexts.RequestContext, known: int
                         ) -> dict[str, str] | None:
        """Return the signed list of revoked keys, or None if it is known.

        :param known: number of the list that the caller has
        """
        return self._client.call(ctxt, 'get_revoked_keys', known=known)

    def update_site_map(self, ctxt: contexts.RequestContext, site: str,
                        generation: int | None = None
                        ) -> objects.MapChange | objects.SiteMap | None:
        """Return what changed of the map of a site since a generation.

        :returns: the whole map if the difference is not known (any more), or
            without generation; None if the generation is unchanged
        :raises NotFound: no host of the site was ever registered
        """
        return self._client.call(ctxt, 'update_site_map', site=site,
                                 generation=generation)

    def report_requests(self, ctxt: contexts.RequestContext,
                        requests: collections.abc.Sequence[objects.Request]
                        ) -> None:
        """Add requests to the history; known ones are skipped."""
        self._client.call(ctxt, 'report_requests', requests=list(requests))

    def plan_now(self, ctxt: contexts.RequestContext, site: str
                 ) -> objects.Plan:
        """Plan a site and return the plan that is current afterwards.

        :raises NotFound: the site has no living compute host, or the
            catalogue is empty
        :raises Busy: another conductor is planning the site for too long
        """
        timeout = self._conf.planner.time_limit + PLANNING_SLACK_SECONDS
        return self._client.prepared(timeout=timeout).call(
            ctxt, 'plan_now', site=site)

    def get_plan(self, ctxt: contexts.RequestContext, site: str
                 ) -> objects.Plan | None:
        """Return the current plan of a site, or None.

        :raises NotFound: no host of the site was ever registered
        """
        return self._client.call(ctxt, 'get_plan', site=site)
