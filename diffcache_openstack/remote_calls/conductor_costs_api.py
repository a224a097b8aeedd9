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
"""Client side of the conductor RPC API for schedulers: costs and room.

A separate API, because its callers are not services of the suite: they have
neither its options nor its objects.
"""

import collections.abc

from diffcache_openstack.common import contexts
from diffcache_openstack.remote_calls import remote
from diffcache_openstack.remote_calls import wire


class CostsAPI(remote.OutsideAPI):
    """Client side of the API for what servers cost and find on hosts."""

    NAMESPACE = 'costs'

    @remote.call(remote.ALL, {
        'image_id': wire.ID, 'hosts': wire.HOST_NAMES}, changes=False)
    def build_costs(self, ctxt: contexts.RequestContext, image_id: str,
                    hosts: collections.abc.Sequence[str]) -> dict[str, float]:
        """Return the seconds that bringing an image to each host takes.

        :param hosts: names of hosts, ``[agent] host`` of their agents
        :returns: by host; hosts without a living agent are missing, and so
            are all if the image is not in the catalogue, or was withdrawn
        """

    @remote.call(remote.ALL, {
        'image_id': wire.ID, 'hosts': wire.HOST_NAMES}, changes=False)
    def lazy_costs(self, ctxt: contexts.RequestContext, image_id: str,
                   hosts: collections.abc.Sequence[str]) -> dict[str, float]:
        """Return the seconds that a server waits if it boots lazily.

        Hosts with a boot set of the image wait for what it lacks. Hosts that
        serve no image while it arrives need the whole image, and so do all if
        it is not known what boots read.

        :param hosts: names of hosts, ``[agent] host`` of their agents
        :returns: by host, the same hosts as :meth:`build_costs`
        """

    @remote.call(remote.ALL, {
        'server_id': wire.ID, 'hosts': wire.HOST_NAMES}, changes=False)
    def ssd_room(self, ctxt: contexts.RequestContext, server_id: str,
                 hosts: collections.abc.Sequence[str]) -> dict[str, float]:
        """Return the part of a server's working set that each host can cache.

        It is that of the volumes which the server has in its host's SSD
        cache.

        :param hosts: names of hosts, ``[agent] host`` of their agents
        :returns: from 0 to 1, by host; hosts without an SSD cache that works
            are missing, and so are all if the server has no cached volumes,
            or these gain nothing
        """
