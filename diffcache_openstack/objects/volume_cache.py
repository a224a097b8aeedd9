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
"""SSD caches of hosts, and the volumes in them, as agents report them."""

from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.cached_volumes import hot_blocks
from diffcache_openstack.cached_volumes import rates
from diffcache_openstack.objects import fields
from diffcache_openstack.objects import versioned

OK = 'ok'
FAILED = 'failed'
UNREACHABLE = 'unreachable'
STATES = (OK, FAILED, UNREACHABLE)
MODES = ('write-through', 'write-back', 'write-around', 'pass-through')
# Of a host's decisions, the latest.
MOST_DECISIONS = 10
# Of a curve.
MOST_STEPS = 200
# Of an explanation.
MOST_LINES = 20
# Places of a volume that its storage lost, of which hosts report this many.
MOST_LOSSES = 100


@versioned.DiffCacheObjectRegistry.register
class SizingDecision(versioned.DiffCacheObject):
    """Sizes of the volumes of a host's SSD cache, decided after an epoch.

    ``explain`` has sentences with numbers about the whole cache.
    """

    VERSION = '1.0'

    fields = {
        'time': fields.DateTimeField(),
        'policy': fields.StringField(),
        'changed': fields.BooleanField(),
        'explain': fields.ListOfStringsField(max_items=MOST_LINES),
    }


@versioned.DiffCacheObjectRegistry.register
class SsdCache(versioned.DiffCacheObject):
    """The SSD cache of a host.

    ``capacity`` is in blocks, 0 if the device does not work; ``epoch`` in
    seconds; the latest of ``decisions`` is the first.
    """

    VERSION = '1.0'

    fields = {
        'state': fields.EnumField(STATES),
        'capacity': fields.NonNegativeIntegerField(default=0),
        'policy': fields.StringField(),
        'epoch': fields.NonNegativeIntegerField(),
        'decisions': fields.ListOfObjectsField(
            'SizingDecision', max_items=MOST_DECISIONS, default=[]),
    }


@versioned.DiffCacheObjectRegistry.register
class VolumeCurve(versioned.DiffCacheObject):
    """What was requested of a volume in the last epoch.

    ``distinct`` is its working set in blocks, ``sampled`` the part of the
    blocks that the curve is of. A partition of ``sizes`` blocks would have had
    ``hits`` of the ``references``. ``hit_us`` and ``miss_us`` are means.
    """

    VERSION = '1.0'

    fields = {
        'seconds': fields.NonNegativeFloatField(),
        'references': fields.NonNegativeIntegerField(),
        'distinct': fields.NonNegativeIntegerField(),
        'sampled': fields.NonNegativeFloatField(),
        'hit_us': fields.NonNegativeFloatField(),
        'miss_us': fields.NonNegativeFloatField(),
        'sizes': fields.ListOfCountsField(max_items=MOST_STEPS),
        'hits': fields.ListOfCountsField(max_items=MOST_STEPS),
    }


@versioned.DiffCacheObjectRegistry.register
class VolumeUse(versioned.DiffCacheObject):
    """How a volume is used on its host, for the host that it moves to.

    ``blocks`` has the numbers of those that would stay in the cache the
    longest, see :mod:`diffcache_openstack.cached_volumes.hot_blocks`. No data.
    """

    VERSION = '1.0'

    fields = {
        'curve': fields.ObjectField('VolumeCurve', nullable=True,
                                    default=None),
        'blocks': fields.StringField(hot_blocks.PATTERN,
                                     hot_blocks.MOST_CHARACTERS),
    }


@versioned.DiffCacheObjectRegistry.register
class VolumeCache(versioned.DiffCacheObject):
    """A volume of a server in the SSD cache of its host.

    Counts are in blocks, since the cache was started; ``limit`` is the size of
    the partition. ``min`` to ``admission`` are what the volume is to have;
    ``explain`` says why it has this size, in sentences with numbers.
    ``losses`` are what its storage lost, for which its flushes fail: offset
    and length in bytes, such as ``1048576+4096``. ``guest_path_reason`` says
    why its server reaches it by NBD; there is none for vhost-user. ``rates``
    are what it may do per second, such as ``total_iops_sec=500``.
    """

    VERSION = '1.0'

    fields = {
        'id': fields.IdField(),
        'mode': fields.EnumField(MODES),
        'state': fields.StringField(),
        'limit': fields.NonNegativeIntegerField(),
        'blocks': fields.NonNegativeIntegerField(),
        'dirty': fields.NonNegativeIntegerField(),
        'reads': fields.NonNegativeIntegerField(),
        'writes': fields.NonNegativeIntegerField(),
        'hits': fields.NonNegativeIntegerField(),
        'misses': fields.NonNegativeIntegerField(),
        'evictions': fields.NonNegativeIntegerField(),
        'bypassed': fields.NonNegativeIntegerField(),
        'min': fields.NonNegativeIntegerField(),
        'max': fields.NonNegativeIntegerField(nullable=True, default=None),
        'weight': fields.NonNegativeFloatField(),
        'priority': fields.NonNegativeFloatField(nullable=True,
                                                 default=None),
        'sla': fields.StringField(nullable=True, default=None),
        'admission': fields.NonNegativeIntegerField(nullable=True,
                                                    default=None),
        'generation': fields.NonNegativeIntegerField(default=0),
        'losses': fields.ListOfStringsField(max_items=MOST_LOSSES,
                                            default=[]),
        'guest_path': fields.EnumField(choices.GUEST_PATHS,
                                       default=choices.NBD),
        'guest_path_reason': fields.StringField(nullable=True, default=None),
        'rates': fields.ListOfStringsField(max_items=len(rates.NAMES),
                                           default=[]),
        'explain': fields.ListOfStringsField(max_items=MOST_LINES,
                                             default=[]),
        'curve': fields.ObjectField('VolumeCurve', nullable=True,
                                    default=None),
    }
