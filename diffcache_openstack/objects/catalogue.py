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
"""What exists: templates, and patches between them. Sizes are bytes."""

from oslo_versionedobjects import fields

from diffcache_openstack.objects import base

TEMPLATES = 'templates'
PATCHES = 'patches'
MANIFESTS = 'manifests'
KINDS = (TEMPLATES, PATCHES, MANIFESTS)


@base.DiffCacheObjectRegistry.register
class Template(base.DiffCacheObject):
    """An image.

    ``id`` is its id in Glance, ``content_id`` the BLAKE3 hash of its raw
    content, ``size`` its virtual size and ``data_size`` what is not zero.
    """

    VERSION = '1.0'

    fields = {
        'id': fields.StringField(),
        'name': fields.StringField(default=''),
        'content_id': base.HashField(),
        'size': fields.NonNegativeIntegerField(),
        'data_size': fields.NonNegativeIntegerField(),
    }


@base.DiffCacheObjectRegistry.register
class Patch(base.DiffCacheObject):
    """A patch that turns the content ``base`` into the content ``target``.

    ``apply_seconds`` is 0 as long as no application has been timed.
    """

    VERSION = '1.0'

    fields = {
        'id': base.HashField(),
        'base': base.HashField(),
        'target': base.HashField(),
        'size': fields.NonNegativeIntegerField(),
        'create_seconds': fields.NonNegativeFloatField(default=0.0),
        'apply_seconds': fields.NonNegativeFloatField(default=0.0),
    }
