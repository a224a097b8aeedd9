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
"""Keystone's answers about tokens, given in this process."""

from keystoneauth1 import fixture as token_fixtures
from keystonemiddleware import fixture as middleware_fixtures

PROJECT = 'p' * 32
OTHER_PROJECT = 'q' * 32
# Keystone adds the roles that a role implies.
ROLES = {
    'admin': ['admin', 'member', 'reader'],
    'member': ['member', 'reader'],
    'reader': ['reader'],
    'service': ['service'],
    'service-member': ['service', 'member', 'reader'],
    'nobody': ['dancer'],
    'other': ['member', 'reader'],
}
# Roles with the scope of the system.
SYSTEM_ROLES = {
    'auditor': ['reader'],
    'system-member': ['member', 'reader'],
}


def tokens() -> dict[str, token_fixtures.V3Token]:
    """Return a token for each role, and one of another project's member."""
    found = {}
    for name, roles in ROLES.items():
        project = OTHER_PROJECT if name == 'other' else PROJECT
        token = token_fixtures.V3Token(user_id=f'user-{name}')
        token.set_project_scope(id=project)
        for role in roles:
            token.add_role(name=role)
        found[name] = token
    for name, roles in SYSTEM_ROLES.items():
        token = token_fixtures.V3Token(user_id=f'user-{name}')
        token.set_system_scope()
        for role in roles:
            token.add_role(name=role)
        found[name] = token
    return found


class Tokens(middleware_fixtures.AuthTokenFixture):
    """keystonemiddleware with these tokens; the ID of each is its name."""

    def setUp(self) -> None:
        super().setUp()
        for name, token in tokens().items():
            self.add_token(token, token_id=name)
