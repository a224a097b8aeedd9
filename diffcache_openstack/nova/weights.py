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
"""Scheduler weighers: for images that are cheap, and for room on SSDs.

``[filter_scheduler] weight_classes`` in nova.conf takes them beside Nova's
own.
"""

import os
import typing

from oslo_log import log
from oslo_utils import strutils

from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.nova import boot_modes
from diffcache_openstack.nova import costs
from diffcache_openstack.nova import options
from diffcache_openstack.objects import versioned
from diffcache_openstack.remote_calls import conductor_costs_api
import nova.conf
from nova.scheduler import utils as scheduler_utils
from nova.scheduler import weights

LOG = log.getLogger(__name__)
CONF = nova.conf.CONF
options.register_scheduler_opts(CONF)

MULTIPLIER = 'build_cost_weight_multiplier'
ROOM_MULTIPLIER = 'ssd_room_weight_multiplier'
PREFER_HINT = 'diffcache:prefer_cached'
# Savings count in proportion to the dearest host's cost, or to this if that
# is less: it does not matter which of two hosts is ready in half a second. Who
# gives the hint has decided that a cached image matters, however small it is.
_NOTICEABLE_SECONDS = 10.0
_ANY_SECONDS = 0.0
# Answers are used again for some seconds, and a conductor that did not answer
# is not called for some, so that it costs a burst of servers one wait.
_LIFETIME_SECONDS = 10.0
_RETRY_SECONDS = 30.0


# Numbers by host, of an image or a server on some hosts; see costs.Ask.
Method = typing.Callable[
    [conductor_costs_api.CostsAPI, contexts.RequestContext, str, list[str]],
    dict[str, float]]


def lazy_costs(api: conductor_costs_api.CostsAPI,
               ctxt: contexts.RequestContext, image_id: str, hosts: list[str]
               ) -> dict[str, float]:
    """Return the seconds that a lazy boot waits at hosts.

    :returns: those of the whole image if the conductor is of an earlier
        release, as during an upgrade
    """
    try:
        return api.lazy_costs(ctxt, image_id, hosts)
    except exceptions.InvalidInput as error:
        LOG.info('Weighing hosts for a lazy boot of image %s by the cost of'
                 ' the whole image, as the conductor does not know costs of'
                 ' lazy boots; upgrade it: %s', image_id, error)
        return api.build_costs(ctxt, image_id, hosts)


class _AskingWeigher(weights.BaseHostWeigher):
    """Weighs hosts by what the conductor says of all of them at once.

    Subclasses set ``multiplier``, an option and key of aggregates' metadata,
    ``subject``, which the log names, and ``method``, a function of this
    module that calls the conductor.
    """

    multiplier: str
    subject: str
    method: Method
    # Together they keep Nova from normalizing the weights again.
    minval = 0.0
    maxval = 1.0

    def __init__(self) -> None:
        self._costs: dict[Method, costs.Costs] = {}
        self._process: int | None = None

    def weight_multiplier(self, host_state: typing.Any) -> float:
        """Return the option, or the value of the host's aggregate."""
        return scheduler_utils.get_weight_multiplier(
            host_state, self.multiplier,
            getattr(CONF.diffcache, self.multiplier))

    def _weigh_object(self, obj, weight_properties):
        # Nova has hosts weighed together; alone, one is its own comparison.
        [weight] = self.weigh_objects([weights.WeighedHost(obj, 0.0)],
                                      weight_properties)
        return weight

    def _wanted(self, weighed_obj_list):
        return any(self.weight_multiplier(weighed.obj)
                   for weighed in weighed_obj_list)

    def _costs_here(self, method):
        # Connections and threads do not survive the fork of a worker.
        if self._process != os.getpid():
            self._costs = {}
            self._process = os.getpid()
        if method not in self._costs:
            self._costs[method] = _costs(method, self.subject)
        return self._costs[method]


class BuildCostWeigher(_AskingWeigher):
    """Weighs hosts by the part of the image's cost that they save.

    It is what the whole image takes, or, for a server that boots lazily, what
    its boot reads of it.

    A host that would need all of what the dearest candidate needs gets 0, one
    that has the image gets 1. Costs are not stretched to that range, as Nova
    does with other weights: what saves one second of a hundred is not worth
    as much as what saves 99.
    """

    multiplier = MULTIPLIER
    subject = 'costs of images'
    method = staticmethod(conductor_costs_api.CostsAPI.build_costs)

    def weigh_objects(self, weighed_obj_list: list,
                      weight_properties: typing.Any) -> list[float]:
        """Weigh all candidates with one call to the conductor.

        For servers that insist on a cached image they reach beyond 1.
        """
        hosts = [weighed.obj.host for weighed in weighed_obj_list]
        image_id = _image_id(weight_properties)
        if image_id is None or not self._wanted(weighed_obj_list):
            return [0.0] * len(hosts)
        method = (lazy_costs if _boots_lazily(weight_properties)
                  else self.method)
        seconds = self._costs_here(method).of(image_id, sorted(set(hosts)))
        if not _insists(weight_properties):
            return savings(hosts, seconds, _NOTICEABLE_SECONDS)
        factor = CONF.diffcache.prefer_cached_factor
        return [factor * saved
                for saved in savings(hosts, seconds, _ANY_SECONDS)]


class SsdRoomWeigher(_AskingWeigher):
    """Weighs hosts by the room of their SSD caches for a server's volumes.

    A request names no volumes, so this is for servers whose volumes are in the
    SSD cache of their present host. A host gets the part of their working sets
    that its cache can hold, from 0 to 1, and one without a cache 0.
    """

    multiplier = ROOM_MULTIPLIER
    subject = 'room in SSD caches'
    method = staticmethod(conductor_costs_api.CostsAPI.ssd_room)

    def weigh_objects(self, weighed_obj_list: list,
                      weight_properties: typing.Any) -> list[float]:
        """Weigh all candidates with one call to the conductor."""
        hosts = [weighed.obj.host for weighed in weighed_obj_list]
        server_id = weight_properties and _value(weight_properties,
                                                 'instance_uuid')
        if not server_id or not self._wanted(weighed_obj_list):
            return [0.0] * len(hosts)
        room = self._costs_here(self.method).of(
            server_id, sorted(set(hosts)))
        return [room.get(host, 0.0) for host in hosts]


def savings(hosts: list[str], seconds: dict[str, float],
            noticeable_seconds: float) -> list[float]:
    """Compute weights from 0 to 1 of some hosts.

    :param seconds: costs by host; hosts without count as the dearest
    :param noticeable_seconds: savings of less count in proportion to this
    """
    dearest = max(seconds.values(), default=0.0)
    scale = max(dearest, noticeable_seconds)
    if not scale:
        return [0.0] * len(hosts)
    return [(dearest - seconds.get(host, dearest)) / scale for host in hosts]


def _image_id(request_spec):
    """Return the image of a server's disk; None if there is none.

    A server whose disk is a volume has an image at most to describe it.
    """
    if request_spec is None or _value(request_spec, 'is_bfv'):
        return None
    image = _value(request_spec, 'image')
    return _value(image, 'id') if image else None


def _value(record, field):
    """Return a field of one of Nova's objects; None if it was never set."""
    if not record.obj_attr_is_set(field):
        return None
    return getattr(record, field)


def _insists(request_spec):
    hint = request_spec.get_scheduler_hint(PREFER_HINT)
    return hint is not None and strutils.bool_from_string(hint)


def _boots_lazily(request_spec):
    """Return whether a server boots lazily, as far as the scheduler knows.

    It does not get the server's metadata, nor properties of images that Nova
    does not know.
    """
    hint = request_spec.get_scheduler_hint(boot_modes.KEY)
    flavor = _value(request_spec, 'flavor')
    extra_specs = flavor and _value(flavor, 'extra_specs') or {}
    for value in (hint, extra_specs.get(boot_modes.KEY)):
        if value in options.BOOT_MODES:
            return value == options.LAZY
    return CONF.diffcache.boot_mode == options.LAZY


def _costs(method: Method, subject: str) -> costs.Costs:
    group = CONF.diffcache
    ctxt = contexts.RequestContext.for_service('nova-scheduler')
    api: conductor_costs_api.CostsAPI | None = None

    def ask(key: str, hosts: list[str]) -> dict[str, float]:
        nonlocal api
        if api is None:
            bus = messaging.Bus(CONF, versioned.Serializer(),
                                url=group.transport_url)
            api = conductor_costs_api.CostsAPI(bus, group.cost_timeout,
                                               group.control_exchange)
        return method(api, ctxt, key, hosts)

    return costs.Costs(ask, group.cost_timeout, _LIFETIME_SECONDS,
                       _RETRY_SECONDS, subject)
