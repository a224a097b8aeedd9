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
"""Hydrations of servers' images, as agents report them."""

from diffcache_openstack.objects import fields
from diffcache_openstack.objects import versioned

ARRIVING = 'arriving'
COMPLETE = 'complete'
# What serves the image does not say how far it is.
UNKNOWN = 'unknown'
STATES = (ARRIVING, COMPLETE, UNKNOWN)
NONE = 'none'
IDLE = 'idle'
DEADLINE = 'deadline'
MODES = (NONE, IDLE, DEADLINE)
# Of an image.
MOST_SOURCES = 32
# Seconds until a deadline, and bytes per second.
LONGEST_DEADLINE = 10 ** 8
HIGHEST_RATE = 10 ** 12


@versioned.DiffCacheObjectRegistry.register
class HydrationSource(versioned.DiffCacheObject):
    """A host or URL that an image comes from, and what came from it."""

    VERSION = '1.0'

    fields = {
        'url': fields.StringField(max_length=1024),
        'requests': fields.NonNegativeIntegerField(),
        'bytes': fields.NonNegativeIntegerField(),
        'failures': fields.NonNegativeIntegerField(),
    }


@versioned.DiffCacheObjectRegistry.register
class Hydration(versioned.DiffCacheObject):
    """How far the image is that a server runs from while it arrives.

    ``chunk`` is in bytes; ``chunks`` are those that are not all zeros, of
    which ``present`` are on the host. ``rate`` and ``measured_rate`` are in
    bytes per second. While it is paused, ``mode`` and ``deadline_at`` are
    those that it returns to. Servers of one image on one host share all of it.
    """

    VERSION = '1.0'

    fields = {
        'server_id': fields.IdField(),
        'image_id': fields.IdField(),
        'content_id': fields.HashField(),
        'state': fields.EnumField(STATES),
        'chunk': fields.NonNegativeIntegerField(default=0),
        'chunks': fields.NonNegativeIntegerField(default=0),
        'present': fields.NonNegativeIntegerField(default=0),
        'remaining_bytes': fields.NonNegativeIntegerField(default=0),
        'bytes_fetched': fields.NonNegativeIntegerField(default=0),
        'misses': fields.NonNegativeIntegerField(default=0),
        'stall_ms': fields.NonNegativeIntegerField(default=0),
        'mode': fields.EnumField(MODES, default=NONE),
        'paused': fields.BooleanField(default=False),
        'deadline_at': fields.DateTimeField(nullable=True, default=None),
        'expected_at': fields.DateTimeField(nullable=True, default=None),
        'kept': fields.BooleanField(nullable=True, default=None),
        'rate': fields.NonNegativeIntegerField(nullable=True, default=None),
        'measured_rate': fields.NonNegativeFloatField(nullable=True,
                                                      default=None),
        'generation': fields.NonNegativeIntegerField(default=0),
        'sources': fields.ListOfObjectsField(
            'HydrationSource', max_items=MOST_SOURCES, default=[]),
    }
