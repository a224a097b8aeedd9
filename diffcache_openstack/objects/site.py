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
"""What is where: hosts, what they hold, and the map of a site."""


from diffcache_openstack.objects import catalogue
from diffcache_openstack.objects import fields
from diffcache_openstack.objects import versioned

COMPUTE = 'compute'
REPOSITORY = 'repository'


@versioned.DiffCacheObjectRegistry.register
class Holding(versioned.DiffCacheObject):
    """An object that a host holds; ``bytes`` is its space on disk."""

    VERSION = '1.0'

    fields = {
        'kind': fields.EnumField(catalogue.KINDS),
        'id': fields.HashField(),
        'bytes': fields.NonNegativeIntegerField(default=0),
    }


@versioned.DiffCacheObjectRegistry.register
class Host(versioned.DiffCacheObject):
    """A host that runs an agent.

    ``capacity`` is in bytes. ``plan_generation`` is that of the last plan the
    host accepted, 0 for none.
    """

    VERSION = '1.0'

    fields = {
        'name': fields.HostField(),
        'site': fields.SiteField(),
        'role': fields.EnumField((COMPUTE, REPOSITORY)),
        'url': fields.StringField(r'https?://[^\x00-\x20\x7f]+',
                                  nullable=True, default=None),
        'capacity': fields.NonNegativeIntegerField(default=0),
        'alive': fields.BooleanField(default=True),
        'plan_generation': fields.NonNegativeIntegerField(default=0),
        'seen_at': fields.DateTimeField(nullable=True, default=None),
        'holdings': fields.ListOfObjectsField('Holding', default=[]),
    }


@versioned.DiffCacheObjectRegistry.register
class HeartbeatAnswer(versioned.DiffCacheObject):
    """Numbers by which a host sees whether it lacks something.

    ``map_generation`` is that of its site's map, ``revoked_number`` that of
    the list of revoked keys.
    """

    VERSION = '1.0'

    fields = {
        'map_generation': fields.NonNegativeIntegerField(),
        'revoked_number': fields.NonNegativeIntegerField(default=0),
    }


@versioned.DiffCacheObjectRegistry.register
class RepositoryStanding(versioned.DiffCacheObject):
    """A repository as one host sees it.

    ``since`` is when it stopped to answer, and ``reason`` how that showed;
    the counters begin with the start of the host's agent. ``mbps`` is what
    the host received at, none until that was measured.
    """

    VERSION = '1.0'

    fields = {
        'name': fields.HostField(),
        'answers': fields.BooleanField(default=True),
        'since': fields.DateTimeField(nullable=True, default=None),
        'reason': fields.TextField(nullable=True, default=None),
        'mbps': fields.NonNegativeFloatField(nullable=True, default=None),
        'transfers': fields.NonNegativeIntegerField(default=0),
        'failures': fields.NonNegativeIntegerField(default=0),
        'bytes': fields.NonNegativeIntegerField(default=0),
    }


@versioned.DiffCacheObjectRegistry.register
class HostNetwork(versioned.DiffCacheObject):
    """When a host fills its cache, and what it measured of its links.

    ``fill_rate`` is in bytes per second, none if there is no limit; without
    ``fill_windows`` fills may always run. ``peer_mbps`` is none until it was
    measured.
    """

    VERSION = '1.0'

    fields = {
        'fill_rate': fields.NonNegativeIntegerField(nullable=True,
                                                    default=None),
        'fill_windows': fields.ListOfStringsField(max_items=100, default=[]),
        'peer_mbps': fields.NonNegativeFloatField(nullable=True,
                                                  default=None),
        'repositories': fields.ListOfObjectsField('RepositoryStanding', 1000,
                                                  default=[]),
    }


@versioned.DiffCacheObjectRegistry.register
class HostLinks(versioned.DiffCacheObject):
    """Mbit/s at which a host receives from its peers and the repository."""

    VERSION = '1.0'

    fields = {
        'host': fields.HostField(),
        'peer': fields.FloatField(),
        'repo': fields.FloatField(),
    }


@versioned.DiffCacheObjectRegistry.register
class RepositoryLink(versioned.DiffCacheObject):
    """Mbit/s at which hosts of a site receive from a repository."""

    VERSION = '1.0'

    fields = {
        'name': fields.HostField(),
        'mbps': fields.FloatField(),
    }


@versioned.DiffCacheObjectRegistry.register
class Links(versioned.DiffCacheObject):
    """Mbit/s at which hosts of a site receive, by the source of the bytes.

    ``hosts`` are those that differ from the others. ``repo`` is the rate from
    repositories that ``repositories`` does not name.
    """

    VERSION = '1.0'

    fields = {
        'local': fields.FloatField(),
        'peer': fields.FloatField(),
        'repo': fields.FloatField(),
        'hosts': fields.ListOfObjectsField('HostLinks', default=[]),
        'repositories': fields.ListOfObjectsField('RepositoryLink',
                                                  default=[]),
    }


@versioned.DiffCacheObjectRegistry.register
class HostHoldings(versioned.DiffCacheObject):
    """What changed of the objects of a host.

    ``held`` are objects that it holds, ``gone`` those that it does not hold
    any more; or ``held`` are all (``whole``).
    """

    VERSION = '1.0'

    fields = {
        'host': fields.HostField(),
        'whole': fields.BooleanField(default=False),
        'held': fields.ListOfObjectsField('Holding', default=[]),
        'gone': fields.ListOfObjectsField('Holding', default=[]),
    }


@versioned.DiffCacheObjectRegistry.register
class MapChange(versioned.DiffCacheObject):
    """What changed of a site's map between two generations.

    ``images``, ``patches`` and ``hosts`` are new or changed, the others
    are gone. ``hosts`` are without their objects, of which ``holdings`` has
    the changes. ``digest`` is that of the resulting map (sites.map_state).
    """

    VERSION = '1.0'

    fields = {
        'site': fields.SiteField(),
        'previous': fields.NonNegativeIntegerField(),
        'generation': fields.NonNegativeIntegerField(),
        'images': fields.ListOfObjectsField('Image', default=[]),
        'gone_images': fields.ListOfStringsField(fields.ID_PATTERN,
                                                 default=[]),
        'patches': fields.ListOfObjectsField('Patch', default=[]),
        'gone_patches': fields.ListOfStringsField(fields.HASH_PATTERN,
                                                  default=[]),
        'hosts': fields.ListOfObjectsField('Host', default=[]),
        'gone_hosts': fields.ListOfStringsField(fields.HOST_PATTERN,
                                                default=[]),
        'holdings': fields.ListOfObjectsField('HostHoldings', default=[]),
        'links': fields.ObjectField('Links', nullable=True, default=None),
        'hops': fields.NonNegativeIntegerField(default=0),
        'digest': fields.StringField(r'[0-9a-f]{32}', nullable=True,
                                     default=None),
    }


@versioned.DiffCacheObjectRegistry.register
class SiteMap(versioned.DiffCacheObject):
    """All that an agent needs to serve requests without the conductor.

    ``images`` and ``patches`` are the whole catalogue; ``hosts`` are those
    of the site and every repository. ``generation`` grows with each change.
    ``hops`` are the patches that may be applied one after another; 0 if the
    sender does not say.
    """

    VERSION = '1.0'

    fields = {
        'site': fields.SiteField(),
        'generation': fields.NonNegativeIntegerField(),
        'images': fields.ListOfObjectsField('Image', default=[]),
        'patches': fields.ListOfObjectsField('Patch', default=[]),
        'hosts': fields.ListOfObjectsField('Host', default=[]),
        'links': fields.ObjectField('Links'),
        'hops': fields.NonNegativeIntegerField(default=0),
    }
