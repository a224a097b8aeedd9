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
"""``openstack image cache host``."""

import argparse

from osc_lib import exceptions

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats

_ID_DIGITS = 64
_LISTED: list[formats.Column] = [
    ('Name', 'name', None), ('Site', 'site', None), ('Role', 'role', None),
    ('Alive', 'is_alive', None), ('Objects', 'held.objects', None),
    ('Held', 'held.bytes', formats.Size),
    ('Capacity', 'capacity', formats.Size),
    ('Plan', 'plan', formats.FillShare)]
_SHOWN: list[formats.Column] = [
    *_LISTED[:-1], ('Plan', 'plan', formats.Fill),
    ('Plan Generation', 'plan_generation', None),
    ('Seen At', 'seen_at', formats.Time),
    ('Links', 'link_speeds', formats.Links),
    ('Measured', 'measured', formats.Links),
    ('Fills', 'fill', formats.FillLimits),
    ('Repositories', 'repositories', formats.Standings),
    ('Clients', 'clients', formats.Standings)]
_OBJECTS: list[formats.Column] = [
    ('ID', 'id', formats.Hash), ('Kind', 'kind', None),
    ('Size', 'bytes', formats.Size), ('Images', 'templates', formats.Names)]
_HOLDINGS: list[formats.Column] = [
    ('Host', 'host', None), ('ID', 'object_id', formats.Hash), *_OBJECTS[1:]]
_PENDING: list[formats.Column] = [
    ('Image', 'image_id', None), ('State', 'state', None),
    ('Attempts', 'attempts', None), ('Retry At', 'retry_at', formats.Time),
    ('Reason', 'error', formats.Text)]
_BOOT_SETS: list[formats.Column] = [
    ('Image', 'image_id', None), ('Content', 'content_id', formats.Hash),
    ('State', 'state', None), ('Size', 'bytes', formats.Size),
    ('Held', 'held_bytes', formats.Size), ('Wanted', 'is_wanted', None),
    ('Pinned', 'is_pinned', None), ('Boots Per Day', 'requests', None),
    ('Wait Seconds', 'wait_seconds', None),
    ('From Peer', 'is_from_peer', None),
    ('Saved Seconds Per Day', 'saved_seconds', None),
    ('Message', 'message', formats.Text)]


class ListHosts(commands.Lister):
    """List hosts with a cache and how full they are"""

    wide = frozenset({'Objects'})

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        commands.add_filters(parser, 'hosts', site='of this site')
        parser.add_argument('--role', choices=('compute', 'repository'),
                            help='List only hosts with this role')
        state = parser.add_mutually_exclusive_group()
        state.add_argument('--alive', action='store_true', default=None,
                           help='List only hosts that are alive')
        state.add_argument('--dead', dest='alive', action='store_false',
                           help='List only hosts that are not alive')
        parser.add_argument('--holds', metavar='<hash>',
                            help='List only hosts that hold this object (ID'
                                 ' or its first digits)')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        if parsed_args.holds:
            parsed_args.holds = self._object_id(parsed_args.holds)
        return formats.table(_LISTED, self.client.hosts(**commands.query(
            parsed_args, 'site', 'role', 'alive', 'holds')))

    def _object_id(self, digits):
        """Return the ID of the object that begins with some digits.

        Tables show the first twelve digits only.

        :raises CommandError: no object of the catalogue does, or several do
        """
        if len(digits) == _ID_DIGITS:
            return digits
        known = {template.content_id for template in self.client.templates()}
        known |= {patch.id for patch in self.client.patches()}
        found = sorted(each for each in known
                       if each and each.startswith(digits))
        if len(found) != 1:
            raise exceptions.CommandError(
                f'{len(found)} objects have an ID that begins with'
                f' "{digits}"; see "openstack image cache patch list" and'
                f' "openstack image cache object show".')
        return found[0]


class ShowHost(commands.HostCommand, commands.ShowOne):
    """Show a host with a cache"""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        return formats.fields(_SHOWN,
                              self.client.get_host(parsed_args.host))


class ListHostObjects(commands.Lister):
    """List the objects that a host holds, or the hosts of a site or plan"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        where = parser.add_mutually_exclusive_group(required=True)
        where.add_argument('host', metavar='<host>', nargs='?',
                           help='Name of the host')
        where.add_argument('--site', metavar='<site>',
                           help='List objects of all hosts of this site')
        where.add_argument(
            '--not-in-plan', metavar='<plan>',
            help='List templates and patches that hosts of this plan hold, but'
                 ' that it does not place (ID of the plan)')
        parser.add_argument(
            '--kind', choices=('templates', 'patches', 'manifests', 'recipes'),
            help='List only objects of this kind')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        if parsed_args.host is None:
            return formats.table(_HOLDINGS, self.client.holdings(
                **commands.query(parsed_args, 'site', 'not_in_plan',
                                 'kind')))
        return formats.table(_OBJECTS, self.client.host_objects(
            parsed_args.host, **commands.query(parsed_args, 'kind')))


class ListPendingImages(commands.HostCommand, commands.Lister):
    """List images of Glance that a repository could not add yet, and why

    Images in state waiting_for_space are tried again when the time in Retry At
    has come: free space in the state directory of the repository's agent.
    """

    wide = frozenset({'Attempts', 'Retry At'})

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--state', choices=('adding', 'waiting', 'waiting_for_space',
                                'refused'),
            help='List only images in this state')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        return formats.table(_PENDING, self.client.pending_images(
            parsed_args.host, **commands.query(parsed_args, 'state')))


class ListBootSets(commands.HostCommand, commands.Lister):
    """List boot sets that a host has or that are planned for it

    A boot set has the chunks that boots read of an image, on a host without
    the image. Without it each boot would wait for so many seconds, for bytes
    of a host of the site or over the WAN.
    """

    wide = frozenset({'Content', 'Held', 'Wanted', 'Boots Per Day',
                      'Wait Seconds', 'From Peer', 'Message'})

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--state', choices=('waiting', 'fetching', 'ready', 'used',
                                'failed'),
            help='List only sets in this state')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        return formats.table(_BOOT_SETS, self.client.boot_sets(
            parsed_args.host, **commands.query(parsed_args, 'state')))


class DeleteHost(commands.Command):
    """Remove hosts that were retired

    A host that is alive is refused: its next report would register it again.
    Stop its agent first, and wait until the host is listed as not alive.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('hosts', metavar='<host>', nargs='+',
                            help='Name of the host')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Call the service."""
        for name in parsed_args.hosts:
            self.client.delete_host(name)
