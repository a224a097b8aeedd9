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
"""Policies of templates."""

from diffcache_openstack.api.policies import base

LIST = 'diffcache:templates:list'
SHOW = 'diffcache:templates:show'
LOCATIONS = 'diffcache:templates:locations'

RULES = [
    base.documented(LIST, base.READER,
                    'List the templates that the project may see.',
                    ('GET', '/v1/templates')),
    base.documented(SHOW, base.READER,
                    'Show a template that the project may see.',
                    ('GET', '/v1/templates/{template_id}')),
    base.documented(LOCATIONS, base.OPERATOR_READER,
                    'See the names of the hosts that hold a template.',
                    ('GET', '/v1/templates/{template_id}/locations')),
]
