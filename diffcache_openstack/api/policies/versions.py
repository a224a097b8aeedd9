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
"""Policies of versions of servers, tasks on them, and policies of saving."""

from diffcache_openstack.api.policies import base

_VERSIONS = base.Rules('versions')
LIST = _VERSIONS.add('list', base.READER, 'List the project\'s versions.')
SHOW = _VERSIONS.add('show', base.READER, 'Show a version of the project.')
CREATE = _VERSIONS.add('create', base.MEMBER, 'Save a server of the project.')
UPDATE = _VERSIONS.add(
    'update', base.MEMBER,
    'Change the name, description or protection of a version.')
DELETE = _VERSIONS.add('delete', base.MEMBER, 'Delete a version.')
RESTORE = _VERSIONS.add(
    'restore', base.MEMBER, 'Restore a server to a version.')
RESTORE_LOCKED = _VERSIONS.add(
    'restore_locked', base.ADMIN, 'Restore a server that is locked in Nova.',
    ('POST', '/v1/versions/{version_id}/restore'))
EXPORT = _VERSIONS.add('export', base.MEMBER, 'Export a version as an image.')
DIFF = _VERSIONS.add('diff', base.MEMBER, 'Compare two versions.')

_TASKS = base.Rules('version_tasks')
TASKS = _TASKS.add(
    'list', base.READER, 'List tasks on the project\'s versions.')
TASK = _TASKS.add('show', base.READER, 'Show a task.')
CANCEL = _TASKS.add('cancel', base.MEMBER, 'Cancel a task.')
# Reads a project's whole store, which loads the operator's machines.
VERIFY = _TASKS.add('verify', base.ADMIN, 'Verify the stored versions.')
REPLICATE = _TASKS.add(
    'replicate', base.ADMIN,
    'Copy the stored versions, or rebuild their store of its copy.')

_STORES = base.Rules('version_stores')
STORE = _STORES.add(
    'show', base.READER, 'Show the store of the project\'s versions.')

_POLICIES = base.Rules('version_policies')
POLICIES = _POLICIES.add(
    'list', base.READER, 'List the project\'s version policies.')
POLICY = _POLICIES.add('show', base.READER, 'Show a version policy.')
SET_POLICY = _POLICIES.add(
    'set', base.MEMBER,
    'Set the version policy of a server or of the project.')
UNSET_POLICY = _POLICIES.add('unset', base.MEMBER, 'Delete a version policy.')

RULES = [*_VERSIONS, *_TASKS, *_STORES, *_POLICIES]
