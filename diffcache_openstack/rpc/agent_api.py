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
"""Client side of the agent RPC API."""

import collections.abc
import dataclasses
import typing

from oslo_config import cfg

from diffcache_openstack.common import contexts
from diffcache_openstack.common import messaging
from diffcache_openstack import objects
from diffcache_openstack.objects import fields
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.remote_calls import wire

# Of one call of create_patch.
MOST_BASES = 64
MOST_SECONDS = 86400.0
# What a host waits for a patch at most, of what the image takes without it.
WAIT_FRACTION = 0.5
# The shortest time that is waited, seconds.
LEAST_WAIT = 1.0

# Of calls in which a whole image may cross the WAN.
_BULK_SECONDS = 7200
# The longest time that a host waits for an image to be added, seconds.
MOST_IMAGE_WAIT = 60.0
# What the answer may take besides.
_ANSWER_SECONDS = 1.0

Share = tuple[str, str, str, int | None, list[str]]


def longest_wait(seconds: float) -> float:
    """Return how long a host waits at most for a patch to be created.

    :param seconds: what the image takes without the patch
    """
    return max(LEAST_WAIT, WAIT_FRACTION * min(seconds, MOST_SECONDS))


@dataclasses.dataclass(frozen=True)
class PatchWanted:
    """A patch that a host requests.

    :param target: content id of an image
    :param bases: content ids of up to MOST_BASES images to choose from
    :param seconds: what the image takes without the patch
    :param mbps: rate at which the patch will be read
    :param wait: seconds after which the host takes the image without it
    """

    target: str
    bases: collections.abc.Sequence[str]
    seconds: float
    mbps: float
    wait: float


def _bulk(conf: cfg.ConfigOpts) -> dict[str, typing.Any]:
    """Wait for bulk work, not for a dead agent."""
    return {'timeout': _BULK_SECONDS,
            'call_monitor_timeout': conf.conductor.rpc_timeout}


class AgentAPI(remote.HostAPI):
    """Client side of the agent RPC API."""

    @remote.cast(remote.CONTROLLER, {
        'generation': wire.COUNT,
        'items': wire.tuples(wire.KIND, wire.HASH, wire.NUMBER),
        'shares': wire.tuples(
            wire.KIND, wire.HASH, wire.LABEL, wire.RATE,
            fields.ListOfStringsField(max_items=1000), nullable=True)})
    def hold(self, ctxt: contexts.RequestContext, host: str, generation: int,
             items: collections.abc.Sequence[tuple[str, str, int]],
             shares: collections.abc.Sequence[Share] = ()) -> None:
        """Send the objects to hold, as a cast.

        :param generation: of the plan; an older plan than the last is ignored
        :param items: (kind, id, priority), smallest priority first. What is
            held and not among them may be evicted
        :param shares: (kind, id, job, rate, windows) of items that a precache
            job limits
        """

    @remote.cast(remote.CONTROLLER, {'generation': wire.COUNT})
    def site_map_changed(self, ctxt: contexts.RequestContext, host: str,
                         generation: int) -> None:
        """Announce a new generation of the site's map, as a cast."""

    @remote.call(remote.CONTROLLER, {
        'image_id': wire.ID, 'output': wire.PATH,
        'mode': fields.StringField('[a-z_]{1,32}', nullable=True)},
        prepare=_bulk)
    def get_image(self, ctxt: contexts.RequestContext, host: str,
                  image_id: str, output: str, mode: str | None = None
                  ) -> objects.Request:
        """Write an image to a path on the host.

        :param output: absolute path; appears complete and verified or not at
            all
        :param mode: overrides the host's ``[agent] serve_mode``
        :raises NotFound: no such image
        :raises RetryableError: no source could deliver
        """

    @remote.call(remote.CONTROLLER, {
        'path': wire.PATH, 'image_id': wire.ID, 'name': wire.LABEL},
        prepare=_bulk)
    def register_image(self, ctxt: contexts.RequestContext, host: str,
                       path: str, image_id: str, name: str
                       ) -> objects.Image:
        """Register an image file with a repository's agent.

        :param path: absolute path on the repository's host
        :raises InvalidInput: the host is no repository, or the path no image
        :raises Conflict: the id is registered with other content
        """

    @remote.method(remote.HOSTS, {
        'target': wire.HASH,
        'bases': fields.ListOfStringsField(fields.HASH_PATTERN, MOST_BASES),
        'seconds': wire.within(0, MOST_SECONDS), 'mbps': wire.MBPS})
    def create_patch(self, ctxt: contexts.RequestContext, host: str,
                     wanted: PatchWanted) -> objects.Patch | None:
        """Have a repository create a patch, if that is worth waiting for.

        :returns: the best patch, registered; None if the image comes sooner
            without one
        :raises Busy: the repository creates no further patch now
        :raises InvalidInput: the host is no repository
        :raises ServiceUnavailable: no answer within the seconds to wait
        """
        return self._waiting(host, wanted.wait).call(
            ctxt, 'create_patch', target=wanted.target,
            bases=list(wanted.bases),
            seconds=min(wanted.seconds, MOST_SECONDS), mbps=wanted.mbps)

    @remote.method(remote.HOSTS, {
        'image_id': wire.ID, 'size': wire.COUNT,
        'mbps': wire.MBPS})
    def await_image(self, ctxt: contexts.RequestContext, host: str,
                    image_id: str, size: int, mbps: float
                    ) -> objects.Image | None:
        """Have a repository serve an image that it is just adding.

        :param size: bytes of the image's file
        :param mbps: rate at which the image will be read
        :returns: the image, which hosts can read; it may not be registered
            yet. None if it is not worth to wait for
        :raises InvalidInput: the host is no repository
        :raises ServiceUnavailable: no answer within MOST_IMAGE_WAIT, or no
            sign of life within ``[conductor] rpc_timeout``
        """
        return self._waiting(host, MOST_IMAGE_WAIT + _ANSWER_SECONDS).call(
            ctxt, 'await_image', image_id=image_id, size=size, mbps=mbps)

    @remote.cast(remote.HOSTS, {
        'kind': wire.KIND, 'object_id': wire.HASH})
    def verify_object(self, ctxt: contexts.RequestContext, host: str,
                      kind: str, object_id: str) -> None:
        """Report an object that arrived damaged from a host, as a cast.

        The host verifies its copy, and drops it if that is damaged.
        """

    @remote.call(remote.HOSTS, {}, changes=False)
    def status(self, ctxt: contexts.RequestContext, host: str) -> dict:
        """Return what the agent is doing, as plain values."""

    def _waiting(self, host: str, seconds: float) -> messaging.Client:
        """Return a client that waits for an answer for this long."""
        return self._client.prepared(
            topic=remote.agent_topic(host), timeout=seconds,
            call_monitor_timeout=min(
                seconds, self._conf.conductor.rpc_timeout))
