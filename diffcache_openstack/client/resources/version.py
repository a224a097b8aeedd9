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
"""Versions of servers, tasks on them, and policies."""

import typing

from openstack import resource

from diffcache_openstack.client.resources import base


class ServerVersion(base.Resource):
    """The disks of a server at one moment."""

    label = 'Version'
    resource_key = 'version'
    resources_key = 'versions'
    base_path = '/versions'
    allow_create = True
    allow_delete = True
    _query_mapping = base.query('server_id', 'project_id', 'state',
                                'trigger')

    description = resource.Body('description')
    server_id = resource.Body('server_id')
    project_id = resource.Body('project_id')
    user_id = resource.Body('user_id')
    request_id = resource.Body('request_id')
    #: Previous version of the server.
    parent_id = resource.Body('parent_id')
    #: saving, available, error or deleting.
    state = resource.Body('state')
    #: request, schedule, shutdown, delete or rollback.
    trigger = resource.Body('trigger')
    is_protected = resource.Body('protected', type=bool)
    #: Increased by every change; required to change the version.
    generation = resource.Body('generation', type=int)
    alpha = resource.Body('alpha')
    #: Only for creation: most bytes per second to read.
    rate = resource.Body('rate', type=int)
    #: Only for creation: IDs of volumes to leave out.
    exclude_volumes = resource.Body('exclude_volumes', type=list)
    host = resource.Body('host')
    base_image = resource.Body('base_image')
    #: The image that it was exported as.
    image_id = resource.Body('image_id')
    size = resource.Body('size', type=int)
    bytes_changed = resource.Body('bytes_changed', type=int)
    bytes_read = resource.Body('bytes_read', type=int)
    bytes_stored = resource.Body('bytes_stored', type=int)
    seconds = resource.Body('seconds', type=float)
    #: Milliseconds for which the guest was paused.
    pause_ms = resource.Body('pause_ms', type=float)
    #: Milliseconds for which its filesystems were frozen.
    frozen_ms = resource.Body('frozen_ms', type=float)
    is_quiesced = resource.Body('quiesced', type=bool)
    disks = resource.Body('disks', type=list)
    error = resource.Body('error')
    created_at = resource.Body('created_at')
    updated_at = resource.Body('updated_at')
    #: Current task and its progress.
    task = resource.Body('task')


class VersionTask(base.Resource):
    """A task on versions."""

    label = 'Task'
    resource_key = 'version_task'
    resources_key = 'version_tasks'
    base_path = '/version-tasks'
    _query_mapping = base.query('server_id', 'version_id', 'project_id',
                                'state', 'kind')

    #: save, restore, export, diff, forget, prune, verify, rekey, accept,
    #: replicate or recover.
    kind = resource.Body('kind')
    #: queued, running, done, failed or cancelled.
    state = resource.Body('state')
    project_id = resource.Body('project_id')
    server_id = resource.Body('server_id')
    version_id = resource.Body('version_id')
    host = resource.Body('host')
    #: Bytes done, of how many.
    done = resource.Body('done', type=int)
    total = resource.Body('total', type=int)
    result = resource.Body('result', type=dict)
    error = resource.Body('error')
    created_at = resource.Body('created_at')
    updated_at = resource.Body('updated_at')

    def cancel(self, session: typing.Any) -> 'VersionTask':
        """Cancel the task."""
        return self.act(session, 'cancel')


class VersionStore(base.Resource):
    """The store of a project's versions."""

    label = 'Store of versions'
    resource_key = 'version_store'
    base_path = '/version-stores'

    project_id = resource.Body('project_id', alternate_id=True)
    bytes = resource.Body('bytes', type=int)
    verified_at = resource.Body('verified_at')
    #: What was saved until then is in the copy.
    copied_at = resource.Body('copied_at')
    #: Versions and bytes that the copy lacks, and since when.
    copy_lag = resource.Body('copy_lag', type=dict)


class VersionPolicy(base.Resource):
    """When a server is saved and which of its versions are kept."""

    resource_key = 'version_policy'
    resources_key = 'version_policies'
    base_path = '/version-policies'
    allow_create = True
    allow_delete = True
    _query_mapping = base.query('server_id', 'project_id')

    project_id = resource.Body('project_id')
    #: None for the project's.
    server_id = resource.Body('server_id')
    #: Seconds between two versions.
    every = resource.Body('every', type=int)
    keep_last = resource.Body('keep_last', type=int)
    keep_hourly = resource.Body('keep_hourly', type=int)
    keep_daily = resource.Body('keep_daily', type=int)
    keep_weekly = resource.Body('keep_weekly', type=int)
    keep_monthly = resource.Body('keep_monthly', type=int)
    is_on_shutdown = resource.Body('on_shutdown', type=bool)
    is_on_delete = resource.Body('on_delete', type=bool)
    is_required = resource.Body('required', type=bool)
    has_volumes = resource.Body('volumes', type=bool)
    alpha = resource.Body('alpha')
    created_at = resource.Body('created_at')
    updated_at = resource.Body('updated_at')
