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
"""The tables of rights, written from the policies and the table of fields."""

import pathlib
import typing

from diffcache_openstack.api import fields
from diffcache_openstack.api import handlers
from diffcache_openstack.api import policies
from diffcache_openstack.api.policies import base
from diffcache_openstack.api import policy
from diffcache_openstack.common import contexts

PATH = (pathlib.Path(__file__).parents[3] / 'doc' / 'source' / 'admin'
        / 'security-rights.inc')

# Heading, roles and the token's scope.
CALLERS = (('reader', ['reader'], 'project'),
           ('member', ['member', 'reader'], 'project'),
           ('service', ['service'], 'project'),
           ('reader, system', ['reader'], 'system'),
           ('admin', ['admin', 'member', 'reader'], 'project'))
_OWN, _OTHER = 'own-project', 'other-project'
_SPECIAL = (base.ALL_PROJECTS, base.ALL_PROJECTS_WRITE, base.INFRASTRUCTURE)


def text(enforcer: policy.Enforcer) -> str:
    """Return the document with both tables."""
    lines = ['.. Written by tests/unit/api/test_reference.py, do not edit.',
             '']
    lines += _table('Rules by role', '40 12 12 12 12 12',
                    ['Rule', *(name for name, *_rest in CALLERS)],
                    [[f'``{rule.name}``',
                      *(_extent(enforcer, rule.name, caller)
                        for caller in CALLERS)]
                     for rule in policies.list_rules()
                     if getattr(rule, 'operations', None)])
    lines += _table('Fields that not all callers see', '30 30 40',
                    ['Document', 'Field', 'Callers without'
                     f' ``{base.INFRASTRUCTURE}`` get'],
                    [[f'``{resource.name}``', f'``{name}``', given]
                     for resource in fields.RESOURCES
                     for name, given in _hidden(resource.fields, '')])
    return '\n'.join(lines)


def _extent(enforcer: policy.Enforcer, rule: str, caller: typing.Any) -> str:
    """Return with whose objects a caller may use a rule."""
    context = _context(caller)
    own = enforcer.allows(context, rule, {
        'project_id': _OWN, 'user_id': 'a-user'})
    routes = [route for route in handlers.routes() if route.policy == rule]
    if rule in _SPECIAL or all(route.shows.fields is None
                               for route in routes):
        return 'yes' if own else ''
    wide = base.ALL_PROJECTS if all(route.method == 'GET' for route in routes
                                    ) else base.ALL_PROJECTS_WRITE
    target = {'project_id': _OTHER, 'user_id': 'another-user'}
    if enforcer.allows(context, rule, target) and enforcer.allows(
            context, wide, target):
        return 'all'
    return 'own' if own else ''


def _context(caller):
    _name, roles, scope = caller
    values: dict[str, typing.Any] = {'system_scope': 'all'} \
        if scope == 'system' else {'project_id': _OWN}
    return contexts.RequestContext(user_id='a-user', roles=roles,
                                   overwrite=False, **values)


def _hidden(table, prefix):
    """Return names of fields that are the operators', and what others get."""
    for name, field in table.items():
        if field.operators:
            yield f'{prefix}{name}', (
                'null' if field.substitute is fields.nothing
                else 'a text without names of hosts and paths')
        if field.parts:
            yield from _hidden(field.parts, f'{prefix}{name}.')


def _table(title, widths, heading, rows):
    lines = [f'.. list-table:: {title}', '   :header-rows: 1',
             f'   :widths: {widths}', '']
    for row in (heading, *rows):
        lines += [f'   {"  -" if number else "* -"} {cell}'.rstrip()
                  for number, cell in enumerate(row)]
    return [*lines, '']
