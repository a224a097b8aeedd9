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
"""Schemas of lookups."""

from diffcache_openstack.api.schemas import common

_PART = common.closed({
    'kind': common.STRING, 'id': common.HASH, 'host': common.NAME,
    'bytes': common.COUNT})
_WAY = common.closed({
    'way': {'type': 'string',
            'enum': ['local', 'peer', 'build', 'repository']},
    'seconds': common.NUMBER, 'wan_bytes': common.COUNT,
    'lan_bytes': common.COUNT, 'detail': common.STRING,
    'parts': {'type': 'array', 'items': _PART}})
# Null where the host serves no image while it arrives, and where it is not
# known what boots read.
_LAZY_BOOT = common.or_null(common.closed({
    'seconds': common.NUMBER, 'read_bytes': common.COUNT,
    'held_bytes': common.COUNT, 'peer_bytes': common.COUNT}))

QUERY = {
    **common.closed({
        'host': {**common.NAME, 'description': 'Host that needs the image.'},
        'image_id': {**common.IMAGE, 'description':
                     'Image to look up.'},
        'limit': {'type': 'integer', 'minimum': 1, 'description':
                  'Maximum number of ways to list (default: '
                  '10).'}}, ['limit'])}
_LOOKUP = {
    'host': common.NAME, 'site': common.SITE, 'image_id': common.IMAGE,
    'content_id': common.HASH, 'map_generation': common.COUNT,
    'ways': {'type': 'array', 'items': _WAY}, 'lazy_boot': _LAZY_BOOT}
SHOW = common.closed({'lookup': common.closed(_LOOKUP, ['lazy_boot'])})
LIST_QUERY = common.paged_query({
    'site': {**common.SITE, 'description': 'List only hosts of this site.'}})
LIST = common.listing('lookups', common.closed(_LOOKUP))
