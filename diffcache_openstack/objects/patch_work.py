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
"""Work on patches that the conductor gives to repositories, and its results.

Sizes are bytes.
"""

from diffcache_openstack.objects import fields
from diffcache_openstack.objects import versioned

# Of a signature: hexadecimal digits, as blocks.similarity divides them.
SIGNATURE_PATTERN = r'(?:[0-9a-f]{864})?'

ESTIMATED = 'estimated'
DECLINED = 'declined'
FAILED = 'failed'
VERDICTS = (ESTIMATED, DECLINED, FAILED)


@versioned.DiffCacheObjectRegistry.register
class ImageSketch(versioned.DiffCacheObject):
    """What a repository reports of an image's sketch.

    ``signature`` is empty for an image with too little content, and None for
    one that could not be read.
    """

    VERSION = '1.0'

    fields = {
        'content_id': fields.HashField(),
        'data_size': fields.NonNegativeIntegerField(default=0),
        'signature': fields.StringField(SIGNATURE_PATTERN, 864,
                                        nullable=True, default=None),
    }


@versioned.DiffCacheObjectRegistry.register
class PatchPair(versioned.DiffCacheObject):
    """Two contents between which there may be a patch."""

    VERSION = '1.0'

    fields = {
        'base': fields.HashField(),
        'target': fields.HashField(),
    }


@versioned.DiffCacheObjectRegistry.register
class PatchWork(versioned.DiffCacheObject):
    """The next work of a repository.

    ``sketch`` are contents to sketch, ``compare`` pairs whose patch has to be
    estimated, ``create`` pairs whose patch is assigned to the host.
    ``pending`` is whether there is more work at once.
    """

    VERSION = '1.0'

    fields = {
        'sketch': fields.ListOfStringsField(fields.HASH_PATTERN, default=[]),
        'compare': fields.ListOfObjectsField('PatchPair', default=[]),
        'create': fields.ListOfObjectsField('PatchPair', default=[]),
        'pending': fields.BooleanField(default=False),
    }


@versioned.DiffCacheObjectRegistry.register
class PairReport(versioned.DiffCacheObject):
    """What a repository found about a pair.

    ``verdict`` is estimated (a patch of about ``size`` is worth creating),
    declined (it is not, for ``reason``) or failed (for ``reason``, to be tried
    again later).
    """

    VERSION = '1.0'

    fields = {
        'base': fields.HashField(),
        'target': fields.HashField(),
        'verdict': fields.EnumField(VERDICTS),
        'size': fields.NonNegativeIntegerField(nullable=True, default=None),
        'reason': fields.TextField(nullable=True, default=None),
    }
