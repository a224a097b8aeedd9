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
"""Policies of versions of servers."""

from diffcache_openstack.api.policies import base

LIST = 'diffcache:versions:list'
SHOW = 'diffcache:versions:show'
CREATE = 'diffcache:versions:create'
UPDATE = 'diffcache:versions:update'
DELETE = 'diffcache:versions:delete'
RESTORE = 'diffcache:versions:restore'
RESTORE_LOCKED = 'diffcache:versions:restore_locked'
EXPORT = 'diffcache:versions:export'
DIFF = 'diffcache:versions:diff'
TASKS = 'diffcache:version_tasks:list'
TASK = 'diffcache:version_tasks:show'
CANCEL = 'diffcache:version_tasks:cancel'
VERIFY = 'diffcache:version_tasks:verify'
POLICIES = 'diffcache:version_policies:list'
POLICY = 'diffcache:version_policies:show'
SET_POLICY = 'diffcache:version_policies:set'
UNSET_POLICY = 'diffcache:version_policies:unset'

_PATH = '/v1/versions/{version_id}'

RULES = [
    base.documented(LIST, base.READER, 'List the project\'s versions.',
                    ('GET', '/v1/versions')),
    base.documented(SHOW, base.READER, 'Show a version of the project.',
                    ('GET', _PATH)),
    base.documented(CREATE, base.MEMBER, 'Save a server of the project.',
                    ('POST', '/v1/versions')),
    base.documented(UPDATE, base.MEMBER, 'Change the name, description or'
                    ' protection of a version.', ('PATCH', _PATH)),
    base.documented(DELETE, base.MEMBER, 'Delete a version.',
                    ('DELETE', _PATH)),
    base.documented(RESTORE, base.MEMBER, 'Restore a server to a version.',
                    ('POST', f'{_PATH}/restore')),
    base.documented(RESTORE_LOCKED, base.ADMIN, 'Restore a server that is'
                    ' locked in Nova.', ('POST', f'{_PATH}/restore')),
    base.documented(EXPORT, base.MEMBER, 'Export a version as an image.',
                    ('POST', f'{_PATH}/export')),
    base.documented(DIFF, base.MEMBER, 'Compare two versions.',
                    ('POST', f'{_PATH}/diff')),
    base.documented(TASKS, base.READER,
                    'List tasks on the project\'s versions.',
                    ('GET', '/v1/version-tasks')),
    base.documented(TASK, base.READER, 'Show a task.',
                    ('GET', '/v1/version-tasks/{task_id}')),
    base.documented(CANCEL, base.MEMBER, 'Cancel a task.',
                    ('POST', '/v1/version-tasks/{task_id}/cancel')),
    # Reads a project's whole store, which loads the operator's machines.
    base.documented(VERIFY, base.ADMIN, 'Verify the stored versions.',
                    ('POST', '/v1/version-tasks/verify')),
    base.documented(POLICIES, base.READER,
                    'List the project\'s version policies.',
                    ('GET', '/v1/version-policies')),
    base.documented(POLICY, base.READER, 'Show a version policy.',
                    ('GET', '/v1/version-policies/{policy_id}')),
    base.documented(SET_POLICY, base.MEMBER, 'Set the version policy of a'
                    ' server or of the project.',
                    ('POST', '/v1/version-policies')),
    base.documented(UNSET_POLICY, base.MEMBER, 'Delete a version policy.',
                    ('DELETE', '/v1/version-policies/{policy_id}')),
]
