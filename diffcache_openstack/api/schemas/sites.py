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
"""Schemas of sites."""

from diffcache_openstack.api.schemas import common

_SITE = common.closed({
    'name': common.SITE, 'map_generation': common.COUNT,
    'plan_generation': common.COUNT, 'planned_at': common.INSTANT_OR_NULL,
    'hosts': common.closed({'count': common.COUNT, 'alive': common.COUNT,
                            'capacity': common.COUNT})})
_HELD = common.closed({'objects': common.COUNT, 'bytes': common.COUNT})
_WAY = common.closed({
    'way': common.STRING, 'requests': common.COUNT, 'failed': common.COUNT,
    'mean_s': common.NUMBER_OR_NULL, 'longest_s': common.NUMBER_OR_NULL,
    'wan_bytes': common.COUNT, 'lan_bytes': common.COUNT})
_PLAN = {**common.closed({
    'id': common.UUID, 'generation': common.COUNT, 'cost_s': common.NUMBER,
    'lower_bound_s': common.NUMBER, 'proved_optimal': common.BOOLEAN,
    'created_at': common.INSTANT, 'objects': common.COUNT,
    'bytes': common.COUNT, 'held_objects': common.COUNT,
    'held_bytes': common.COUNT}), 'type': ['object', 'null']}

LIST_QUERY = common.paged_query({})
LIST = common.listing('sites', _SITE)

REPORT_QUERY = common.query({
    'days': {'type': 'integer', 'minimum': 1, 'maximum': 3650, 'description':
             'Number of days whose requests are counted (default: 7).'}})
REPORT = common.closed({'report': common.closed({
    'site': _SITE, 'since': common.INSTANT, 'plan': _PLAN,
    'held': {'type': 'object', 'additionalProperties': _HELD},
    'requests': {'type': 'array', 'items': _WAY},
    'whole_bytes': common.COUNT, 'wan_bytes': common.COUNT,
    'repository_mbps': common.closed({
        'assumed': common.NUMBER_OR_NULL,
        'measured': common.NUMBER_OR_NULL})})})
