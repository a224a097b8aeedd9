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
"""Rules that the rules of resources refer to.

``reader`` and ``member`` are roles in a project. ``admin`` is a cloud
administrator, ``service`` another OpenStack service; both see the resources of
every project, and so does a reader with the scope of the system. Only an
administrator changes them: reading and writing wide are separate rules.

The target of a rule is the object that a request is about: ``project_id`` and
``user_id`` are those of the version, server, job, task or policy, not those of
the caller.
"""

import collections.abc
import typing

from oslo_policy import policy

ADMIN = 'rule:admin_api'
ADMIN_OR_SERVICE = 'rule:admin_or_service'
OPERATOR_READER = 'rule:operator_reader'
READER = 'rule:project_reader'
MEMBER = 'rule:project_member'

# See and change resources whatever project they belong to.
ALL_PROJECTS = 'diffcache:all_projects'
ALL_PROJECTS_WRITE = 'diffcache:all_projects:write'
# See the fields of documents that describe the operator's machines.
INFRASTRUCTURE = 'diffcache:infrastructure:show'

ALL_SCOPES = ['system', 'project']


class Rule(typing.NamedTuple):
    """A rule of a resource.

    :ivar operations: methods and paths of which it decides something besides
        those whose routes name it
    """

    name: str
    check: str
    description: str
    operations: tuple[tuple[str, str], ...] = ()

    def documented(self, routes: collections.abc.Iterable[tuple[str, str]]
                   ) -> policy.DocumentedRuleDefault:
        """Return the rule with the operations that it controls.

        :param routes: methods and paths of those that name it
        """
        listed: typing.Any = [
            {'method': method, 'path': path} for method, path
            in dict.fromkeys((*routes, *self.operations))]
        return policy.DocumentedRuleDefault(
            self.name, self.check, self.description, listed,
            scope_types=ALL_SCOPES)


class Rules(list[Rule]):
    """The rules of a resource."""

    def __init__(self, resource: str):
        super().__init__()
        self._resource = resource

    def add(self, action: str, check: str, description: str,
            *operations: tuple[str, str]) -> str:
        """Add the rule of an action; return the rule's name."""
        name = f'diffcache:{self._resource}:{action}'
        self.append(Rule(name, check, description, operations))
        return name


# What the rules of resources refer to.
ROLES = [
    policy.RuleDefault(
        'admin_api', 'role:admin', 'Cloud administrators.'),
    policy.RuleDefault(
        'service_api', 'role:service', 'Other OpenStack services.'),
    policy.RuleDefault(
        'admin_or_service', 'rule:admin_api or rule:service_api',
        'Cloud administrators and other OpenStack services.'),
    policy.RuleDefault(
        'operator_reader',
        'rule:admin_or_service or (role:reader and system_scope:all)',
        'May read hosts, plans and the resources of every project.'),
    policy.RuleDefault(
        'project_reader', 'role:reader or rule:operator_reader',
        'May read the resources visible to their project.'),
    policy.RuleDefault(
        'project_member',
        '(role:member and project_id:%(project_id)s) or rule:admin_api',
        'May change the resources of their project.'),
]

RULES = [
    Rule(
        INFRASTRUCTURE, OPERATOR_READER,
        'See names of hosts, errors as hosts report them, and numbers that'
        ' count over all projects. Other callers get null, or a text without'
        ' names of hosts and paths.',
        (('GET', '/v1/images'), ('GET', '/v1/images/{image_id}'),
         ('GET', '/v1/precache-jobs'), ('GET', '/v1/precache-jobs/{job_id}'),
         ('GET', '/v1/precache-jobs/{job_id}/targets'),
         ('GET', '/v1/versions'), ('GET', '/v1/versions/{version_id}'),
         ('GET', '/v1/version-tasks'),
         ('GET', '/v1/version-tasks/{task_id}'))),
    Rule(
        ALL_PROJECTS_WRITE, ADMIN,
        'Change precache jobs, versions, tasks and version policies of other'
        ' projects than the token\'s. The rule of the change has to allow it'
        ' too.',
        (('POST', '/v1/versions'), ('PATCH', '/v1/versions/{version_id}'),
         ('DELETE', '/v1/versions/{version_id}'),
         ('POST', '/v1/versions/{version_id}/restore'),
         ('POST', '/v1/versions/{version_id}/export'),
         ('POST', '/v1/versions/{version_id}/diff'),
         ('POST', '/v1/version-tasks/verify'),
         ('POST', '/v1/version-tasks/replicate'),
         ('POST', '/v1/version-tasks/{task_id}/cancel'),
         ('POST', '/v1/version-policies'),
         ('DELETE', '/v1/version-policies/{policy_id}'),
         ('PATCH', '/v1/precache-jobs/{job_id}'),
         ('POST', '/v1/precache-jobs/{job_id}/cancel'),
         ('POST', '/v1/precache-jobs/{job_id}/retry'))),
    Rule(
        ALL_PROJECTS, OPERATOR_READER,
        'See images, precache jobs and versions of all projects. This'
        ' widens no right to change them.',
        (('GET', '/v1/images'), ('GET', '/v1/images/{image_id}'),
         ('GET', '/v1/precache-jobs'), ('GET', '/v1/precache-jobs/{job_id}'),
         ('GET', '/v1/versions'), ('GET', '/v1/versions/{version_id}'),
         ('GET', '/v1/version-tasks'), ('GET', '/v1/version-policies'),
         ('GET', '/v1/version-stores/{project_id}'))),
]
