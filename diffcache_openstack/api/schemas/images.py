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
"""Schemas of images."""

from diffcache_openstack.api.schemas import common

_VISIBILITY = {'type': 'string',
               'enum': ['public', 'community', 'shared', 'private']}
_STATUS = {'type': 'string', 'enum': ['active', 'deactivated', 'deleted']}
_IMAGE = {
    'id': common.IMAGE, 'name': common.STRING, 'content_id': common.HASH,
    'size': common.COUNT, 'data_size': common.COUNT,
    'disk_format': common.STRING, 'file_size': common.COUNT,
    'owner': common.TEXT_OR_NULL, 'visibility': _VISIBILITY,
    'status': _STATUS, 'family': common.TEXT_OR_NULL,
    'created_at': common.INSTANT, 'host_count': common.COUNT_OR_NULL,
    'members': common.COUNT,
    'compressed_size': common.COUNT_OR_NULL}
_ENTRY = common.closed(_IMAGE)

LIST_QUERY = common.paged_query({
    'name': {**common.NAME, 'description':
             'List only images with this name.'},
    'family': {**common.IMAGE, 'description':
               'List only images whose family is this image.'},
    'content_id': {**common.HASH, 'description':
                   'List only images with this content.'},
    'owner': {**common.NAME, 'description':
              'List only images of this project.'},
    'visibility': {**_VISIBILITY, 'description':
                   'List only images with this visibility.'},
    'status': {**_STATUS, 'description':
               'List only images with this status (default: all but'
               ' deleted ones).'},
    'host': {**common.NAME, 'description':
             'List only images that this host holds; for operators.'},
    'disk_format': {**common.NAME, 'description':
                    'List only images whose file has this format.'}})
LIST = common.listing('images', _ENTRY)
SHOW = common.closed({'image': _ENTRY})

_LOCATION = common.closed({
    'host': common.NAME, 'site': common.SITE, 'bytes': common.COUNT,
    'held': {'type': 'boolean', 'description':
             "Whether the image is in the host's cache."},
    'borrowed': {'type': 'boolean', 'description':
                 "Whether the agent reads the image from Nova's image "
                 "cache."}})
LOCATIONS = common.closed({
    'locations': {'type': 'array', 'items': _LOCATION}})
