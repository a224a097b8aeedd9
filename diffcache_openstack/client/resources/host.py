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
"""Hosts, and what they hold."""

from openstack import resource

from diffcache_openstack.client.resources import base


class Host(base.Resource):
    """A host that runs an agent; its id is its name."""

    resource_key = 'host'
    resources_key = 'hosts'
    base_path = '/hosts'
    allow_delete = True
    _query_mapping = base.query('site', 'role', 'alive', 'holds')

    name = resource.Body('name', alternate_id=True)
    site = resource.Body('site')
    role = resource.Body('role')
    is_alive = resource.Body('alive', type=bool)
    #: Bytes that its cache may take.
    capacity = resource.Body('capacity', type=int)
    plan_generation = resource.Body('plan_generation', type=int)
    seen_at = resource.Body('seen_at')
    #: Objects and bytes that it holds.
    held = resource.Body('held', type=dict)
    #: Objects and bytes that the plan places there, and those it holds.
    plan = resource.Body('plan', type=dict)
    #: Mbit/s that it is taken to receive at.
    link_speeds = resource.Body('links', type=dict)
    #: Bytes per second and windows of fetching what plans place there.
    fill = resource.Body('fill', type=dict)
    #: Mbit/s that it measured.
    measured = resource.Body('measured', type=dict)
    #: Repositories that it reads from: whether they answer, since when not.
    repositories = resource.Body('repositories', type=list)
    #: Hosts that read from it, if it is a repository.
    clients = resource.Body('clients', type=list)


class HeldObject(base.Resource):
    """An object on a host."""

    resources_key = 'objects'
    base_path = '/hosts/%(host)s/objects'
    allow_fetch = False
    _query_mapping = base.query('kind')

    host = resource.URI('host')
    kind = resource.Body('kind')
    bytes = resource.Body('bytes', type=int)
    #: Ids of the images that have this content.
    images = resource.Body('images', type=list)


class Holding(base.Resource):
    """An object on a host, in a listing of several hosts."""

    resources_key = 'holdings'
    base_path = '/holdings'
    allow_fetch = False
    _query_mapping = base.query('site', 'kind', 'not_in_plan')

    host = resource.Body('host')
    site = resource.Body('site')
    kind = resource.Body('kind')
    object_id = resource.Body('object_id')
    bytes = resource.Body('bytes', type=int)
    #: Ids of the images that have this content.
    images = resource.Body('images', type=list)


class PendingImage(base.Resource):
    """An image that a repository could not add yet."""

    resources_key = 'pending_images'
    base_path = '/hosts/%(host)s/pending-images'
    allow_fetch = False
    _query_mapping = base.query('state')

    host = resource.URI('host')
    image_id = resource.Body('image_id', alternate_id=True)
    #: adding, waiting, waiting_for_space or refused.
    state = resource.Body('state')
    #: Failed attempts.
    attempts = resource.Body('attempts', type=int)
    #: Reason of the last failure.
    error = resource.Body('error')
    #: When the next attempt starts.
    retry_at = resource.Body('retry_at')


class BootSet(base.Resource):
    """The chunks that boots read of an image, at a host without the image."""

    resources_key = 'boot_sets'
    base_path = '/hosts/%(host)s/boot-sets'
    allow_fetch = False
    _query_mapping = base.query('state')

    host = resource.URI('host')
    content_id = resource.Body('content_id', alternate_id=True)
    image_id = resource.Body('image_id')
    #: Whether the plan, or a job, wants it there.
    is_wanted = resource.Body('wanted', type=bool)
    is_pinned = resource.Body('pinned', type=bool)
    bytes = resource.Body('bytes', type=int)
    held_bytes = resource.Body('held_bytes', type=int)
    #: waiting, fetching, ready, used or failed.
    state = resource.Body('state')
    #: Boots by day at this host.
    requests = resource.Body('requests', type=float)
    #: What each would wait for the chunks without the set.
    wait_seconds = resource.Body('wait_seconds', type=float)
    #: Whether they would come from a host of the site.
    is_from_peer = resource.Body('from_peer', type=bool)
    #: By day, of all boots of the site.
    saved_seconds = resource.Body('saved_seconds', type=float)
    message = resource.Body('message')
    updated_at = resource.Body('updated_at')
