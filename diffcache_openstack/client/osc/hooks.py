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
"""Options added to existing commands of the openstack client."""

import argparse
import time
import typing

from cliff import hooks
from osc_lib import exceptions

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc.image import precache
from diffcache_openstack.client.osc.server import version_commands
from diffcache_openstack.client.osc.server import version_images
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common.commands import command_groups

# Read by the repository when an image is added to the catalogue.
BASE_PROPERTY = 'diffcache_base_image'
# Read by the weigher of Nova's scheduler.
PREFER_HINT = 'diffcache:prefer_cached'
# Read by Nova's driver: of servers' metadata and flavors' extra specs, and of
# images' properties. The weigher reads the hint of that name.
BOOT_MODE = 'diffcache:boot_mode'
BOOT_MODE_PROPERTY = 'diffcache_boot_mode'
LAZY = 'lazy'
BOOT_MODES = ('full', LAZY)
# Of servers' metadata: the label of the profile that they boot with.
PROFILE = 'diffcache:profile'
# Of servers' metadata: deadline and rate of the hydration, for a lazy boot.
HYDRATE_BY = 'diffcache:hydrate_by'
HYDRATE_RATE = 'diffcache:hydrate_rate'
# As long as Nova keeps a base image that no server uses, by default.
_LIFETIME = '1d'


class Hook(hooks.CommandHook):
    """Base class of hooks: changes nothing."""

    cmd: typing.Any
    arguments: cli.Arguments = ()

    def get_parser(self, parser: argparse.ArgumentParser
                   ) -> argparse.ArgumentParser:
        """Add the declared options."""
        cli.add_declared(type(self), parser)
        return parser

    def get_epilog(self) -> str:
        return ''

    def before(self, parsed_args: argparse.Namespace) -> argparse.Namespace:
        """Return the arguments unchanged."""
        return parsed_args

    def after(self, parsed_args: argparse.Namespace, return_code: int
              ) -> int:
        """Return the exit code unchanged."""
        return return_code


class Complete(Hook):
    """``openstack complete``."""

    def before(self, parsed_args: argparse.Namespace) -> argparse.Namespace:
        """Leave out groups: cliff's data has one entry for a word."""
        commands = self.cmd.app.command_manager.commands
        for name in list(commands):
            if command_groups.is_group(commands[name]):
                del commands[name]
        return parsed_args


class BootMode(Hook):
    """Adds ``--boot-mode`` to a command that sets properties.

    :cvar key: property that it sets
    """

    key = BOOT_MODE

    arguments: cli.Arguments = (
        cli.Argument('--boot-mode', choices=BOOT_MODES,
                     help='Start servers when their whole image is on the'
                          ' host (full), or while it arrives (lazy); a'
                          " server's setting overrides its flavor's, and a"
                          " flavor's its image's"),)

    def before(self, parsed_args: argparse.Namespace) -> argparse.Namespace:
        """Set the property."""
        if parsed_args.boot_mode:
            parsed_args.properties = {**(parsed_args.properties or {}),
                                      self.key: parsed_args.boot_mode}
        return parsed_args


class FlavorCreate(BootMode):
    """``openstack flavor create --boot-mode MODE``."""


class FlavorSet(BootMode):
    """``openstack flavor set --boot-mode MODE``."""


class ImageSet(BootMode):
    """``openstack image set --boot-mode MODE``."""

    key = BOOT_MODE_PROPERTY


class ImageCreate(BootMode):
    """``openstack image create --base-image IMAGE --boot-mode MODE``."""

    key = BOOT_MODE_PROPERTY

    arguments = (
        cli.Argument('--base-image', metavar='<image>',
                     help='Prefer this image as patch base: the one that the'
                          ' new image was derived from (name or ID)'),)

    def before(self, parsed_args: argparse.Namespace) -> argparse.Namespace:
        """Record the family and the boot mode as properties of the image."""
        super().before(parsed_args)
        if parsed_args.base_image:
            with commands.errors_in_words():
                image = commands.find_image(
                    self.cmd.app.client_manager.image,
                    parsed_args.base_image)
            parsed_args.properties = {**(parsed_args.properties or {}),
                                      BASE_PROPERTY: image.id}
        return parsed_args


def _seconds(text: str) -> int:
    return max(1, round(cli.seconds()(text)))


_FROM_VERSION = cli.Argument(
    '--from-version', metavar='<version>',
    help='Use this version of a server (ID) instead of an image; it is'
         ' exported as an image first if needed, unless --boot-mode is lazy:'
         ' then the server boots while its disk arrives from the version'
         ' store. A server that is created gets new volumes in place of those'
         ' of the version')


def _use_version(hook, parsed_args, takes_volumes):
    """Use the image of a version as if it had been given as the image.

    For a lazy boot that is one that stands for it; otherwise it is exported.

    :param takes_volumes: the version may have volumes besides
    :returns: the version; None if none is named
    :raises CommandError: both are named, or the version has disks that the
        server would lack
    """
    if not parsed_args.from_version:
        return None
    if parsed_args.image:
        raise exceptions.CommandError(
            'Give either --image or --from-version.')
    manager = hook.cmd.app.client_manager
    client = manager.diffcache
    with commands.errors_in_words():
        version = client.get_server_version(parsed_args.from_version)
        _refuse_parts(version, takes_volumes)
        parsed_args.image = (
            version_images.stand_in(manager.image, version,
                                    {BOOT_MODE_PROPERTY: LAZY})
            if parsed_args.boot_mode == LAZY
            else version_commands.export(client, version.id))
    return version


def _create_volumes(client, version, parsed_args):
    """Have Nova create volumes in place of those of a version."""
    first, *others = version.disks
    if first['volume_id'] and not parsed_args.boot_from_volume:
        parsed_args.boot_from_volume = _gib(first)
    with commands.errors_in_words():
        parsed_args.block_devices = [
            *(parsed_args.block_devices or ()),
            *({'uuid': version_commands.export(
                   client, version.id, device=disk['device'],
                   name=f'version {version.id} {disk["device"]}'),
               'source_type': 'image', 'destination_type': 'volume',
               'volume_size': _gib(disk)} for disk in others)]


def _gib(disk):
    return -(-disk['size'] // 2 ** 30)


def _refuse_parts(version, takes_volumes):
    """Refuse a version of which a server would have only a part.

    :raises CommandError: it has several disks
    """
    others = [disk for disk in version.disks[1:]
              if not (takes_volumes and disk['volume_id'])]
    if not others:
        return
    devices = [disk['device'] for disk in version.disks]
    raise exceptions.CommandError(
        f'Version {version.id} has {len(devices)} disks'
        f' ({", ".join(devices)}), and the server would lack'
        f' {", ".join(disk["device"] for disk in others)}. Export each that'
        f' you need with "openstack server version export {version.id}'
        f' --device {others[0]["device"]}", and give the image of the first'
        f' with --image.')


class ServerRebuild(Hook):
    """``openstack server rebuild --from-version VERSION``."""

    arguments = (
        _FROM_VERSION,
        cli.Argument('--boot-mode', choices=BOOT_MODES,
                     help='With --from-version: start the server when its'
                          ' whole disk is on the host (full), or while it'
                          ' arrives (lazy)'))

    def before(self, parsed_args: argparse.Namespace) -> argparse.Namespace:
        """Use the version as an image.

        :raises CommandError: a boot mode is given without a version
        """
        if parsed_args.boot_mode and not parsed_args.from_version:
            raise exceptions.CommandError(
                '--boot-mode is for --from-version. Of other images it is a'
                ' property: openstack image set --boot-mode.')
        _use_version(self, parsed_args, takes_volumes=False)
        return parsed_args


class ServerCreate(BootMode):
    """``openstack server create``, with six options.

    ``--prefer-cached``, ``--from-version VERSION``, ``--boot-mode MODE``,
    ``--profile LABEL``, ``--hydrate-by SECONDS`` and ``--hydrate-rate RATE``.
    """

    arguments = (
        cli.Argument('--prefer-cached', action='store_true',
                     help='Prefer hosts that hold the image or can build it'
                          ' fastest'),
        cli.Argument('--profile', metavar='<label>',
                     help='Label of the profile that a lazy boot uses and'
                          ' adds to (default: the name of the flavor)'),
        cli.Argument('--hydrate-by', metavar='<seconds>', type=_seconds,
                     help='With a lazy boot, fetch the whole image within this'
                          ' time of the boot, such as 600 or 10m'),
        cli.Argument('--hydrate-rate', metavar='<rate>', type=cli.rate(),
                     help='With a lazy boot, limit how fast the rest of the'
                          ' image is fetched, such as 2MBps (a bare number:'
                          ' bytes per second); reads of guests are not'
                          ' limited'),
        _FROM_VERSION)

    def before(self, parsed_args: argparse.Namespace) -> argparse.Namespace:
        """Add hint and metadata; export the version's disks as images."""
        super().before(parsed_args)
        whole = parsed_args.boot_mode != LAZY
        version = _use_version(self, parsed_args, takes_volumes=whole)
        if version is not None and whole:
            _create_volumes(self.cmd.app.client_manager.diffcache, version,
                            parsed_args)
        given = {PROFILE: parsed_args.profile,
                 HYDRATE_BY: parsed_args.hydrate_by,
                 HYDRATE_RATE: parsed_args.hydrate_rate}
        for key, value in given.items():
            if value:
                parsed_args.properties = {**(parsed_args.properties or {}),
                                          key: str(value)}
        hints = {PREFER_HINT: parsed_args.prefer_cached and 'true',
                 # The scheduler does not get the metadata.
                 BOOT_MODE: parsed_args.boot_mode}
        for key, value in hints.items():
            if value:
                parsed_args.hints = {**(parsed_args.hints or {}),
                                     key: [value]}
        return parsed_args


class AggregateCacheImage(Hook):
    """``openstack aggregate cache image --wait``."""

    arguments = (*precache.WAIT, precache.lifetime(default=_LIFETIME))

    def after(self, parsed_args: argparse.Namespace, return_code: int
              ) -> int:
        """Cache the images in the hosts' caches too, and wait for both.

        A host's own cache may have an image before Nova's has.
        """
        if return_code or not parsed_args.wait:
            return return_code
        manager = self.cmd.app.client_manager
        with commands.errors_in_words():
            aggregate = manager.compute.find_aggregate(
                parsed_args.aggregate, ignore_missing=False)
            images = list(dict.fromkeys(
                commands.find_image(manager.image, name).id
                for name in parsed_args.image))
            job = manager.diffcache.create_precache_job(
                name=f'aggregate cache image {aggregate.name}',
                images=images, aggregates=[str(aggregate.id)],
                expires_at=precache.end_of(parsed_args.lifetime))
            deadline = time.monotonic() + parsed_args.timeout
            precache.wait(manager.diffcache, job, parsed_args.timeout)
            manager.diffcache.wait_for_base_images(
                aggregate.hosts or (), images,
                max(0.0, deadline - time.monotonic()))
        return return_code
