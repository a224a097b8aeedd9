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
"""Images of an image service that a repository does not have yet."""

from diffcache_openstack.objects import fields
from diffcache_openstack.objects import versioned

ADDING = 'adding'
WAITING = 'waiting'
WAITING_FOR_SPACE = 'waiting_for_space'
REFUSED = 'refused'
STATES = (ADDING, WAITING, WAITING_FOR_SPACE, REFUSED)


@versioned.DiffCacheObjectRegistry.register
class PendingImage(versioned.DiffCacheObject):
    """An image that is being added to a repository, or could not be.

    ``attempts`` are those that failed; ``error`` is the last one's, and after
    ``retry_at`` there is another. One that is refused is looked at again when
    it changes.
    """

    VERSION = '1.0'

    fields = {
        'image_id': fields.IdField(),
        'state': fields.EnumField(STATES),
        'attempts': fields.NonNegativeIntegerField(default=0),
        'error': fields.TextField(nullable=True, default=None),
        'retry_at': fields.DateTimeField(nullable=True, default=None),
    }
