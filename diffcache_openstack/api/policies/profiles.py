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
"""Policies of profiles of images."""

from diffcache_openstack.api.policies import base

_PROFILES = base.Rules('profiles')
LIST = _PROFILES.add(
    'list', base.READER, 'List profiles of the project, and those of all'
    ' projects.')
SHOW = _PROFILES.add(
    'show', base.READER, 'Show a profile of the project, or of all'
    ' projects.')
IMPORT = _PROFILES.add(
    'import', base.MEMBER, 'Import a profile of an image. Those of all'
    ' projects are for administrators.')
DELETE = _PROFILES.add(
    'delete', base.MEMBER, 'Delete a profile. Those of all projects are for'
    ' administrators.')
RULES = list(_PROFILES)
