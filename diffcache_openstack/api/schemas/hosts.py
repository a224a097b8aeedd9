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
"""Schemas of hosts."""

from diffcache_openstack.api.schemas import common
from diffcache_openstack.objects import boot_set
from diffcache_openstack.objects import pending_image

_KIND = {'type': 'string', 'enum': ['images', 'patches', 'manifests',
                                    'recipes']}
_FILL = common.closed({'objects': common.COUNT, 'bytes': common.COUNT})
_PLAN_FILL = common.closed({
    'objects': common.COUNT, 'bytes': common.COUNT,
    'held_objects': common.COUNT, 'held_bytes': common.COUNT})
_HOST = {
    'name': common.NAME, 'site': common.SITE,
    'role': {'type': 'string', 'enum': ['compute', 'repository']},
    'alive': common.BOOLEAN, 'capacity': common.COUNT,
    'plan_generation': common.COUNT, 'seen_at': common.INSTANT,
    'held': _FILL, 'plan': _PLAN_FILL}

LIST_QUERY = common.paged_query({
    'site': {**common.SITE, 'description': 'List only hosts of this site.'},
    'role': {**_HOST['role'], 'description':
             'List only hosts with this role.'},
    'alive': {**common.BOOLEAN, 'description':
              'List only hosts that are alive (true) or down (false).'},
    'holds': {**common.HASH, 'description':
              'List only hosts that hold the object with this hash.'}})
LIST = common.listing('hosts', common.closed(_HOST))

_STANDING = {
    'answers': common.BOOLEAN, 'since': common.INSTANT_OR_NULL,
    'reason': common.TEXT_OR_NULL, 'mbps': common.NUMBER_OR_NULL,
    'transfers': common.COUNT, 'failures': common.COUNT,
    'bytes': common.COUNT}
_NETWORK = {
    'fill': common.or_null(common.closed({
        'max_rate': common.COUNT_OR_NULL,
        'windows': {'type': 'array', 'items': common.STRING},
        'seconds_per_day': common.NUMBER})),
    'measured': common.or_null(common.closed({
        'peer': common.NUMBER_OR_NULL, 'repo': common.NUMBER_OR_NULL})),
    'repositories': {'type': 'array', 'items': common.closed({
        'name': common.NAME, **_STANDING})},
    'clients': {'type': 'array', 'items': common.closed({
        'host': common.NAME, **_STANDING})}}
SHOW = common.closed({'host': common.closed({
    **_HOST, 'links': common.closed({
        'local': common.NUMBER, 'peer': common.NUMBER,
        'repo': common.NUMBER}), **_NETWORK})})

OBJECTS_QUERY = common.paged_query({
    'kind': {**_KIND, 'description': 'List only objects of this kind.'}})
OBJECTS = common.listing('objects', common.closed({
    'id': common.HASH, 'kind': _KIND, 'bytes': common.COUNT,
    'images': {'type': 'array', 'items': common.IMAGE}}))

_HOLDING = common.closed({
    'id': common.STRING, 'host': common.NAME, 'site': common.SITE,
    'kind': _KIND, 'object_id': common.HASH, 'bytes': common.COUNT,
    'images': {'type': 'array', 'items': common.IMAGE}})
# The longest ID: the names of a host and of a kind, and a hash.
_MOST_OF_ID = 255 + 1 + 16 + 1 + 64
HOLDINGS_QUERY = common.paged_query({
    'site': {**common.SITE, 'description':
             'List only objects of hosts of this site.'},
    'kind': {**_KIND, 'description': 'List only objects of this kind.'},
    'not_in_plan': {**common.UUID, 'description':
                    'List only images and patches that hosts of this plan '
                    'hold although the plan does not place them.'},
    'marker': {**common.MARKER, 'maxLength': _MOST_OF_ID}})
HOLDINGS = common.listing('holdings', _HOLDING)

_STATE = {'type': 'string', 'enum': list(pending_image.STATES)}
PENDING_QUERY = common.paged_query({
    'state': {**_STATE, 'description': 'List only images in this state.'}})
PENDING = common.listing('pending_images', common.closed({
    'image_id': common.IMAGE, 'state': _STATE, 'attempts': common.COUNT,
    'error': common.TEXT_OR_NULL, 'retry_at': common.INSTANT_OR_NULL}))

_SET_STATE = {'type': 'string', 'enum': list(boot_set.STATES)}
BOOT_SETS_QUERY = common.paged_query({
    'state': {**_SET_STATE, 'description': 'List only sets in this state.'}})
BOOT_SETS = common.listing('boot_sets', common.closed({
    'content_id': common.HASH, 'image_id': common.STRING,
    'wanted': common.BOOLEAN, 'pinned': common.BOOLEAN,
    'bytes': common.COUNT, 'held_bytes': common.COUNT, 'state': _SET_STATE,
    'requests': common.NUMBER, 'wait_seconds': common.NUMBER,
    'from_peer': common.BOOLEAN, 'saved_seconds': common.NUMBER,
    'message': common.TEXT_OR_NULL, 'updated_at': common.INSTANT}))
