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
"""What hosts shall hold."""

from diffcache_openstack.objects import catalogue
from diffcache_openstack.objects import fields
from diffcache_openstack.objects import versioned

# What a plan moves and saves.
PLAN_FIGURES = ('move_wan_bytes', 'move_lan_bytes', 'fill_seconds',
                'saved_seconds', 'saved_wan_bytes', 'cost_wan_bytes')
# What plans minimize.
PLAN_OBJECTIVES = ('seconds', 'wan_bytes')


@versioned.DiffCacheObjectRegistry.register
class PlanItem(versioned.DiffCacheObject):
    """An object that a host shall hold.

    ``priority`` orders the items of a host, the smallest is fetched first.
    ``saved_seconds`` is what holding it lowers the plan's cost by.
    """

    VERSION = '1.0'

    fields = {
        'host': fields.HostField(),
        'kind': fields.EnumField(catalogue.KINDS),
        'id': fields.HashField(),
        'bytes': fields.NonNegativeIntegerField(),
        'priority': fields.NonNegativeIntegerField(),
        'saved_seconds': fields.FloatField(default=0.0),
    }


@versioned.DiffCacheObjectRegistry.register
class Plan(versioned.DiffCacheObject):
    """A placement for one site, and the hosts it was made for.

    ``cost_s`` and ``lower_bound_s`` are expected seconds of service per day
    of demand (the sum of rates times seconds); ``solver_seconds`` is what
    computing the plan took.

    ``objective`` is what the plan minimizes: ``cost_s``, or
    ``cost_wan_bytes``, the bytes that the requests of a day take from
    repositories.

    The rest compares the plan with what hosts held or were about to hold when
    it was computed: bytes that move from the repository and between hosts,
    seconds until the slowest host holds its part, and seconds of waiting and
    bytes from the repository that the expected requests of a day save (less
    than 0 if the plan costs more). None if the sender does not say.
    """

    VERSION = '1.0'

    fields = {
        'site': fields.SiteField(),
        'generation': fields.NonNegativeIntegerField(),
        'solver': fields.StringField(),
        'objective': fields.EnumField(PLAN_OBJECTIVES, nullable=True,
                                      default=None),
        'cost_s': fields.FloatField(),
        'lower_bound_s': fields.FloatField(),
        'proved_optimal': fields.BooleanField(),
        'solver_seconds': fields.NonNegativeFloatField(),
        'created_at': fields.DateTimeField(),
        'hosts': fields.ListOfStringsField(fields.HOST_PATTERN, default=[]),
        'items': fields.ListOfObjectsField('PlanItem', default=[]),
        **{name: fields.FloatField(nullable=True, default=None)
           for name in PLAN_FIGURES},
    }


@versioned.DiffCacheObjectRegistry.register
class Fill(versioned.DiffCacheObject):
    """An object that a plan places on a host and that is not there yet.

    Bytes are those of the transfer, which for a patch are few. ``attempts``
    are those that failed since the host was assigned the object;
    ``error`` is the last one's, and after ``retry_at`` there is another.
    """

    VERSION = '1.0'

    fields = {
        'kind': fields.EnumField(catalogue.KINDS),
        'id': fields.HashField(),
        'active': fields.BooleanField(default=False),
        'bytes_total': fields.NonNegativeIntegerField(default=0),
        'bytes_done': fields.NonNegativeIntegerField(default=0),
        'attempts': fields.NonNegativeIntegerField(default=0),
        'error': fields.TextField(nullable=True, default=None),
        'retry_at': fields.DateTimeField(nullable=True, default=None),
    }
