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
"""Policies of hydrations."""

from diffcache_openstack.api.policies import base

_HYDRATIONS = base.Rules('hydrations')
LIST = _HYDRATIONS.add(
    'list', base.READER, 'List the hydrations of the project\'s servers.')
SHOW = _HYDRATIONS.add(
    'show', base.READER, 'Show the hydration of a server of the project.')
UPDATE = _HYDRATIONS.add(
    'update', base.MEMBER, 'Change the hydration of a server of the project.'
    ' One that is shared with servers of other projects is for'
    ' administrators.')
RULES = list(_HYDRATIONS)
