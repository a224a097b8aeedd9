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
"""SSD caches of hosts, and the volumes in them."""

import typing

from openstack import resource

from diffcache_openstack.client.resources import base


class VolumeCache(base.Resource):
    """A volume in the SSD cache of the host of its server.

    Sizes and counts are in blocks of 4 KiB.
    """

    label = 'Volume cache'
    resource_key = 'volume_cache'
    resources_key = 'volume_caches'
    base_path = '/volume-caches'
    _query_mapping = base.query('server_id', 'project_id', 'mode', 'host')

    server_id = resource.Body('server_id')
    project_id = resource.Body('project_id')
    host = resource.Body('host')
    #: write-through, write-back, write-around or pass-through.
    mode = resource.Body('mode')
    #: ok, or pass-through while the cache's device does not work.
    state = resource.Body('state')
    #: Size of its partition.
    limit = resource.Body('limit', type=int)
    #: Blocks that are cached.
    blocks = resource.Body('blocks', type=int)
    #: Blocks that the volume itself lacks.
    dirty = resource.Body('dirty', type=int)
    reads = resource.Body('reads', type=int)
    writes = resource.Body('writes', type=int)
    hits = resource.Body('hits', type=int)
    misses = resource.Body('misses', type=int)
    evictions = resource.Body('evictions', type=int)
    bypassed = resource.Body('bypassed', type=int)
    min = resource.Body('min', type=int)
    max = resource.Body('max', type=int)
    weight = resource.Body('weight', type=float)
    priority = resource.Body('priority', type=float)
    sla = resource.Body('sla')
    #: A block is cached at this reference to it; None: as the host has it.
    admission = resource.Body('admission', type=int)
    #: What its storage lost, for which its flushes fail: OFFSET+LENGTH.
    losses = resource.Body('losses', type=list)
    #: How its server reaches it: nbd or vhost-user.
    guest_path = resource.Body('guest_path')
    #: Why it is nbd.
    guest_path_reason = resource.Body('guest_path_reason')
    #: What it may do per second, such as total_iops_sec=500.
    rates = resource.Body('rates', type=list)
    generation = resource.Body('generation', type=int)
    #: Why its partition has this size.
    explain = resource.Body('explain', type=list)
    updated_at = resource.Body('updated_at')

    def follow(self, session: typing.Any, specs: dict[str, str]
               ) -> 'VolumeCache':
        """Have it follow the QoS specs of its type."""
        response = session.put(
            f'{self.base_path}/{self.id}/specs',
            json={'volume_cache': {'specs': specs}},
            microversion=self.microversion_of(session))
        self._translate_response(response)
        return self


class SsdCache(base.Resource):
    """The SSD cache of a host."""

    label = 'SSD cache of host'
    resource_key = 'ssd_cache'
    resources_key = 'ssd_caches'
    base_path = '/ssd-caches'

    host = resource.Body('host', alternate_id=True)
    #: ok, failed or unreachable.
    state = resource.Body('state')
    #: In blocks of 4 KiB.
    capacity = resource.Body('capacity', type=int)
    policy = resource.Body('policy')
    #: Seconds.
    epoch = resource.Body('epoch', type=int)
    #: Their number.
    volumes = resource.Body('volumes', type=int)
    #: About sizes, the latest first.
    decisions = resource.Body('decisions', type=list)
    updated_at = resource.Body('updated_at')
