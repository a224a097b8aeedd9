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
"""Precache jobs: images to cache before they are requested."""

from diffcache_openstack.objects import fields
from diffcache_openstack.objects import versioned

RUNNING = 'running'
READY = 'ready'
CANCELLED = 'cancelled'
EXPIRED = 'expired'
JOB_STATES = (RUNNING, READY, CANCELLED, EXPIRED)
# Those of jobs that are worked on.
LIVING = (RUNNING, READY)

WAITING = 'waiting'
FETCHING = 'fetching'
FAILED = 'failed'


@versioned.DiffCacheObjectRegistry.register
class PrecacheJob(versioned.DiffCacheObject):
    """Images that hosts shall have cached.

    ``images`` are ids; of ``families`` all members count, also later ones.
    ``rate`` is in bytes/s for each host. ``window`` says when hosts may
    fetch. A job that is ``pinned`` wants the image itself on each host, else
    what it takes to build it at the site will do. ``request_id`` is that of
    the request that created it.
    """

    VERSION = '1.0'

    fields = {
        'id': fields.UUIDField(),
        'name': fields.StringField(default=''),
        'project_id': fields.IdField(nullable=True, default=None),
        'user_id': fields.IdField(nullable=True, default=None),
        'request_id': fields.StringField(nullable=True, default=None),
        'state': fields.EnumField(JOB_STATES, default=RUNNING),
        'generation': fields.NonNegativeIntegerField(default=1),
        'images': fields.ListOfStringsField(fields.ID_PATTERN, default=[]),
        'families': fields.ListOfStringsField(fields.ID_PATTERN, default=[]),
        'hosts': fields.ListOfStringsField(fields.HOST_PATTERN, default=[]),
        'aggregates': fields.ListOfStringsField(default=[]),
        'availability_zones': fields.ListOfStringsField(default=[]),
        'priority': fields.NonNegativeIntegerField(default=50),
        'rate': fields.NonNegativeIntegerField(nullable=True, default=None),
        'window': fields.StringField(nullable=True, default=None),
        'pinned': fields.BooleanField(default=False),
        'message': fields.TextField(nullable=True, default=None),
        'expires_at': fields.DateTimeField(nullable=True, default=None),
    }


@versioned.DiffCacheObjectRegistry.register
class PrecacheDemand(versioned.DiffCacheObject):
    """A job's demand for one content at one host.

    ``requests`` is how many requests to expect soon; ``pinned`` means that
    the content has to be held whole.
    """

    VERSION = '1.0'

    fields = {
        'host': fields.HostField(),
        'content_id': fields.HashField(),
        'requests': fields.NonNegativeFloatField(default=1.0),
        'pinned': fields.BooleanField(default=False),
    }
