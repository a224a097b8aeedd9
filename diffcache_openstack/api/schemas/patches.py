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

_PATCH = common.closed({
    'id': common.HASH, 'base': common.HASH, 'target': common.HASH,
    'size': common.COUNT, 'create_seconds': common.NUMBER,
    'apply_seconds': common.NUMBER, 'created_at': common.INSTANT,
    'host_count': common.COUNT})

LIST_QUERY = common.paged_query({
    'base': {**common.TEMPLATE, 'description':
             'List only patches from this template or content.'},
    'target': {**common.TEMPLATE, 'description':
               'List only patches to this template or content.'}})
LIST = common.listing('patches', _PATCH)
SHOW = common.closed({'patch': _PATCH})
