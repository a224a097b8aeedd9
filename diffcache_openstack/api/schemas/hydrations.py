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
"""Schemas of hydrations."""

from diffcache_openstack.api.schemas import common
from diffcache_openstack.objects import hydration

_STATE = {'type': 'string', 'enum': list(hydration.STATES)}
_SOURCE = common.closed({
    'url': common.STRING, 'requests': common.COUNT, 'bytes': common.COUNT,
    'failures': common.COUNT})
_HYDRATION = common.closed({
    'server_id': common.STRING, 'project_id': common.TEXT_OR_NULL,
    'image_id': common.STRING, 'host': common.TEXT_OR_NULL, 'state': _STATE,
    'percent': common.NUMBER_OR_NULL, 'chunk': common.COUNT,
    'chunks': common.COUNT, 'present': common.COUNT,
    'remaining_bytes': common.COUNT, 'bytes_fetched': common.COUNT,
    'misses': common.COUNT, 'stall_ms': common.COUNT,
    'mode': {'type': 'string', 'enum': list(hydration.MODES)},
    'paused': common.BOOLEAN, 'deadline_at': common.INSTANT_OR_NULL,
    'expected_at': common.INSTANT_OR_NULL, 'kept': common.BOOLEAN_OR_NULL,
    'rate': common.COUNT_OR_NULL, 'measured_rate': common.NUMBER_OR_NULL,
    'sources': {'type': ['array', 'null'], 'items': _SOURCE},
    'generation': common.COUNT, 'updated_at': common.INSTANT})

LIST_QUERY = common.paged_query({
    'project_id': {'type': 'string', 'minLength': 1, 'maxLength': 255,
                   'description': 'List only images of servers of this '
                                  'project.'},
    'image_id': {'type': 'string', 'minLength': 1, 'maxLength': 128,
                 'description': 'List only entries of this image.'},
    'state': {**_STATE, 'description': 'List only entries in this state.'},
    'host': {**common.NAME, 'description':
             'List only images of servers on this host.'}})
LIST = common.listing('hydrations', _HYDRATION)
SHOW = common.closed({'hydration': _HYDRATION})
_SETTINGS = {
    'deadline': {'type': ['integer', 'null'], 'minimum': 1,
                 'maximum': hydration.LONGEST_DEADLINE, 'description':
                 'Seconds from now until the image must be complete; null '
                 'fetches the rest only while no read is waiting.'},
    'rate': {'type': ['integer', 'null'], 'minimum': 1,
             'maximum': hydration.HIGHEST_RATE, 'description':
             'Maximum bytes per second to fetch in addition to what guests '
             'read; null means no limit.'},
    'paused': {**common.BOOLEAN, 'description':
               'Fetch only what guests read. The deadline and the rate are '
               'kept.'}}
UPDATE = common.closed({'hydration': common.closed(
    {**_SETTINGS, 'generation': {
        **common.COUNT, 'description': 'Generation that the caller has seen;'
        ' if it has changed, the response is 409.'}}, _SETTINGS)})
