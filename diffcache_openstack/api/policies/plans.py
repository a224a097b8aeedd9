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
"""Policies of plans."""

from diffcache_openstack.api.policies import base

RULES = base.Rules('plans')
LIST = RULES.add('list', base.OPERATOR_READER, 'List plans.')
SHOW = RULES.add(
    'show', base.OPERATOR_READER,
    'Show a plan with the objects it places, and why.')
CREATE = RULES.add('create', base.ADMIN, 'Compute a plan.')
WHAT_IF = RULES.add(
    'what_if', base.ADMIN, 'Estimate the cost of a changed site.')
APPLY = RULES.add('apply', base.ADMIN, 'Make a proposed plan the current one.')
CANCEL = RULES.add('cancel', base.ADMIN, 'Discard a proposed plan.')
