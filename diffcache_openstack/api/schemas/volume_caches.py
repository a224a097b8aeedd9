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
"""Schemas of SSD caches and of volumes in them."""

from diffcache_openstack.api.schemas import common
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.objects import volume_cache

_VOLUME_ID = {'type': 'string', 'minLength': 1, 'maxLength': 128}
_MODE = {'type': 'string', 'enum': list(volume_cache.MODES)}
_TEXTS = {'type': 'array', 'items': common.STRING}
_COUNTS = {'type': 'array', 'items': common.COUNT}
_VOLUME = common.closed({
    'id': _VOLUME_ID, 'server_id': common.TEXT_OR_NULL,
    'project_id': common.TEXT_OR_NULL, 'host': common.TEXT_OR_NULL,
    'mode': _MODE, 'state': common.STRING, 'limit': common.COUNT,
    'blocks': common.COUNT, 'dirty': common.COUNT, 'reads': common.COUNT,
    'writes': common.COUNT, 'hits': common.COUNT, 'misses': common.COUNT,
    'evictions': common.COUNT, 'bypassed': common.COUNT,
    'min': common.COUNT, 'max': common.COUNT_OR_NULL,
    'weight': common.NUMBER, 'priority': common.NUMBER_OR_NULL,
    'sla': common.TEXT_OR_NULL, 'admission': common.COUNT_OR_NULL,
    'losses': _TEXTS,
    'guest_path': {'type': 'string', 'enum': list(choices.GUEST_PATHS)},
    'guest_path_reason': common.TEXT_OR_NULL, 'rates': _TEXTS,
    'generation': common.COUNT,
    'explain': _TEXTS, 'updated_at': common.INSTANT})

LIST_QUERY = common.paged_query({
    'server_id': {'type': 'string', 'minLength': 1, 'maxLength': 64,
                  'description': 'List only volumes of this server.'},
    'project_id': {'type': 'string', 'minLength': 1, 'maxLength': 255,
                   'description': 'List only volumes of this project.'},
    'mode': {**_MODE, 'description': 'List only volumes in this mode.'},
    'host': {**common.NAME, 'description':
             'List only volumes in the SSD cache of this host.'}})
LIST = common.listing('volume_caches', _VOLUME)
SHOW = common.closed({'volume_cache': _VOLUME})
_SETTINGS = {
    'limit': {**common.COUNT_OR_NULL, 'description':
              'Fixed size of the partition of the volume.'},
    'min': {**common.COUNT_OR_NULL, 'description':
            'Minimum number of blocks in the partition of the volume.'},
    'max': {**common.COUNT_OR_NULL, 'description':
            'Maximum number of blocks in the partition of the volume.'},
    'weight': {'type': ['number', 'null'], 'exclusiveMinimum': 0,
               'description': 'Weight of the hits of the volume relative to '
                              'other volumes.'},
    'priority': {'type': ['number', 'null'], 'exclusiveMinimum': 0,
                 'description': 'With the policy "priority": volumes with '
                                'the highest number get space first.'},
    'mode': {'enum': [*volume_cache.MODES, None], 'description':
             'How the cache handles reads and writes. With write-back, the '
             'latest writes of the server are only on its host: snapshots '
             'and backups do not contain them, and they are lost with the '
             'host or its SSD.'},
    'sla': {**common.TEXT_OR_NULL, 'maxLength': 32, 'description':
            'Target of the volume, such as hit=0.9 or latency=2ms.'},
    'admission': {'type': ['integer', 'null'], 'minimum': 1,
                  'maximum': choices.MAX_ADMISSION, 'description':
                  'Cache a block on this reference to it (1: the first).'}}
UPDATE = common.closed({'volume_cache': common.closed(
    {**_SETTINGS, 'generation': {
        **common.COUNT, 'description': 'Generation that the caller has seen;'
        ' if it has changed, the response is 409.'}}, _SETTINGS)})
FOLLOW = common.closed({'volume_cache': common.closed({'specs': {
    'type': 'object', 'maxProperties': 100,
    'additionalProperties': {'type': 'string', 'maxLength': 255},
    'description': 'QoS specs of the volume\'s type, such as '
                   '{"diffcache:ssd_cache": "write-through", '
                   '"total_iops_sec": "500"}; specs with other names are '
                   'ignored.'}})})
ACT = common.closed({'action': {
    'type': 'string', 'enum': ['flush', 'invalidate', 'accept-loss'],
    'description': 'Write dirty blocks back to the storage (flush), also '
                   'drop all cached blocks (invalidate), or let flushes '
                   'succeed although the storage lost blocks '
                   '(accept-loss).'}})
CURVE = common.closed({'curve': common.closed({
    'seconds': common.NUMBER, 'references': common.COUNT,
    'distinct': common.COUNT, 'sampled': common.NUMBER,
    'hit_us': common.NUMBER, 'miss_us': common.NUMBER,
    'sizes': _COUNTS, 'hits': _COUNTS})})

_CACHE = {
    'host': common.NAME,
    'state': {'type': 'string', 'enum': list(volume_cache.STATES)},
    'capacity': common.COUNT, 'policy': common.STRING,
    'epoch': common.COUNT, 'volumes': common.COUNT,
    'updated_at': common.INSTANT}
LIST_CACHES_QUERY = common.paged_query({})
LIST_CACHES = common.listing('ssd_caches', common.closed(_CACHE))
SHOW_CACHE = common.closed({'ssd_cache': common.closed({
    **_CACHE, 'decisions': {'type': 'array', 'items': common.closed({
        'time': common.INSTANT, 'policy': common.STRING,
        'changed': common.BOOLEAN, 'explain': _TEXTS})}})})
