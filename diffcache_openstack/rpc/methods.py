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
"""Methods that cross the message bus: their arguments, and their callers.

Each method of each endpoint has its entry. What is not in these tables is
refused before any code of an endpoint runs, and a unit test walks both tables
with junk in each argument.
"""

import collections.abc
import dataclasses
import typing

from oslo_versionedobjects import fields as oslo_fields

from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.objects import boot_set
from diffcache_openstack.objects import catalogue
from diffcache_openstack.objects import fields
from diffcache_openstack.objects import hydration
from diffcache_openstack.objects import plan as plan_objects
from diffcache_openstack.objects import versions
from diffcache_openstack.objects import volume_cache
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.rpc import agent_api
from diffcache_openstack.rpc import agent_lazy_api
from diffcache_openstack.rpc import agent_volumes_api
from diffcache_openstack.rpc import conductor_control_api
from diffcache_openstack.rpc import conductor_costs_api
from diffcache_openstack.rpc import conductor_lazy_api
from diffcache_openstack.rpc import conductor_versions_api
from diffcache_openstack.rpc import conductor_volumes_api

CONTROLLER = frozenset({host_keys.CONTROLLER})
REPOSITORY = frozenset({host_keys.REPOSITORY, host_keys.CONTROLLER})
HOSTS = frozenset(host_keys.ROLES)
# Without a signature, too: nothing is changed, and nothing secret returned.
ALL: frozenset[str] = frozenset()

MOST_SECONDS = 600.0
MOST_HOSTS = 100_000
# In the SSD cache of a host; those of all its servers are fewer.
MOST_VOLUMES = 65_536
# Of one host.
MOST_SERVERS = 65_536
# At one host.
MOST_BOOT_SETS = 1000
# Whose servers one host runs of one image.
MOST_PROJECTS = 1000

Arguments = dict[str, oslo_fields.Field]
# Names of the hosts that the arguments of a call speak for.
Speakers = collections.abc.Callable[[dict], collections.abc.Iterable[str]]


class Tuple(oslo_fields.FieldType):
    """A list with one element of each of some types."""

    def __init__(self, *elements: oslo_fields.Field) -> None:
        self._elements = elements

    def coerce(self, obj, attr: str, value: typing.Any) -> list:
        """Return the list, with each element checked.

        :raises ValueError: it is none, or of another length
        """
        if not isinstance(value, (list, tuple)) \
                or len(value) != len(self._elements):
            raise ValueError(f'{attr}: {fields.shortened(value)} is no list'
                             f' of {len(self._elements)} elements')
        return [element.coerce(obj, attr, each)
                for element, each in zip(self._elements, value)]


class Record(oslo_fields.FieldType):
    """A mapping with some of certain keys."""

    def __init__(self, **values: oslo_fields.Field) -> None:
        self._values = values

    def coerce(self, obj, attr: str, value: typing.Any) -> dict:
        """Return the mapping, with each value checked.

        :raises ValueError: it is none, or has another key
        """
        if not isinstance(value, dict) or not set(value) <= set(self._values):
            raise ValueError(f'{attr}: {fields.shortened(value)} is no mapping'
                             f' with keys of {sorted(self._values)}')
        return {name: self._values[name].coerce(obj, f'{attr}.{name}', each)
                for name, each in value.items()}


class NumberWithin(oslo_fields.FieldType):
    """A number between two limits, these included."""

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = most

    def coerce(self, obj, attr: str, value: typing.Any) -> float:
        """Return the number.

        :raises ValueError: it is none, or outside the limits
        """
        number = fields.Float().coerce(obj, attr, value)
        if not self._least <= number <= self._most:
            raise ValueError(f'{attr}: {value} is not within {self._least:g}'
                             f' and {self._most:g}')
        return value


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of an endpoint.

    :param callers: roles that may call it; none if all may, unsigned
    :param arguments: by name; those that are nullable may be left out
    :param changes: whether a call changes state, so that none is accepted
        twice
    :param speakers: the hosts that the arguments speak for, each of which has
        to be the caller, unless that is a controller
    """

    callers: frozenset[str]
    arguments: Arguments
    changes: bool = True
    speakers: Speakers = lambda arguments: ()

    def check(self, name: str, arguments: dict) -> None:
        """Check the arguments of a call.

        :param name: of the method, for the message
        :raises InvalidInput: one is missing, unknown, or not as declared
        """
        for unknown in set(arguments) - set(self.arguments):
            raise exceptions.InvalidInput(
                f'{name} has no argument {fields.shortened(unknown)}.')
        for argument, field in self.arguments.items():
            try:
                field.coerce(None, argument, arguments.get(argument))
            except (ValueError, TypeError) as error:
                raise exceptions.InvalidInput(
                    f'{name} was called with an unusable argument:'
                    f' {error}.') from error


Table = dict[tuple[str | None, str], Method]


def _field(kind: oslo_fields.FieldType, **options: typing.Any
           ) -> oslo_fields.Field:
    return oslo_fields.Field(kind, **options)


def _object(name: str) -> oslo_fields.Field:
    return fields.ObjectField(name)


def _objects(name: str) -> oslo_fields.Field:
    return fields.ListOfObjectsField(name)


def _tuples(*elements: oslo_fields.Field, nullable: bool = False
            ) -> oslo_fields.Field:
    return _field(fields.List(Tuple(*elements), fields.MOST_ELEMENTS),
                  nullable=nullable)


def _path() -> oslo_fields.Field:
    return fields.StringField(r'/[^\x00-\x1f\x7f]+', 4096)


def _argument_host(arguments: dict) -> list[str]:
    return [arguments['host']]


def _position(nullable: bool = False) -> oslo_fields.Field:
    """Return the field of a catalogue: its number, and its digest."""
    return _field(Tuple(COUNT, fields.HashField()), nullable=nullable)


HOST = fields.HostField()
SITE = fields.SiteField()
IMAGE = fields.IdField()
UUID = fields.UUIDField()
COUNT = fields.NonNegativeIntegerField()
GENERATION = fields.NonNegativeIntegerField(nullable=True)
LABEL = fields.StringField()
PLACE = fields.StringField(r'[0-9a-f]{16}')
KIND = fields.EnumField(catalogue.KINDS)
RATE = fields.NonNegativeIntegerField(nullable=True)
TERMS = fields.StringField(r'[a-z0-9., ]+', 64)
WINDOW = fields.StringField(nullable=True)

_AGENTS: Table = {
    (None, 'register_host'): Method(
        HOSTS, {'host': _object('Host')},
        speakers=lambda arguments: [arguments['host'].name]),
    (None, 'report_holdings'): Method(
        HOSTS, {'host': HOST, 'holdings': _objects('Holding')},
        speakers=_argument_host),
    (None, 'change_holdings'): Method(
        HOSTS, {'host': HOST, 'added': _objects('Holding'),
                'removed': _objects('Holding'), 'count': COUNT,
                'total': COUNT}, speakers=_argument_host),
    (None, 'report_borrowed'): Method(
        HOSTS, {'host': HOST, 'holdings': _objects('Holding')},
        speakers=_argument_host),
    (None, 'report_network'): Method(
        HOSTS, {'host': HOST, 'network': _object('HostNetwork')},
        speakers=_argument_host),
    (None, 'report_fills'): Method(
        HOSTS, {'host': HOST, 'fills': _objects('Fill')},
        speakers=_argument_host),
    (None, 'report_pending_images'): Method(
        HOSTS, {'host': HOST, 'images': _objects('PendingImage')},
        speakers=_argument_host),
    (None, 'report_volume_caches'): Method(
        HOSTS, {'host': HOST, 'cache': _object('SsdCache'),
                'volumes': fields.ListOfObjectsField(
                    'VolumeCache', MOST_VOLUMES, nullable=True)},
        speakers=_argument_host),
    (None, 'remove_host'): Method(CONTROLLER, {'host': HOST}),
    (None, 'register_template'): Method(
        REPOSITORY, {'template': _object('Template')}),
    (None, 'find_unregistered'): Method(
        REPOSITORY, {
            'host': HOST,
            'templates': _tuples(IMAGE, fields.HashField(),
                                 fields.HashField()),
            'patches': _tuples(fields.HashField(), fields.HashField(),
                               fields.HashField())},
        changes=False, speakers=_argument_host),
    (None, 'get_template'): Method(
        HOSTS, {'template_id': IMAGE}, changes=False),
    (None, 'remove_template'): Method(CONTROLLER, {'template_id': IMAGE}),
    (None, 'register_patch'): Method(
        REPOSITORY, {'patch': _object('Patch')}),
    (None, 'patch_work'): Method(
        REPOSITORY, {'host': HOST, 'terms': TERMS, 'nearest': COUNT,
                     'creations': COUNT}, speakers=_argument_host),
    (None, 'report_sketches'): Method(
        REPOSITORY, {'host': HOST, 'sketches': _objects('ImageSketch')},
        speakers=_argument_host),
    (None, 'report_pairs'): Method(
        REPOSITORY, {'host': HOST, 'terms': TERMS,
                     'pairs': _objects('PairReport')},
        speakers=_argument_host),
    (None, 'get_revoked_keys'): Method(HOSTS, {'known': COUNT}, changes=False),
    (None, 'update_site_map'): Method(
        HOSTS, {'site': SITE, 'generation': GENERATION}, changes=False),
    (None, 'report_requests'): Method(
        HOSTS, {'requests': _objects('Request')},
        speakers=lambda arguments: {
            request.host for request in arguments['requests']}),
    (None, 'plan_now'): Method(CONTROLLER, {'site': SITE}),
    (None, 'get_plan'): Method(HOSTS, {'site': SITE}, changes=False),
}

_CONTROL: Table = {
    (conductor_control_api.NAMESPACE, name): method for name, method in {
        'propose_plan': Method(CONTROLLER, {
            'site': SITE,
            'solver': fields.StringField(r'[a-z0-9_-]{1,64}', nullable=True),
            'time_limit': _field(NumberWithin(0, MOST_SECONDS),
                                 nullable=True)}),
        'apply_plan': Method(CONTROLLER, {'plan_id': UUID,
                                          'generation': GENERATION}),
        'cancel_plan': Method(CONTROLLER, {'plan_id': UUID}),
        'explain_plan': Method(CONTROLLER, {'plan_id': UUID}, changes=False),
        'what_if': Method(CONTROLLER, {
            'site': SITE,
            'changes': _field(Record(
                add_hosts=_field(NumberWithin(0, 1000)),
                capacity_bytes=_field(NumberWithin(-2 ** 60, 2 ** 60)),
                repository_mbps=_field(NumberWithin(0, 10 ** 9)),
                peer_mbps=_field(NumberWithin(0, 10 ** 9)),
                demand_factor=_field(NumberWithin(0, 10 ** 6)))),
            'objective': fields.EnumField(plan_objects.PLAN_OBJECTIVES,
                                          nullable=True)},
            changes=False),
        'create_precache_job': Method(CONTROLLER,
                                      {'job': _object('PrecacheJob'),
                                       'boot_set': fields.BooleanField(
                                           nullable=True)}),
        'update_precache_job': Method(CONTROLLER, {
            'job_id': UUID, 'generation': COUNT,
            'values': _field(Record(
                name=LABEL, priority=COUNT, rate=RATE, window=WINDOW,
                pinned=fields.BooleanField(),
                expires_at=fields.StringField(nullable=True)))}),
        'cancel_precache_job': Method(CONTROLLER, {'job_id': UUID,
                                                   'generation': GENERATION}),
        'retry_precache_job': Method(CONTROLLER, {'job_id': UUID}),
    }.items()}

_COSTS: Table = {
    (conductor_costs_api.NAMESPACE, 'build_costs'): Method(ALL, {
        'image_id': IMAGE,
        'hosts': fields.ListOfStringsField(fields.HOST_PATTERN, MOST_HOSTS)},
        changes=False),
    (conductor_costs_api.NAMESPACE, 'lazy_costs'): Method(ALL, {
        'image_id': IMAGE,
        'hosts': fields.ListOfStringsField(fields.HOST_PATTERN, MOST_HOSTS)},
        changes=False),
    (conductor_costs_api.NAMESPACE, 'ssd_room'): Method(ALL, {
        'server_id': fields.IdField(),
        'hosts': fields.ListOfStringsField(fields.HOST_PATTERN, MOST_HOSTS)},
        changes=False),
}

_ROWS = _field(fields.List(Tuple(COUNT, COUNT, COUNT), profiles.MOST_ROWS))
# A label of a profile, such as a flavor's name.
_PROFILE_LABEL = fields.StringField(profiles.LABEL_PATTERN, 128)

_HYDRATION_SETTINGS = Record(
    deadline=_field(NumberWithin(1, hydration.LONGEST_DEADLINE),
                    nullable=True),
    rate=fields.NonNegativeIntegerField(nullable=True),
    paused=fields.BooleanField())


# Of the conductor, and of agents.
_CHANGE_HYDRATION = Method(CONTROLLER, {
    'server_id': IMAGE, 'generation': COUNT,
    'wanted': _field(_HYDRATION_SETTINGS)})

_LAZY: Table = {
    (conductor_lazy_api.NAMESPACE, name): method for name, method in {
        'exchange_reads': Method(
            HOSTS, {'host': HOST, 'image_id': IMAGE,
                    'projects': fields.ListOfStringsField(
                        fields.ID_PATTERN, MOST_PROJECTS),
                    'label': _PROFILE_LABEL, 'run': COUNT, 'number': COUNT,
                    'rows': _ROWS, 'known_id': fields.UUIDField(nullable=True),
                    'known_generation': GENERATION},
            speakers=_argument_host),
        'import_profile': Method(CONTROLLER, {
            'profile_id': UUID, 'image_id': IMAGE,
            'project_id': fields.IdField(nullable=True),
            'label': _PROFILE_LABEL, 'rows': _ROWS}),
        'delete_profile': Method(CONTROLLER, {'profile_id': UUID}),
        'report_hydrations': Method(
            HOSTS, {'host': HOST, 'hydrations': fields.ListOfObjectsField(
                'Hydration', MOST_SERVERS)}, speakers=_argument_host),
        'change_hydration': _CHANGE_HYDRATION,
        'carry_work': Method(
            REPOSITORY, {'host': HOST,
                         'after': fields.IdField(nullable=True)},
            changes=False, speakers=_argument_host),
        'report_carried': Method(
            REPOSITORY, {'host': HOST, 'image_id': IMAGE, 'profile_id': UUID,
                         'rows': _ROWS}, speakers=_argument_host),
        'exchange_boot_sets': Method(
            HOSTS, {'host': HOST, 'sets': _field(fields.List(Tuple(
                fields.HashField(), COUNT,
                fields.EnumField(boot_set.STATES),
                fields.TextField(nullable=True)), MOST_BOOT_SETS)),
                'known': GENERATION}, speakers=_argument_host),
    }.items()}

_VERSIONS: Table = {
    (conductor_versions_api.NAMESPACE, name): method for name, method in {
        'create_version': Method(CONTROLLER, {'new': _object('NewVersion')}),
        'update_version': Method(CONTROLLER, {
            'version_id': UUID, 'generation': COUNT,
            'values': _field(Record(
                name=LABEL, description=fields.TextField(),
                protected=fields.BooleanField()))}),
        'delete_version': Method(CONTROLLER, {'version_id': UUID}),
        'restore_version': Method(CONTROLLER, {
            'version_id': UUID, 'task_id': UUID,
            'keep_version': fields.UUIDField(nullable=True),
            'dry_run': fields.BooleanField(),
            'way': fields.EnumField(versions.METHODS, nullable=True)}),
        'export_version': Method(CONTROLLER, {
            'version_id': UUID, 'task_id': UUID, 'name': LABEL}),
        'diff_versions': Method(CONTROLLER, {
            'version_id': UUID, 'against': UUID, 'task_id': UUID}),
        'verify_versions': Method(CONTROLLER, {'project_id': IMAGE,
                                               'task_id': UUID}),
        'rotate_key': Method(CONTROLLER, {'project_id': IMAGE,
                                          'task_id': UUID}),
        'cancel_task': Method(CONTROLLER, {'task_id': UUID}),
        'set_policy': Method(CONTROLLER,
                             {'policy': _object('VersionPolicy')}),
        'unset_policy': Method(CONTROLLER, {'policy_id': UUID}),
        'report_task': Method(HOSTS, {'report': _object('TaskReport')}),
        'open_version': Method(
            HOSTS, {'host': HOST, 'version_id': UUID, 'project_id': IMAGE},
            speakers=_argument_host),
        'close_version': Method(
            HOSTS, {'host': HOST, 'version_id': UUID},
            speakers=_argument_host),
        'read_head': Method(
            HOSTS, {'host': HOST, 'task_id': UUID, 'place': PLACE},
            changes=False, speakers=_argument_host),
        'move_head': Method(
            HOSTS, {'host': HOST, 'task_id': UUID, 'place': PLACE,
                    'base': _position(nullable=True), 'head': _position()},
            speakers=_argument_host),
        'begin_local': Method(
            HOSTS, {'host': HOST, 'new': _object('NewVersion')},
            speakers=_argument_host),
    }.items()}

_VOLUME_SETTINGS = Record(
    limit=fields.NonNegativeIntegerField(nullable=True),
    min=fields.NonNegativeIntegerField(nullable=True),
    max=fields.NonNegativeIntegerField(nullable=True),
    weight=fields.NonNegativeFloatField(nullable=True),
    priority=fields.NonNegativeFloatField(nullable=True),
    mode=fields.EnumField(volume_cache.MODES, nullable=True),
    sla=fields.StringField(nullable=True),
    # Services of the release before refuse it.
    admission=fields.NonNegativeIntegerField(nullable=True))


# All of them, and nothing of one volume alone.
_TYPE_SETTINGS = Record(
    min=fields.NonNegativeIntegerField(),
    max=fields.NonNegativeIntegerField(nullable=True),
    weight=fields.NonNegativeFloatField(),
    priority=fields.NonNegativeFloatField(nullable=True),
    mode=fields.EnumField(volume_cache.MODES),
    sla=fields.StringField(nullable=True),
    sequential=fields.NonNegativeIntegerField(nullable=True),
    admission=fields.NonNegativeIntegerField(nullable=True))


def _volumes(namespace: str) -> Table:
    """Return the methods for volumes, which both services have."""
    return {(namespace, name): method for name, method in {
        'change_volume': Method(CONTROLLER, {
            'volume_id': IMAGE, 'generation': COUNT,
            'settings': _field(_VOLUME_SETTINGS)}),
        'follow_type': Method(CONTROLLER, {
            'volume_id': IMAGE, 'settings': _field(_TYPE_SETTINGS)}),
        'flush_volume': Method(CONTROLLER, {'volume_id': IMAGE}),
        'invalidate_volume': Method(CONTROLLER, {'volume_id': IMAGE}),
        'accept_loss': Method(CONTROLLER, {'volume_id': IMAGE}),
    }.items()}


CONDUCTOR: Table = {**_AGENTS, **_CONTROL, **_COSTS, **_LAZY, **_VERSIONS,
                    **_volumes(conductor_volumes_api.NAMESPACE)}

AGENT: Table = {
    **_volumes(agent_volumes_api.NAMESPACE),
    (agent_volumes_api.NAMESPACE, 'volume_use'): Method(
        HOSTS, {'volume_id': IMAGE}, changes=False),
    (agent_lazy_api.NAMESPACE, 'change_hydration'): _CHANGE_HYDRATION,
    (None, 'hold'): Method(CONTROLLER, {
        'generation': COUNT,
        'items': _tuples(KIND, fields.HashField(),
                         fields.NonNegativeFloatField()),
        'shares': _tuples(
            KIND, fields.HashField(), LABEL, RATE,
            fields.ListOfStringsField(max_items=1000), nullable=True)}),
    (None, 'site_map_changed'): Method(CONTROLLER, {'generation': COUNT}),
    (None, 'get_image'): Method(CONTROLLER, {
        'template_id': IMAGE, 'output': _path(),
        'mode': fields.StringField(r'[a-z_]{1,32}', nullable=True)}),
    (None, 'register_image'): Method(CONTROLLER, {
        'path': _path(), 'template_id': IMAGE, 'name': LABEL}),
    (None, 'create_patch'): Method(HOSTS, {
        'target': fields.HashField(),
        'bases': fields.ListOfStringsField(fields.HASH_PATTERN,
                                           agent_api.MOST_BASES),
        'seconds': _field(NumberWithin(0, agent_api.MOST_SECONDS)),
        'mbps': _field(NumberWithin(1e-6, 1e9))}),
    (None, 'await_image'): Method(HOSTS, {
        'image_id': IMAGE, 'size': COUNT,
        'mbps': _field(NumberWithin(1e-6, 1e9))}),
    (None, 'verify_object'): Method(HOSTS, {
        'kind': KIND, 'object_id': fields.HashField()}),
    (None, 'status'): Method(HOSTS, {}, changes=False),
    (conductor_versions_api.NAMESPACE, 'perform'): Method(
        CONTROLLER, {'task': _object('VersionTask')}),
    (conductor_versions_api.NAMESPACE, 'cancel'): Method(
        CONTROLLER, {'task_id': UUID}),
}
