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
"""Schemas of versions of servers, tasks on them, and policies."""

from diffcache_openstack.api.schemas import common
from diffcache_openstack.objects import fields

_STATE = {'type': 'string', 'enum': ['saving', 'available', 'error',
                                     'deleting']}
_TRIGGER = {'type': 'string', 'enum': ['request', 'schedule', 'shutdown',
                                       'delete', 'rollback', 'image']}
_KIND = {'type': 'string', 'enum': ['save', 'restore', 'export', 'diff',
                                    'forget', 'prune', 'verify',
                                    'rekey', 'accept', 'replicate',
                                    'recover']}
_TASK_STATE = {'type': 'string', 'enum': ['queued', 'running', 'done',
                                          'failed', 'cancelled']}
_SERVER = {'type': 'string', 'minLength': 1, 'maxLength': 64,
           'description': 'ID of a server.'}
_ALPHA = {'type': 'string', 'pattern': r'^(auto|0(\.[0-9]{1,6})?|1(\.0+)?)$',
          'maxLength': 16, 'description':
          'Part of the chunk groups to store as differential: 0 takes the'
          ' least storage, 1 restores fastest, auto keeps restores fast'
          ' enough.'}
_ERROR_CODE = {'type': ['string', 'null'], 'description':
               'Class of the error; does not change between releases.'}
_CHANGEABLE = {
    'name': {**common.LABEL, 'description':
             'Human-readable name; need not be unique.'},
    'description': {'type': 'string', 'maxLength': 4096},
    'protected': {**common.BOOLEAN, 'description':
                  'Refuse to delete the version.'}}
_VERSION = common.closed({
    **_CHANGEABLE, 'id': common.UUID, 'server_id': _SERVER,
    'project_id': common.STRING, 'user_id': common.TEXT_OR_NULL,
    'request_id': common.TEXT_OR_NULL, 'parent_id': common.TEXT_OR_NULL,
    'state': _STATE, 'trigger': _TRIGGER, 'generation': common.COUNT,
    'alpha': _ALPHA, 'host': common.TEXT_OR_NULL,
    'base_image': common.TEXT_OR_NULL, 'image_id': common.TEXT_OR_NULL,
    'size': common.COUNT, 'bytes_changed': common.COUNT,
    'bytes_read': common.COUNT, 'bytes_stored': common.COUNT,
    'seconds': common.NUMBER_OR_NULL, 'pause_ms': common.NUMBER_OR_NULL,
    'frozen_ms': common.NUMBER_OR_NULL, 'quiesced': common.BOOLEAN,
    'error': common.TEXT_OR_NULL, 'error_code': _ERROR_CODE,
    'created_at': common.INSTANT, 'updated_at': common.INSTANT,
    'disks': {'type': 'array', 'items': common.closed({
        'device': common.STRING, 'size': common.COUNT,
        'volume_id': common.TEXT_OR_NULL})},
    'task': {'anyOf': [{'type': 'null'}, common.closed({
        'id': common.UUID, 'kind': _KIND, 'state': _TASK_STATE,
        'done': common.COUNT, 'total': common.COUNT})]}})

LIST_QUERY = common.paged_query({
    'server_id': {**_SERVER, 'description':
                  'List only versions of this server.'},
    'project_id': {**common.NAME, 'description':
                   'List only versions of this project.'},
    'state': {**_STATE, 'description': 'List only versions in this state.'},
    'trigger': {**_TRIGGER, 'description':
                'List only versions that were saved for this reason.'}})
LIST = common.listing('versions', _VERSION)
SHOW = common.closed({'version': _VERSION})
CREATE = common.closed({'version': common.closed({
    **_CHANGEABLE, 'server_id': _SERVER, 'alpha': _ALPHA,
    'rate': {'type': ['integer', 'null'], 'minimum': 1, 'maximum': 2 ** 40,
             'description': "Maximum bytes per second to read from the "
                            "server's disks."},
    'exclude_volumes': {
        'type': 'array', 'items': common.UUID, 'maxItems': 256,
        'description': 'Volumes of the server to leave out.'}},
    [*_CHANGEABLE, 'alpha', 'rate', 'exclude_volumes'])})
UPDATE = common.closed({'version': common.closed(
    {**_CHANGEABLE, 'generation': {
        **common.COUNT, 'description': 'Generation that the caller has seen;'
        ' if it has changed, the response is 409.'}}, _CHANGEABLE)})
RESTORE = common.closed({'restore': common.query({
    'keep_current': {**common.BOOLEAN, 'description':
                     'Save the current state as a version first'
                     ' (default: true).'},
    'dry_run': {**common.BOOLEAN, 'description':
                'Only report how many bytes would be written.'},
    'method': {'type': 'string', 'enum': ['auto', 'rollback', 'rebuild'],
               'description':
               'Write only what differs in place (rollback), or write'
               ' whole new disks (rebuild); auto, the default, chooses the'
               ' cheaper one.'}})})
EXPORT = common.closed({'export': common.query({
    'name': {**common.LABEL, 'description':
             'Name of the image.'},
    'device': {'type': 'string', 'pattern': f'^{fields.DEVICE_PATTERN}$',
               'description': 'Device of the disk or volume to export'
               ' (default: the first).'}})})
DIFF = common.closed({'diff': common.closed({
    'against': {**common.UUID, 'description': 'Version to compare with.'}})})

_TASK = common.closed({
    'id': common.UUID, 'kind': _KIND, 'state': _TASK_STATE,
    'project_id': common.STRING, 'server_id': common.TEXT_OR_NULL,
    'version_id': common.TEXT_OR_NULL, 'host': common.TEXT_OR_NULL,
    'done': common.COUNT, 'total': common.COUNT,
    'result': {'type': 'object', 'description':
               'Result; depends on the kind.'},
    'error': common.TEXT_OR_NULL, 'error_code': _ERROR_CODE,
    'created_at': common.INSTANT, 'updated_at': common.INSTANT})
TASKS_QUERY = common.paged_query({
    'server_id': {**_SERVER, 'description': 'List only tasks on this server.'},
    'version_id': {**common.UUID, 'description':
                   'List only tasks on this version.'},
    'project_id': {**common.NAME, 'description':
                   'List only tasks of this project.'},
    'state': {**_TASK_STATE, 'description': 'List only tasks in this state.'},
    'kind': {**_KIND, 'description': 'List only tasks of this kind.'}})
TASKS = common.listing('version_tasks', _TASK)
TASK = common.closed({'version_task': _TASK})
VERIFY = common.closed({'verify': common.query({
    'project_id': {**common.NAME, 'description':
                   'Project to verify (default: the caller\'s).'}})})
REPLICATE = common.closed({'replicate': common.query({
    'project_id': {**common.NAME, 'description':
                   'Project whose store is copied (default: the caller\'s).'},
    'from_copy': {**common.BOOLEAN, 'description':
                  'Create the store, which must be empty, of its copy'
                  ' (default: false).'}})})
STORE = common.closed({'version_store': common.closed({
    'project_id': common.STRING, 'bytes': common.COUNT_OR_NULL,
    'verified_at': common.INSTANT_OR_NULL,
    'copied_at': {**common.INSTANT_OR_NULL, 'description':
                  'What was saved until then is in the copy.'},
    'copy_lag': {'anyOf': [{'type': 'null'}, common.closed({
        'versions': common.COUNT, 'bytes': common.COUNT,
        'oldest': common.INSTANT_OR_NULL})], 'description':
        'Versions that the copy lacks, the bytes that were stored for them,'
        ' and when the oldest of them was saved; null without a copy.'}})})
CANCEL = common.query({})


def _number(description):
    return {'type': 'integer', 'minimum': 0, 'maximum': 100000,
            'description': description}


_POLICY_VALUES = {
    'every': {'type': ['integer', 'null'], 'minimum': 60,
              'maximum': 31536000, 'description':
              'Seconds between two versions; null disables the'
              ' schedule.'},
    'keep_last': _number('Number of latest versions to keep.'),
    **{f'keep_{name}': _number(f'Number of {unit} whose last version to'
                               f' keep.') for name, unit in (
        ('hourly', 'hours'), ('daily', 'days'), ('weekly', 'weeks'),
        ('monthly', 'months'))},
    'on_shutdown': {**common.BOOLEAN, 'description':
                    'Save the server when it is shut down.'},
    'on_delete': {**common.BOOLEAN, 'description':
                  'Save the server before it is deleted.'},
    'required': {**common.BOOLEAN, 'description':
                 'Refuse to delete a server that could not be saved.'},
    'volumes': {**common.BOOLEAN, 'description':
                'Save the volumes of servers too, at the times of the'
                ' schedule (default: true).'},
    'alpha': _ALPHA}
_SUBJECT = {'type': ['string', 'null'], 'minLength': 1, 'maxLength': 64,
            'description': 'ID of a server; null means all servers of the'
            ' project without a policy of their own.'}
_POLICY = common.closed({
    'id': common.UUID, 'project_id': common.STRING, 'server_id': _SUBJECT,
    **_POLICY_VALUES, 'created_at': common.INSTANT,
    'updated_at': common.INSTANT})
POLICIES_QUERY = common.paged_query({
    'server_id': {**_SERVER, 'description':
                  'List only the policy of this server.'},
    'project_id': {**common.NAME, 'description':
                   'List only policies of this project.'}})
POLICIES = common.listing('version_policies', _POLICY)
POLICY = common.closed({'version_policy': _POLICY})
SET_POLICY = common.closed({'version_policy': common.query({
    'server_id': _SUBJECT, **_POLICY_VALUES})})
