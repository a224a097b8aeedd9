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
from osc_lib import exceptions

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.client.osc.server import versions
from diffcache_openstack.client.osc import waiting
from diffcache_openstack.common import units

LOG = logging.getLogger(__name__)

_TIMEOUT = 3600.0
_LISTED: list[formats.Column] = [
    ('Server', 'server_id', None), ('Image', 'image_id', None),
    ('Host', 'host', None), ('State', 'state', None),
    ('Percent', 'percent', None), ('Mode', 'mode', None),
    ('Paused', 'is_paused', None),
    ('Expected At', 'expected_at', formats.Time)]
_SHOWN: list[formats.Column] = [
    *_LISTED, ('Project', 'project_id', None),
    ('Chunk', 'chunk', formats.Size), ('Chunks', 'chunks', None),
    ('Present', 'present', None),
    ('Remaining Bytes', 'remaining_bytes', formats.Size),
    ('Bytes Fetched', 'bytes_fetched', formats.Size),
    ('Misses', 'misses', None), ('Stall ms', 'stall_ms', None),
    ('Deadline At', 'deadline_at', formats.Time),
    ('Kept', 'is_kept', None), ('Rate', 'rate', formats.Size),
    ('Measured Rate', 'measured_rate', formats.Size),
    ('Sources', 'sources', None), ('Generation', 'generation', None),
    ('Updated At', 'updated_at', formats.Time)]


class ListHydrations(commands.Lister):
    """List servers that run from images which are still arriving"""

    wide = frozenset({'Image', 'Mode', 'Paused'})

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--image', metavar='<image>', dest='image_id',
                            help='List only servers of this image (ID)')
        parser.add_argument('--host', metavar='<host>',
                            help='List only servers on this host (operators'
                                 ' only)')
        parser.add_argument('--state',
                            choices=('arriving', 'complete', 'unknown'),
                            help='List only those in this state')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        return formats.table(_LISTED, self.client.hydrations(
            **commands.query(parsed_args, 'image_id', 'host', 'state')))


class _HydrationCommand(commands.ShowOne):
    """Base of the commands that concern one server."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the server, and whether to wait."""
        parser = super().get_parser(prog_name)
        parser.add_argument('server', metavar='<server>',
                            help='Server (name or ID)')
        parser.add_argument('--wait', action='store_true',
                            help='Wait until the image is whole')
        parser.add_argument('--timeout', metavar='<seconds>', type=float,
                            default=_TIMEOUT,
                            help='Wait at most so long (default: 3600)')
        return parser

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
    """Show how far the image is that a server runs from"""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        return self.shown(versions.server_id(
            self.connection, parsed_args.server), parsed_args)


class SetHydration(_HydrationCommand):
    """Set when the image is to be whole that a server runs from

    Servers of one image on one host share it.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--deadline', metavar='<seconds>', type=_seconds,
                            help='Have it whole within so many seconds from'
                                 ' now; "none" for no deadline')
        parser.add_argument('--rate', metavar='<size>', type=_rate,
                            help='Fetch at most so much per second besides'
                                 ' what guests read, such as 2MB; "none" for'
                                 ' no limit')
        paused = parser.add_mutually_exclusive_group()
        paused.add_argument('--pause', dest='paused', action='store_const',
                            const=True,
                            help='Fetch only what guests read')
        paused.add_argument('--resume', dest='paused', action='store_const',
                            const=False,
                            help='Return to the former mode and deadline')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service.

        :raises CommandError: nothing is to be changed
        """
        values = {name: None if value == 'none' else value
                  for name in ('deadline', 'rate', 'paused')
                  if (value := getattr(parsed_args, name)) is not None}
        if not values:
            raise exceptions.CommandError(
                'Nothing to change; see --help for the options.')
        server_id = versions.server_id(self.connection, parsed_args.server)
        self.client.update_hydration(server_id, **values)
        return self.shown(server_id, parsed_args)


def _seconds(text: str) -> int | str:
    return text if text == 'none' else int(text)


def _rate(text: str) -> int | str:
    if text == 'none':
        return text
    try:
        return units.parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
