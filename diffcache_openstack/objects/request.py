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
"""A request for an image, and how it was served."""

from diffcache_openstack.objects import fields
from diffcache_openstack.objects import versioned


@versioned.DiffCacheObjectRegistry.register
class Request(versioned.DiffCacheObject):
    """One request that an agent has answered.

    ``way`` says where the image came from (local, peer, build, repository),
    ``detail`` the sources in words, ``error`` why there is no image. If a
    patch was applied, ``patch_id`` and ``apply_seconds`` say which and how
    long that took.
    """

    VERSION = '1.0'

    fields = {
        'id': fields.UUIDField(),
        'image_id': fields.IdField(),
        'host': fields.HostField(),
        'mode': fields.StringField(default=''),
        'way': fields.StringField(default=''),
        'detail': fields.TextField(default=''),
        'seconds': fields.NonNegativeFloatField(default=0.0),
        'predicted_seconds': fields.FloatField(nullable=True, default=None),
        'wan_bytes': fields.NonNegativeIntegerField(default=0),
        'lan_bytes': fields.NonNegativeIntegerField(default=0),
        'fallbacks': fields.NonNegativeIntegerField(default=0),
        'patch_id': fields.HashField(nullable=True, default=None),
        'apply_seconds': fields.NonNegativeFloatField(default=0.0),
        'started_at': fields.DateTimeField(),
        'error': fields.TextField(nullable=True, default=None),
    }
