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
"""Images, and patches between them."""

from openstack import resource

from diffcache_openstack.client.resources import base


class Image(base.Resource):
    """An image of the catalogue."""

    resource_key = 'image'
    resources_key = 'images'
    base_path = '/images'
    _query_mapping = base.query('name', 'family', 'content_id', 'owner',
                                'visibility', 'status', 'disk_format',
                                'host')

    content_id = resource.Body('content_id')
    #: Bytes that a guest sees.
    size = resource.Body('size', type=int)
    #: Bytes of it that are not zero.
    data_size = resource.Body('data_size', type=int)
    #: Bytes that cross a WAN; none as long as it is not compressed.
    compressed_size = resource.Body('compressed_size', type=int)
    disk_format = resource.Body('disk_format')
    #: Bytes of the file that Glance has.
    file_size = resource.Body('file_size', type=int)
    owner = resource.Body('owner')
    visibility = resource.Body('visibility')
    status = resource.Body('status')
    #: Id of the image that this one was made from.
    family = resource.Body('family')
    #: How many images name this one as their family.
    members = resource.Body('members', type=int)
    #: How many hosts hold it whole.
    host_count = resource.Body('host_count', type=int)
    created_at = resource.Body('created_at')


class Location(base.Resource):
    """A host that has an image."""

    resources_key = 'locations'
    base_path = '/images/%(image_id)s/locations'
    allow_fetch = False

    image_id = resource.URI('image_id')
    host = resource.Body('host', alternate_id=True)
    site = resource.Body('site')
    bytes = resource.Body('bytes', type=int)
    #: Whether the host's cache has it.
    is_held = resource.Body('held', type=bool)
    #: Whether the agent reads it from Nova's image cache.
    is_borrowed = resource.Body('borrowed', type=bool)


class Lookup(base.Resource):
    """The cheapest way for a host to get an image."""

    resources_key = 'lookups'
    base_path = '/images/%(image_id)s/lookups'
    allow_fetch = False
    _query_mapping = base.query('site')

    image_id = resource.URI('image_id')
    host = resource.Body('host', alternate_id=True)
    site = resource.Body('site')
    content_id = resource.Body('content_id')
    map_generation = resource.Body('map_generation', type=int)
    #: The cheapest way, if there is one.
    ways = resource.Body('ways', type=list)
    #: What a lazy boot waits for; none where that is unknown.
    lazy_boot = resource.Body('lazy_boot', type=dict)

    @property
    def way(self) -> dict:
        """The cheapest way; empty if there is none."""
        return self.ways[0] if self.ways else {}


class Patch(base.Resource):
    """A patch that builds one content from another."""

    resource_key = 'patch'
    resources_key = 'patches'
    base_path = '/patches'
    _query_mapping = base.query('base', 'target')

    base = resource.Body('base')
    target = resource.Body('target')
    size = resource.Body('size', type=int)
    create_seconds = resource.Body('create_seconds', type=float)
    apply_seconds = resource.Body('apply_seconds', type=float)
    host_count = resource.Body('host_count', type=int)
    created_at = resource.Body('created_at')


class PatchPair(base.Resource):
    """Two contents that a patch is considered for."""

    resources_key = 'patch_pairs'
    base_path = '/patch-pairs'
    allow_fetch = False
    _query_mapping = base.query('base', 'target', 'state')

    base = resource.Body('base')
    target = resource.Body('target')
    state = resource.Body('state')
    size = resource.Body('size', type=int)
    attempts = resource.Body('attempts', type=int)
    host = resource.Body('host')
    retry_at = resource.Body('retry_at')
    terms = resource.Body('terms')
    reason = resource.Body('reason')
