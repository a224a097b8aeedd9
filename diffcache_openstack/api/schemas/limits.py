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
"""Schemas of limits."""

from diffcache_openstack.api.schemas import common
from diffcache_openstack.cloud import quotas

QUERY = common.query({
    'project_id': {**common.NAME, 'description':
                   'Project to show (default: the caller\'s).'}})
_RESOURCE = common.closed({
    'limit': {'type': 'integer', 'minimum': -1,
              'description': '-1 means no limit.'},
    'usage': common.COUNT})
SHOW = common.closed({'limits': common.closed({
    'project_id': common.NAME, **dict.fromkeys(quotas.NAMES, _RESOURCE)})})
