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
"""Schemas of patches."""

from diffcache_openstack.api.schemas import common

# With the IDs of this many images a request's head is smaller than the 4 KiB
# that uWSGI reads of it by default.
_MOST_ENDS = 50
_ENDS = {'type': 'array', 'items': common.IMAGE, 'maxItems': _MOST_ENDS}
_STATES = ('found', 'wanted', 'declined', 'made')
_PATCH = common.closed({
    'id': common.HASH, 'base': common.HASH, 'target': common.HASH,
    'size': common.COUNT, 'create_seconds': common.NUMBER,
    'apply_seconds': common.NUMBER, 'created_at': common.INSTANT,
    'host_count': common.COUNT})

LIST_QUERY = common.paged_query({
    'base': {**_ENDS, 'description':
             'List only patches from this image or content; may be'
             ' repeated.'},
    'target': {**_ENDS, 'description':
               'List only patches to this image or content; may be'
               ' repeated.'}})
LIST = common.listing('patches', _PATCH)
PAIRS_QUERY = common.paged_query({
    'base': {**common.IMAGE, 'description':
             'List only pairs with this image or content as base.'},
    'target': {**common.IMAGE, 'description':
               'List only pairs with this image or content as target.'},
    'state': {'enum': [*_STATES], 'description':
              'List only pairs in this state.'}})
PAIRS = common.listing('patch_pairs', common.closed({
    'id': common.STRING, 'base': common.HASH, 'target': common.HASH,
    'state': {'enum': [*_STATES]}, 'size': common.COUNT_OR_NULL,
    'attempts': common.COUNT, 'host': common.TEXT_OR_NULL,
    'retry_at': common.INSTANT_OR_NULL, 'terms': common.TEXT_OR_NULL,
    'reason': common.TEXT_OR_NULL}))
SHOW = common.closed({'patch': _PATCH})
