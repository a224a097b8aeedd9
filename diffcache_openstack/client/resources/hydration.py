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
"""Hydrations: how far images are that servers run from."""


from openstack import resource

from diffcache_openstack.client.resources import base


class Hydration(base.Resource):
    """How far the image is that a server runs from while it arrives."""

    label = 'Hydration'
    resource_key = 'hydration'
    resources_key = 'hydrations'
    base_path = '/hydrations'
    _query_mapping = base.query('project_id', 'image_id', 'state', 'host')

    server_id = resource.Body('server_id', alternate_id=True)
    project_id = resource.Body('project_id')
    image_id = resource.Body('image_id')
    #: None for callers who are not operators.
    host = resource.Body('host')
    #: arriving, complete or unknown.
    state = resource.Body('state')
    percent = resource.Body('percent', type=float)
    #: Bytes of a chunk.
    chunk = resource.Body('chunk', type=int)
    #: That are not all zeros.
    chunks = resource.Body('chunks', type=int)
    #: Those of them that are on the host.
    present = resource.Body('present', type=int)
    remaining_bytes = resource.Body('remaining_bytes', type=int)
    bytes_fetched = resource.Body('bytes_fetched', type=int)
    #: Reads of chunks that were neither there nor on their way.
    misses = resource.Body('misses', type=int)
    stall_ms = resource.Body('stall_ms', type=int)
    #: none, idle or deadline.
    mode = resource.Body('mode')
    is_paused = resource.Body('paused', type=bool)
    deadline_at = resource.Body('deadline_at')
    expected_at = resource.Body('expected_at')
    #: Whether the deadline can be kept; None without one.
    is_kept = resource.Body('kept', type=bool)
    #: Bytes per second at most; None for no limit.
    rate = resource.Body('rate', type=int)
    measured_rate = resource.Body('measured_rate', type=float)
    #: None for callers who are not operators.
    sources = resource.Body('sources', type=list)
    generation = resource.Body('generation', type=int)
    updated_at = resource.Body('updated_at')
