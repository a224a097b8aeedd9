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

LIST = 'diffcache:plans:list'
SHOW = 'diffcache:plans:show'
CREATE = 'diffcache:plans:create'
WHAT_IF = 'diffcache:plans:what_if'
APPLY = 'diffcache:plans:apply'
CANCEL = 'diffcache:plans:cancel'

RULES = [
    base.documented(LIST, base.OPERATOR_READER, 'List plans.',
                    ('GET', '/v1/plans')),
    base.documented(SHOW, base.OPERATOR_READER,
                    'Show a plan, what it wants where, and why.',
                    ('GET', '/v1/plans/{plan_id}'),
                    ('GET', '/v1/plans/{plan_id}/explanation')),
    base.documented(CREATE, base.ADMIN, 'Have a plan computed.',
                    ('POST', '/v1/plans')),
    base.documented(WHAT_IF, base.ADMIN,
                    'Ask what a change of a site would be worth.',
                    ('POST', '/v1/what-if')),
    base.documented(APPLY, base.ADMIN, 'Put a proposed plan into force.',
                    ('POST', '/v1/plans/{plan_id}/apply')),
    base.documented(CANCEL, base.ADMIN, 'Drop a proposed plan.',
                    ('POST', '/v1/plans/{plan_id}/cancel')),
]
