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
"""Policies of precache jobs."""

from diffcache_openstack.api.policies import base

RULES = base.Rules('precache_jobs')
LIST = RULES.add('list', base.READER, 'List the project\'s precache jobs.')
SHOW = RULES.add('show', base.READER, 'Show a precache job of the project.')
# The capacity of hosts belongs to the operator.
CREATE = RULES.add('create', base.ADMIN_OR_SERVICE, 'Create a precache job.')
UPDATE = RULES.add('update', base.MEMBER, 'Change a precache job.')
CANCEL = RULES.add('cancel', base.MEMBER, 'Cancel a precache job.')
RETRY = RULES.add(
    'retry', base.MEMBER, 'Retry the failed targets of a precache job.')
