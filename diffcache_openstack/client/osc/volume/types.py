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
import sys
import typing

from keystoneauth1 import exceptions as ksa_exceptions
from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import hooks
from diffcache_openstack.client.osc.volume import type_users
from diffcache_openstack.client.osc.volume import write_back
from diffcache_openstack.common.commands import cli
from diffcache_openstack.ssdcache import server
from diffcache_openstack.ssdcache.sizing import base as sizing

KEY = 'diffcache:ssd_cache'
MODES = ('write-through', 'write-around', write_back.MODE, 'off')
# Consumers whose specs reach hosts.
_REACHES_HOSTS = ('front-end', 'both')


def _checked(parse: typing.Any) -> typing.Any:
    """Return a parser that keeps the text: the host parses it, too."""
    def keep(text: str) -> str:
        try:
            parse(text)
        except sizing.SizingError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return text
    return cli.measured(getattr(parse, 'measure', None), keep)


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
                     type=_checked(cli.size()),
                     help='Cache at least so much of each volume, such as'
                          ' 2GiB'),
        cli.Argument('--ssd-cache-max', metavar='<size>',
                     type=_checked(cli.size()),
                     help='Cache at most so much of each volume'),
        cli.Argument('--ssd-cache-weight', metavar='<number>',
                     type=_checked(cli.positive()),
                     help='What a hit of these volumes is worth beside those'
                          ' of others'),
        cli.Argument('--ssd-cache-priority', metavar='<number>',
                     type=_checked(cli.positive()),
                     help='On hosts with the policy "priority", cache the'
                          ' volumes with the highest number first'),
        cli.Argument('--ssd-cache-sla', metavar='<target>',
                     type=_checked(sizing.parse_target),
                     help='What each volume is to reach: hit=0.9, the part of'
                          ' its references that hit, or latency=2ms, their'
                          ' mean'),
        cli.Argument('--ssd-cache-admission', metavar='<number>', type=int,
                     choices=range(1, server.MAX_ADMISSION + 1),
                     help='Cache a block at this reference to it: 2 writes'
                          ' less to the SSD, and keeps out what is read once'))

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
        volume = self.cmd.app.client_manager.volume
        with commands.errors_in_words():
            found = volume.find_type(self._name(parsed_args),
                                     ignore_missing=False)
            _write(volume, found, wanted)
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
    """Have volumes in use follow their type, after its QoS specs were changed

    "openstack volume type set --ssd-cache" does this by itself. Use it after
    "openstack volume qos set", or for hosts that did not answer. Settings of
    single volumes stay.
    """

    arguments = (
        cli.Argument('volume_type', metavar='<volume-type>',
                     help='Volume type (name or ID)'),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Call the services.

        :raises CommandError: some volumes could not be changed
        """
        manager = self.app.client_manager
        apply(manager, manager.volume.find_type(parsed_args.volume_type,
                                                ignore_missing=False))


def apply(manager: typing.Any, found: typing.Any) -> None:
    """Have volumes in use follow a type, and others that share its specs.

    :raises CommandError: some could not be changed
    """
    volume = manager.volume
    specs = _specs_of(volume, found.id)
    values, names = {}, {found.name}
    if specs is not None:
        names |= {each.name for each
                  in volume.qos_spec_associations(specs.id)}
        if specs.consumer in _REACHES_HOSTS:
            values = {key: value for key, value in specs.specs.items()
                      if key.split(':')[:2] == KEY.split(':')}
    users = (each for each in volume.volumes(all_projects=True)
             if each.volume_type in names)
    type_users.report(
        found.name, type_users.follow(manager.diffcache, users,
                                      values),
        values.get(KEY, 'off') != 'off')


def _specs(parsed_args: argparse.Namespace) -> dict[str, str]:
    """Return the QoS specs that the options are."""
    options = {'': 'ssd_cache', ':min': 'ssd_cache_min',
               ':max': 'ssd_cache_max', ':weight': 'ssd_cache_weight',
               ':priority': 'ssd_cache_priority', ':sla': 'ssd_cache_sla',
               ':admission': 'ssd_cache_admission'}
    return {f'{KEY}{key}': str(value) for key, option in options.items()
            if (value := getattr(parsed_args, option)) is not None}


def _write(volume: typing.Any, found: typing.Any, wanted: dict[str, str]
           ) -> None:
    """Change the QoS specs of a type, or create some.

    :raises CommandError: the type has specs that reach no host
    """
    specs = _specs_of(volume, found.id)
    if specs is None:
        specs = volume.create_qos_spec(name=_free_name(volume, found),
                                       consumer='front-end', **wanted)
        volume.associate_qos_spec(specs.id, found.id)
        return
    if specs.consumer not in _REACHES_HOSTS:
        raise exceptions.CommandError(
            f'Volume type {found.name} has the QoS specs {specs.name} with the'
            f' consumer {specs.consumer}, which reach no host. Change it'
            f' (openstack volume qos set), or associate others.')
    volume.update_qos_spec(specs.id, **wanted)


def _free_name(volume: typing.Any, found: typing.Any) -> str:
    """Return a name for QoS specs of a type.

    Specs stay when a type is deleted: those that this has left are deleted, as
    names are unique.
    """
    name = f'ssd-cache-{found.name}'
    for specs in volume.qos_specs():
        if specs.name == name:
            if any(volume.qos_spec_associations(specs.id)):
                # Of a type that was given another name since.
                return f'{name}-{found.id}'
            volume.delete_qos_spec(specs.id)
    return name


def _specs_of(volume: typing.Any, type_id: str) -> typing.Any:
    """Return the QoS specs of a type; None if it has none."""
    for specs in volume.qos_specs():
        try:
            associated = list(volume.qos_spec_associations(specs.id))
        except sdk_exceptions.NotFoundException:
            continue  # They were deleted meanwhile.
        if any(each.id == type_id for each in associated):
            return specs
    return None
