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
"""Schemas of precache jobs."""

from diffcache_openstack.api.schemas import common

_STATE = {'type': 'string', 'enum': ['running', 'ready', 'cancelled',
                                     'expired']}
_TARGET_STATE = {'type': 'string', 'enum': [
    'waiting', 'fetching', 'ready', 'failed', 'cancelled']}


def _names(description):
    return {'type': 'array', 'items': common.NAME, 'uniqueItems': True,
            'maxItems': 500, 'description': description}


_CHANGEABLE = {
    'name': {**common.LABEL, 'description':
             'Human-readable name; need not be unique.'},
    'priority': {'type': 'integer', 'minimum': 0, 'maximum': 100,
                 'description': 'Priority over other objects of the plan'
                 ' (default: 50).'},
    'rate': {'type': ['integer', 'null'], 'minimum': 1, 'maximum': 2 ** 40,
             'description': 'Maximum bytes per second that each host '
                            'fetches for the job.'},
    'window': {'type': ['string', 'null'], 'maxLength': 255, 'description':
               'Times when hosts may fetch, such as "mon-fri 22:00-06:00", in'
               ' the conductor\'s local time.'},
    'pinned': {**common.BOOLEAN, 'description':
               'Require the whole image on each host; otherwise a base and a'
               ' patch at the site suffice.'},
    'expires_at': {**common.INSTANT_OR_NULL, 'description':
                   'Time when the job ends; its images may be evicted from '
                   'then on.'}}
_TARGETS = {
    'images': _names('IDs of images.'),
    'families': _names('Ids of images that others name as their family; all'
                       ' of those, and new ones.'),
    'hosts': _names('Names of hosts.'),
    'aggregates': _names('Names or ids of Nova\'s host aggregates.'),
    'availability_zones': _names('Names of Nova\'s availability zones.')}
_PROGRESS = common.closed({
    'targets': common.COUNT, 'ready': common.COUNT, 'failed': common.COUNT,
    'bytes': common.COUNT, 'bytes_done': common.COUNT})
# Null for callers who may not see names of hosts.
_HIDEABLE = {'type': ['array', 'null'], 'items': common.NAME}
_BOOT_SET = {'boot_set': {
    **common.BOOLEAN, 'description':
    'Cache only the boot sets of the images (the blocks that boots read), '
    'on hosts that need not have the images.'}}
_JOB = common.closed({
    'id': common.UUID, 'project_id': common.TEXT_OR_NULL,
    'user_id': common.TEXT_OR_NULL, 'state': _STATE,
    'generation': common.COUNT, 'message': common.TEXT_OR_NULL,
    'request_id': common.TEXT_OR_NULL, 'created_at': common.INSTANT,
    'updated_at': common.INSTANT, 'progress': _PROGRESS,
    **_CHANGEABLE, **_TARGETS, **_BOOT_SET, 'hosts': _HIDEABLE,
    'aggregates': _HIDEABLE})

LIST_QUERY = common.paged_query({
    'state': {**_STATE, 'description': 'List only jobs in this state.'},
    'project_id': {**common.NAME, 'description':
                   'List only jobs of this project.'}})
LIST = common.listing('precache_jobs', _JOB)
SHOW = common.closed({'precache_job': _JOB})

TARGETS_QUERY = common.paged_query({
    'state': {**_TARGET_STATE, 'description':
              'List only targets in this state.'},
    'host': {**common.NAME, 'description': 'List only targets on this host.'}})
TARGETS = common.listing('targets', common.closed({
    'id': common.STRING, 'host': common.TEXT_OR_NULL,
    'image_id': common.IMAGE,
    'state': _TARGET_STATE,
    'way': common.TEXT_OR_NULL, 'bytes_total': common.COUNT,
    'bytes_done': common.COUNT, 'message': common.TEXT_OR_NULL,
    'attempts': common.COUNT, 'retry_at': common.INSTANT_OR_NULL,
    'updated_at': common.INSTANT}))

_OPTIONAL = [*_CHANGEABLE, *_TARGETS, *_BOOT_SET]
CREATE = common.closed({'precache_job': {
    **common.closed({**_CHANGEABLE, **_TARGETS, **_BOOT_SET}, _OPTIONAL),
    'allOf': [
        {'anyOf': [{'properties': {name: {'minItems': 1}},
                    'required': [name]} for name in names]}
        for names in (('images', 'families'),
                      ('hosts', 'aggregates', 'availability_zones'))]}})
UPDATE = common.closed({'precache_job': common.closed(
    {**_CHANGEABLE, 'generation': {
        **common.COUNT, 'description': 'Generation that the caller has seen;'
        ' if it has changed, the response is 409.'}}, _CHANGEABLE)})
CANCEL = common.query({
    'generation': {**common.COUNT, 'description': 'Generation that the'
                   ' caller has seen; if it has changed, the response is'
                   ' 409.'}})
RETRY = common.query({})
