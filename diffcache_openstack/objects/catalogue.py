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
"""What exists: images, and patches between them. Sizes are bytes."""


from diffcache_openstack.objects import fields
from diffcache_openstack.objects import versioned

IMAGES = 'images'
PATCHES = 'patches'
MANIFESTS = 'manifests'
RECIPES = 'recipes'
KINDS = (IMAGES, PATCHES, MANIFESTS, RECIPES)

RAW = 'raw'
QCOW2 = 'qcow2'
DISK_FORMATS = (RAW, QCOW2)

PUBLIC = 'public'
SHARED = 'shared'
VISIBILITIES = (PUBLIC, 'community', SHARED, 'private')

ACTIVE = 'active'
DEACTIVATED = 'deactivated'
DELETED = 'deleted'
STATUSES = (ACTIVE, DEACTIVATED, DELETED)


@versioned.DiffCacheObjectRegistry.register
class Image(versioned.DiffCacheObject):
    """An image.

    ``id`` is its id in Glance, ``content_id`` the BLAKE3 hash of its raw
    content, ``size`` its virtual size and ``data_size`` what is not zero.
    ``compressed_size`` are the bytes of the form of it that the repository
    sends over a WAN: 0 if there is none, None if the sender does not say.

    The rest is about the file that Glance has: its format, its size, the hash
    that Glance vouches for (``os_hash_algo``, ``os_hash_value``), and
    ``form_id`` (of ``form_size`` bytes), the BLAKE3 hash of the recipe that
    makes this file of the raw content; None where the file is the raw content.
    ``owner`` is a project id, or None. ``family`` is the id of the image
    that this one is a descendant of, if that is known.
    Only an image whose ``status`` is active may be served. ``members`` are the
    projects that one whose ``visibility`` is shared is shared with. ``record``
    is the signed statement of the repository that the file has this content.
    """

    VERSION = '1.0'

    fields = {
        'id': fields.IdField(),
        'name': fields.StringField(default=''),
        'content_id': fields.HashField(),
        'size': fields.NonNegativeIntegerField(),
        'data_size': fields.NonNegativeIntegerField(),
        'disk_format': fields.EnumField(DISK_FORMATS, default=RAW),
        'file_size': fields.NonNegativeIntegerField(default=0),
        'os_hash_algo': fields.StringField(
            r'[A-Za-z0-9_-]{1,64}', nullable=True, default=None),
        'os_hash_value': fields.StringField(
            r'[0-9A-Fa-f]{1,128}', nullable=True, default=None),
        'owner': fields.IdField(nullable=True, default=None),
        'visibility': fields.EnumField(VISIBILITIES, default=PUBLIC),
        'status': fields.EnumField(STATUSES, default=ACTIVE),
        'form_id': fields.HashField(nullable=True, default=None),
        'form_size': fields.NonNegativeIntegerField(default=0),
        'family': fields.IdField(nullable=True, default=None),
        'created_at': fields.DateTimeField(nullable=True, default=None),
        'members': fields.ListOfStringsField(fields.ID_PATTERN, default=[]),
        'record': fields.TextField(nullable=True, default=None),
        'compressed_size': fields.NonNegativeIntegerField(
            nullable=True, default=None),
    }


@versioned.DiffCacheObjectRegistry.register
class Patch(versioned.DiffCacheObject):
    """A patch that turns the content ``base`` into the content ``target``.

    ``apply_seconds`` is 0 as long as no application has been timed.
    """

    VERSION = '1.0'

    fields = {
        'id': fields.HashField(),
        'base': fields.HashField(),
        'target': fields.HashField(),
        'size': fields.NonNegativeIntegerField(),
        'create_seconds': fields.NonNegativeFloatField(default=0.0),
        'apply_seconds': fields.NonNegativeFloatField(default=0.0),
    }
