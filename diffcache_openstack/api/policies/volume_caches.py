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
"""Policies of SSD caches and of volumes in them."""

from diffcache_openstack.api.policies import base

_VOLUMES = base.Rules('volume_caches')
LIST = _VOLUMES.add(
    'list', base.READER, 'List the project\'s volumes in SSD caches.')
SHOW = _VOLUMES.add(
    'show', base.READER, 'Show a volume of the project in an SSD cache, and'
    ' its curve.')
# Sizes and modes are of the operator's SSD: owners see them.
UPDATE = _VOLUMES.add(
    'update', base.ADMIN, 'Change settings of a volume in an SSD cache.')
ACT = _VOLUMES.add(
    'act', base.ADMIN, 'Flush or invalidate a volume in an SSD cache, or'
    ' accept that its storage lost blocks.')
_CACHES = base.Rules('ssd_caches')
LIST_CACHES = _CACHES.add(
    'list', base.OPERATOR_READER, 'List SSD caches of hosts.')
SHOW_CACHE = _CACHES.add(
    'show', base.OPERATOR_READER, 'Show the SSD cache of a host, and the'
    ' decisions about sizes.')
RULES = [*_VOLUMES, *_CACHES]
