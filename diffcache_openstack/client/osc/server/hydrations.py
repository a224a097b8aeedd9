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
"""``openstack server hydration``."""

import argparse
import logging
import sys
import typing

from openstack import exceptions as sdk_exceptions

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.client.osc import waiting
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli

LOG = logging.getLogger(__name__)

_SETTINGS = ('deadline', 'rate')
_LISTED: list[formats.Column] = [
    ('Server', 'server_id', None), ('Image', 'image_id', None),
    ('Host', 'host', None), ('State', 'state', None),
    ('Percent', 'percent', None), ('Mode', 'mode', None),
    ('Paused', 'is_paused', None),
    ('Expected At', 'expected_at', cells.Time)]
_SHOWN: list[formats.Column] = [
    *_LISTED, ('Project', 'project_id', None),
    ('Chunk', 'chunk', cells.Size), ('Chunks', 'chunks', None),
    ('Present', 'present', None),
    ('Remaining Bytes', 'remaining_bytes', cells.Size),
    ('Bytes Fetched', 'bytes_fetched', cells.Size),
    ('Misses', 'misses', None), ('Stall ms', 'stall_ms', None),
    ('Deadline At', 'deadline_at', cells.Time),
    ('Kept', 'is_kept', None), ('Rate', 'rate', cells.Size),
    ('Measured Rate', 'measured_rate', cells.Size),
    ('Sources', 'sources', None), ('Generation', 'generation', None),
    ('Updated At', 'updated_at', cells.Time)]


def _deadline(text):
    return round(cli.seconds()(text))


class ListHydrations(commands.Lister):
    """List servers that run from images which are still arriving"""

    examples = ('--state arriving',)
    wide = frozenset({'Image', 'Mode', 'Paused'})

    arguments = (
        *commands.filters('servers', image='of this image'),
        cli.Argument('--host', metavar='<host>',
                     help='List only servers on this host (operators only)'),
        commands.state('servers', 'arriving', 'complete', 'unknown'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        self.name_images(parsed_args, 'image')
        parsed_args.image_id = parsed_args.image
        return formats.table(_LISTED, self.client.hydrations(
            **commands.query(parsed_args, 'image_id', 'host', 'state')))


class _HydrationCommand(commands.ServerCommand, commands.ShowOne):
    """Base of the commands that concern one hydration."""

    arguments: cli.Arguments = (*commands.wait('the image is whole'),)

    def shown(self, server_id: str, parsed_args: argparse.Namespace
              ) -> tuple:
        """Return the fields of a hydration, after the wait if there is one.

        :raises NotFoundException: the server was deleted meanwhile
        """
        found = self.client.get_hydration(server_id)
        if parsed_args.wait:
            found = self._wait(found, parsed_args.timeout)
        return formats.fields(_SHOWN, found)

    def _wait(self, hydration: typing.Any, timeout: float) -> typing.Any:
        """Return a hydration as it was seen last.

        A server that runs from a whole file is listed no more.
        """
        seen = [hydration]
        with waiting.Bar('Arriving', sys.stderr) as bar:
            def note(found: typing.Any) -> None:
                seen.append(found)
                bar.show(found.present or 0, found.chunks or 0, 'chunks')

            try:
                self.client.wait_for_hydration(hydration, timeout,
                                               progress=note)
            except sdk_exceptions.NotFoundException:
                self.connection.compute.find_server(hydration.server_id,
                                                    ignore_missing=False)
                LOG.warning('Server %s is listed no more: it does not read'
                            ' its image as it arrives. What is shown was seen'
                            ' last.', hydration.server_id)
        return seen[-1]


class ShowHydration(_HydrationCommand):
    """Show how much of the image that a server runs from has arrived"""

    examples = ('web-1 --wait',)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return self.shown(self.server_id(parsed_args.server), parsed_args)


class _HydrationChange(_HydrationCommand):
    """Base of the commands that change a hydration."""

    def change(self, parsed_args: argparse.Namespace,
               values: dict[str, typing.Any]) -> tuple:
        """Change it; return its fields."""
        server_id = self.server_id(parsed_args.server)
        self.client.update_hydration(server_id, **values)
        return self.shown(server_id, parsed_args)


class SetHydration(_HydrationChange):
    """Set the deadline for the hydration of a server's image

    Servers of one image on one host share it.
    """

    examples = ('web-1 --deadline 1h --rate 20MBps', 'web-1 --paused')
    arguments = (
        cli.Argument('--deadline', metavar='<seconds>', type=_deadline,
                     help='Fetch the whole image within this time from now,'
                          ' such as 600 or 10m'),
        cli.Argument('--rate', metavar='<rate>', type=cli.rate(),
                     help='Limit how fast the rest of the image is fetched,'
                          ' such as 2MBps (a bare number: bytes per second);'
                          ' reads of guests are not limited'),
        cli.pair('paused', 'unpaused',
                 ('Fetch only what guests read',
                  'Return to the former mode and deadline')))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return self.change(parsed_args, commands.changes(
            parsed_args, *_SETTINGS, 'paused'))


class UnsetHydration(_HydrationChange):
    """Remove the deadline or the rate limit of a hydration"""

    examples = ('web-1 --deadline',)
    arguments = commands.unset(*_SETTINGS)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return self.change(parsed_args, dict.fromkeys(commands.changes(
            parsed_args, *_SETTINGS)))
