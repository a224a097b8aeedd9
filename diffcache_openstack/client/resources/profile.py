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
"""Profiles: what servers read of images as they boot lazily."""

from openstack import resource

from diffcache_openstack.client.resources import base


class Profile(base.Resource):
    """What instances read of an image, summed over hosts."""

    label = 'Profile'
    resource_key = 'profile'
    resources_key = 'profiles'
    base_path = '/profiles'
    allow_create = True
    allow_delete = True
    _query_mapping = base.query('image_id', 'project_id', 'label')

    image_id = resource.Body('image_id')
    #: Whose servers it is of; None for those of all projects.
    project_id = resource.Body('project_id')
    #: Of servers that read alike, such as the name of a flavor.
    servers_label = resource.Body('label')
    generation = resource.Body('generation', type=int)
    #: That read the most frequent chunk.
    instances = resource.Body('instances', type=int)
    #: Number of chunks that were read, or carried.
    chunks = resource.Body('chunks', type=int)
    #: Image whose profile was carried to this one; None if none is used.
    carried_from = resource.Body('carried_from')
    created_at = resource.Body('created_at')
    updated_at = resource.Body('updated_at')
    #: Bytes of a chunk; None in listings.
    chunk = resource.Body('chunk', type=int)
    #: [chunk, instances, mean microseconds since their start].
    rows = resource.Body('rows', type=list)
