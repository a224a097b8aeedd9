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
"""Options of ``openstack volume type`` for the SSD cache of hosts.

They become QoS specs of the type, which Nova's driver reads on the host.
"""

import abc
import argparse
import collections.abc
import sys
import typing

from keystoneauth1 import exceptions as ksa_exceptions
from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions

from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.cached_volumes import rates
from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.client.osc import hooks
from diffcache_openstack.client.osc.volume import qos_specs
from diffcache_openstack.client.osc.volume import type_users
from diffcache_openstack.client.osc.volume import write_back
from diffcache_openstack.common.commands import cli
from diffcache_openstack.objects import volume_specs

KEY = volume_specs.PREFIX
MODES = ('write-through', 'write-around', write_back.MODE, 'off')
_SAID: list[formats.Column] = [
    ('Key', 'key', None), ('Value', 'value', None), ('Source', 'source', None)]
# Consumers whose specs reach hosts.
_REACHES_HOSTS = ('front-end', 'both')


class _VolumeType(hooks.Hook):
    """Adds the options to a command about a volume type."""

    arguments = (
        cli.Argument('--ssd-cache', choices=MODES,
                     help='Cache volumes of this type on the SSD of the host'
                          ' of their server, in this mode, or not (off).'
                          ' "volume type set" changes volumes in use, too,'
                          ' unless a setting of the volume says otherwise.'
                          f' {write_back.MEANING}'),
        cli.Argument('--ssd-cache-min', metavar='<size>',
                     type=cli.checked(cli.size()),
                     help='Minimum cache size of each volume, such as 2GiB'),
        cli.Argument('--ssd-cache-max', metavar='<size>',
                     type=cli.checked(cli.size()),
                     help='Maximum cache size of each volume'),
        cli.Argument('--ssd-cache-weight', metavar='<number>',
                     type=cli.checked(cli.positive()),
                     help='Relative value of a hit of these volumes'),
        cli.Argument('--ssd-cache-priority', metavar='<number>',
                     type=cli.checked(cli.positive()),
                     help='On hosts with the policy "priority": volumes with'
                          ' the highest number get space first'),
        cli.Argument('--ssd-cache-sla', metavar='<target>',
                     type=cli.checked(choices.parse_target),
                     help='Target of each volume: hit=0.9 (share of'
                          ' references that hit), or latency=2ms (mean of'
                          ' references)'),
        cli.Argument('--ssd-cache-admission', metavar='<number>',
                     type=cli.whole(1, choices.MAX_ADMISSION),
                     help='Cache a block on this reference to it (1:'
                          ' the first); 2 writes less to the SSD and keeps out'
                          ' what is read only once'))

    def after(self, parsed_args: argparse.Namespace, result: typing.Any
              ) -> typing.Any:
        """Write the options to QoS specs of the type.

        :param result: the exit code, or columns and values to show
        :raises CommandError: they cannot be written, or reach no host
        """
        wanted = _specs(parsed_args)
        failed = isinstance(result, int) and result != 0
        if failed or not wanted:
            return result
        storage = self.cmd.app.client_manager.sdk_connection.block_storage
        with commands.errors_in_words():
            found = storage.find_type(self._name(parsed_args),
                                      ignore_missing=False)
            _write(qos_specs.Client(storage), found, wanted)
            self._follow(found)
            write_back.explain(wanted.get(KEY))
        return result

    def _follow(self, found: typing.Any) -> None:
        """Have volumes of the type follow it; a new one has none."""

    @abc.abstractmethod
    def _name(self, parsed_args: argparse.Namespace) -> str:
        """Return the name or ID of the type."""


class VolumeTypeCreate(_VolumeType):
    """``openstack volume type create --ssd-cache MODE ...``."""

    def _name(self, parsed_args: argparse.Namespace) -> str:
        return parsed_args.name


class VolumeTypeSet(_VolumeType):
    """``openstack volume type set --ssd-cache MODE ...``."""

    def _follow(self, found: typing.Any) -> None:
        try:
            apply(self.cmd.app.client_manager, found)
        except ksa_exceptions.EndpointNotFound:
            # The cache works without the API.
            sys.stderr.write(
                f'Volumes of type {found.name} in use follow it when they are'
                f' attached again: the cloud has no DiffCache API.\n')

    def _name(self, parsed_args: argparse.Namespace) -> str:
        # The command may have given it another name.
        return parsed_args.name or parsed_args.volume_type


class ApplyType(commands.Command):
    """Apply a type to its volumes in use, after its QoS specs were changed

    "openstack volume type set --ssd-cache" does this by itself. Use it after
    "openstack volume qos set", or for hosts that did not answer. Settings of
    single volumes stay.
    """

    examples = ('fast',)
    arguments = (
        cli.Argument('volume_type', metavar='<volume-type>',
                     help='Volume type (name or ID)'),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Call the services.

        :raises CommandError: some volumes could not be changed
        """
        apply(self.app.client_manager, self.connection.block_storage.find_type(
            parsed_args.volume_type, ignore_missing=False))


class CheckType(commands.Lister):
    """Check and list the SSD cache settings of a volume type

    The command fails if there is a key or a value that is not known, or if the
    QoS specs and the extra specs of the type contradict each other.
    """

    examples = ('fast',)
    arguments = ApplyType.arguments

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call Cinder.

        :raises CommandError: what the type says cannot be used
        """
        storage = self.connection.block_storage
        found = storage.find_type(parsed_args.volume_type,
                                  ignore_missing=False)
        specs = _specs_of(qos_specs.Client(storage), found.id)
        _values(found, specs)
        if specs is not None:
            _check_consumer(found, specs, specs.specs)
        return formats.table(_SAID, [
            {'key': key, 'value': value, 'source': source}
            for source, values in (
                ('QoS specs', specs.specs if specs else {}),
                ('extra specs', found.extra_specs or {}))
            for key, value in sorted(values.items())
            if volume_specs.is_ours(key)])


def apply(manager: typing.Any, found: typing.Any) -> None:
    """Have volumes in use follow a type, and others that share its specs.

    :raises CommandError: some could not be changed
    """
    storage = manager.sdk_connection.block_storage
    qos = qos_specs.Client(storage)
    specs = _specs_of(qos, found.id)
    values = {found.name: _values(found, specs)}
    for each in qos.users(specs.id) if specs else ():
        if each.id != found.id:
            other = storage.find_type(each.id, ignore_missing=False)
            values[other.name] = _values(other, specs)
    users = [each for each in storage.volumes(all_projects=True)
             if each.volume_type in values]
    type_users.report(
        found.name, type_users.follow(manager.diffcache, users, values),
        values[found.name].get(KEY, 'off') != 'off')


def _values(found: typing.Any, specs: typing.Any) -> dict[str, str]:
    """Return what a type says of the cache, and limits that this enforces.

    :param specs: QoS specs of the type; None if it has none
    :raises CommandError: it cannot be used
    """
    qos = specs.specs if specs and specs.consumer in _REACHES_HOSTS else {}
    try:
        values = volume_specs.merged(qos, found.extra_specs or {})
        volume_specs.check(values)
    except volume_specs.SpecsError as error:
        raise exceptions.CommandError(
            f'Volume type {found.name} cannot be used: {error}') from error
    limits = {key: value for key, value in qos.items() if rates.is_limit(key)}
    return {**values, **limits}


def _check_consumer(found: typing.Any, specs: typing.Any,
                    keys: collections.abc.Iterable[str]) -> None:
    """Check that keys of QoS specs reach hosts if there is one of ours.

    :raises CommandError: they do not
    """
    if specs.consumer in _REACHES_HOSTS \
            or not any(map(volume_specs.is_ours, keys)):
        return
    raise exceptions.CommandError(
        f'Volume type {found.name} has the QoS specs {specs.name} with the'
        f' consumer {specs.consumer}, which reach no host. Change it'
        f' (openstack volume qos set), or associate others.')


def _specs(parsed_args: argparse.Namespace) -> dict[str, str]:
    """Return the QoS specs that the options are."""
    options = {'': 'ssd_cache', ':min': 'ssd_cache_min',
               ':max': 'ssd_cache_max', ':weight': 'ssd_cache_weight',
               ':priority': 'ssd_cache_priority', ':sla': 'ssd_cache_sla',
               ':admission': 'ssd_cache_admission'}
    return {f'{KEY}{key}': str(value) for key, option in options.items()
            if (value := getattr(parsed_args, option)) is not None}


def _write(qos: qos_specs.Client, found: typing.Any, wanted: dict[str, str]
           ) -> None:
    """Change the QoS specs of a type, or create some.

    :raises CommandError: the type has specs that reach no host
    """
    specs = _specs_of(qos, found.id)
    if specs is None:
        specs = qos.create(_free_name(qos, found), 'front-end', wanted)
        qos.associate(specs.id, found.id)
        return
    _check_consumer(found, specs, wanted)
    qos.update(specs.id, wanted)


def _free_name(qos: qos_specs.Client, found: typing.Any) -> str:
    """Return a name for QoS specs of a type.

    Specs stay when a type is deleted: those that this has left are deleted, as
    names are unique.
    """
    name = f'ssd-cache-{found.name}'
    for specs in qos.all():
        if specs.name == name:
            if qos.users(specs.id):
                # Of a type that was given another name since.
                return f'{name}-{found.id}'
            qos.delete(specs.id)
    return name


def _specs_of(qos: qos_specs.Client, type_id: str) -> qos_specs.Specs | None:
    """Return the QoS specs of a type; None if it has none."""
    for specs in qos.all():
        try:
            users = qos.users(specs.id)
        except sdk_exceptions.NotFoundException:
            continue  # They were deleted meanwhile.
        if any(each.id == type_id for each in users):
            return specs
    return None
