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
"""Schemas of profiles of images."""

from diffcache_openstack.api.schemas import common
from diffcache_openstack.prefetch import profiles

_LABEL = {'type': 'string', 'pattern': f'^{profiles.LABEL_PATTERN}$'}
# As many chunks as an image of 2 ** 64 bytes has.
_MOST_CHUNKS = 2 ** 64 // profiles.CHUNK


def _rows(count: common.Schema, mean_us: common.Schema) -> common.Schema:
    """Return the schema of [chunk, count, mean_us] rows."""
    chunk = {'type': 'integer', 'minimum': 0, 'maximum': _MOST_CHUNKS}
    return {'type': 'array', 'maxItems': profiles.MOST_ROWS,
            'items': {'type': 'array', 'minItems': 3, 'maxItems': 3,
                      'prefixItems': [chunk, count, mean_us]}}


_COUNT = {'type': 'integer', 'minimum': 1}
_MEAN = {'type': 'number', 'minimum': 0}
_PROFILE = {
    'id': common.UUID, 'image_id': common.IMAGE,
    'project_id': common.TEXT_OR_NULL, 'label': _LABEL,
    'generation': common.COUNT, 'instances': common.COUNT,
    'chunks': common.COUNT, 'carried_from': common.TEXT_OR_NULL,
    'created_at': common.INSTANT, 'updated_at': common.INSTANT}

LIST_QUERY = common.paged_query({
    'image_id': {**common.IMAGE, 'description':
                 'List only profiles of this image.'},
    'project_id': {'type': 'string', 'minLength': 1, 'maxLength': 255,
                   'description': 'List only profiles of this project.'},
    'label': {**_LABEL, 'description': 'List only profiles with this label,'
              ' such as the name of a flavor.'}})
LIST = common.listing('profiles', common.closed(_PROFILE))
SHOW = common.closed({'profile': common.closed({
    **_PROFILE, 'chunk': common.COUNT, 'rows': _rows(_COUNT, _MEAN)})})
IMPORT = common.closed({'profile': common.closed({
    'image_id': {**common.IMAGE, 'description': 'Image of the profile.'},
    'label': {**_LABEL, 'description': 'Label of the servers that use the '
                                       'profile; none by default.'},
    'chunk': {'enum': [profiles.CHUNK],
              'description': 'Size of a chunk in bytes.'},
    'rows': {**_rows({**_COUNT, 'maximum': profiles.MOST_INSTANCES},
                     {**_MEAN, 'maximum': profiles.LATEST_US}),
             'description': 'For each chunk that was read: '
                            'its number, how many instances '
                            'read it, and the mean time in '
                            'microseconds from their start to '
                            'that read.'}}, ['label'])})
