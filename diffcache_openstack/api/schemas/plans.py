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
"""Schemas of plans."""

from diffcache_openstack.api.schemas import common

_STATE = {'type': 'string', 'enum': [
    'computing', 'proposed', 'failed', 'cancelled', 'current', 'superseded']}
_KIND = {'type': 'string', 'enum': ['images', 'patches', 'manifests',
                                    'recipes']}
_PLAN = {
    'id': common.UUID, 'site': common.SITE, 'state': _STATE,
    'generation': {'type': ['integer', 'null'], 'minimum': 0},
    'base_generation': common.COUNT, 'solver': common.STRING,
    'cost_s': common.NUMBER_OR_NULL, 'lower_bound_s': common.NUMBER_OR_NULL,
    'gap': common.NUMBER_OR_NULL, 'proved_optimal': common.BOOLEAN,
    'solver_seconds': common.NUMBER, 'created_at': common.INSTANT,
    'changes': {'type': 'object'}, 'error': common.TEXT_OR_NULL,
    'move_wan_bytes': common.COUNT_OR_NULL,
    'move_lan_bytes': common.COUNT_OR_NULL,
    'fill_seconds': common.NUMBER_OR_NULL,
    'saved_seconds': common.NUMBER_OR_NULL,
    'saved_wan_bytes': {'type': ['integer', 'null']},
    'cost_wan_bytes': common.COUNT_OR_NULL,
    'objective': {'type': ['string', 'null'],
                  'enum': ['seconds', 'wan_bytes', None]}}
_ITEM = common.closed({
    'host': common.NAME, 'kind': _KIND, 'id': common.HASH,
    'bytes': common.COUNT, 'priority': common.COUNT,
    'saved_seconds': common.NUMBER, 'held': common.BOOLEAN,
    'base': common.TEXT_OR_NULL, 'target': common.TEXT_OR_NULL,
    'images': {'type': 'array', 'items': common.IMAGE}})
# Changes of a site; what is not given is not changed.
_MOST_MBPS = 10 ** 9
_MOST_BYTES = 2 ** 60
CHANGES = common.query({
    'add_hosts': {'type': 'integer', 'minimum': 0, 'maximum': 1000,
                  'description': 'Hosts to add; they share the requests.'},
    'capacity_bytes': {'type': 'integer', 'minimum': -_MOST_BYTES,
                       'maximum': _MOST_BYTES, 'description':
                       'Bytes to add to the capacity of each host; a '
                       'negative number reduces it.'},
    'repository_mbps': {'type': 'number', 'exclusiveMinimum': 0,
                        'maximum': _MOST_MBPS,
                        'description': 'Bandwidth of the WAN (Mbit/s).'},
    'peer_mbps': {'type': 'number', 'exclusiveMinimum': 0,
                  'maximum': _MOST_MBPS,
                  'description': 'Bandwidth of the LAN (Mbit/s).'},
    'demand_factor': {'type': 'number', 'exclusiveMinimum': 0,
                      'maximum': 10 ** 6,
                      'description': 'Factor by which to multiply all '
                                     'requests.'}})

LIST_QUERY = common.paged_query({
    'site': {**common.SITE, 'description': 'List only plans of this site.'},
    'state': {**_STATE, 'description': 'List only plans in this state.'}})
LIST = common.listing('plans', common.closed(_PLAN))
SHOW = common.closed({'plan': common.closed({
    **_PLAN, 'hosts': {'type': 'array', 'items': common.NAME},
    'items': {'type': 'array', 'items': _ITEM}})})
CREATED = common.closed({'plan': common.closed(_PLAN)})

CREATE = common.closed({'plan': common.closed({
    'site': common.SITE,
    'solver': {'type': 'string', 'pattern': '^[a-z0-9_-]{1,64}$',
               'description': 'Solver to use (default: the conductor\'s).'},
    'time_limit': {'type': 'number', 'exclusiveMinimum': 0, 'maximum': 600,
                   'description': 'Maximum seconds for the solver.'}},
    ['solver', 'time_limit'])})
APPLY = common.query({
    'generation': {**common.COUNT, 'description':
                   'Generation of the current plan that the caller has'
                   ' seen; if it has changed, the response is 409.'}})
CANCEL = common.query({})

EXPLANATION_QUERY = common.query({
    'host': {**common.NAME, 'description':
             'Explain only objects of this host.'}})
_REASON = common.closed({
    'host': common.NAME, 'kind': _KIND, 'id': common.HASH,
    'bytes': common.COUNT, 'saves_s': common.NUMBER,
    'requests': common.NUMBER, 'eviction': common.COUNT,
    'pinned': common.BOOLEAN, 'why': common.STRING})
EXPLANATION = common.closed({
    'explanation': {'type': 'array', 'items': _REASON}})

_OBJECTIVE = {'type': 'string', 'enum': ['seconds', 'wan_bytes']}
WHAT_IF = common.closed({'what_if': common.closed({
    'site': common.SITE, 'changes': CHANGES, 'objective': {
        **_OBJECTIVE, 'description': 'Objective that both '
                                     'plans minimize '
                                     '(default: that of '
                                     'the plans of the '
                                     'site); since '
                                     'version 1.8.'}}, ['objective'])})
_OUTCOME = common.closed({
    'cost_s': common.NUMBER, 'lower_bound_s': common.NUMBER,
    'mean_s': common.NUMBER, 'cost_wan_bytes': common.COUNT,
    'mean_wan_bytes': common.COUNT}, ['cost_wan_bytes', 'mean_wan_bytes'])
WHAT_IF_ANSWER = common.closed({'what_if': common.closed({
    'site': common.SITE, 'changes': CHANGES, 'objective': _OBJECTIVE,
    'before': _OUTCOME, 'after': _OUTCOME, 'saving': common.NUMBER,
    'saving_wan': common.NUMBER}, ['objective', 'saving_wan'])})
