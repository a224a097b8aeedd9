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
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli

_ID_DIGITS = 64
_LISTED: list[formats.Column] = [
    ('Name', 'name', None), ('Site', 'site', None), ('Role', 'role', None),
    ('Alive', 'is_alive', None), ('Objects', 'held.objects', None),
    ('Held', 'held.bytes', cells.Size),
    ('Capacity', 'capacity', cells.Size),
    ('Plan', 'plan', formats.FillShare)]
_SHOWN: list[formats.Column] = [
    *_LISTED[:-1], ('Plan', 'plan', formats.Fill),
    ('Plan Generation', 'plan_generation', None),
    ('Seen At', 'seen_at', cells.Time),
    ('Links', 'link_speeds', formats.Links),
    ('Measured', 'measured', formats.Links),
    ('Fills', 'fill', formats.FillLimits),
    ('Repositories', 'repositories', formats.Standings),
    ('Clients', 'clients', formats.Standings)]
_OBJECTS: list[formats.Column] = [
    ('ID', 'id', cells.Hash), ('Kind', 'kind', None),
    ('Size', 'bytes', cells.Size), ('Images', 'images', cells.Names)]
_HOLDINGS: list[formats.Column] = [
    ('Host', 'host', None), ('ID', 'object_id', cells.Hash), *_OBJECTS[1:]]
_PENDING: list[formats.Column] = [
    ('Image', 'image_id', None), ('State', 'state', None),
    ('Attempts', 'attempts', None), ('Retry At', 'retry_at', cells.Time),
    ('Reason', 'error', cells.Text)]
_BOOT_SETS: list[formats.Column] = [
    ('Image', 'image_id', None), ('Content', 'content_id', cells.Hash),
    ('State', 'state', None), ('Size', 'bytes', cells.Size),
    ('Held', 'held_bytes', cells.Size), ('Wanted', 'is_wanted', None),
    ('Pinned', 'is_pinned', None), ('Boots Per Day', 'requests', None),
    ('Wait Seconds', 'wait_seconds', None),
    ('From Peer', 'is_from_peer', None),
    ('Saved Seconds Per Day', 'saved_seconds', None),
    ('Message', 'message', cells.Text)]


class ListHosts(commands.Lister):
    """List hosts with a cache and how full they are"""

    examples = ('--site edge-1 --alive',)
    wide = frozenset({'Objects'})

    arguments = (
        *commands.filters('hosts', site='of this site'),
        cli.Argument('--role', choices=('compute', 'repository'),
                     help='List only hosts with this role'),
        cli.OneOf(cli.Argument('--alive', action='store_true', default=None,
                               help='List only hosts that are alive'),
                  cli.Argument('--dead', dest='alive', action='store_false',
                               help='List only hosts that are not alive')),
        cli.Argument('--holds', metavar='<hash>',
                     help='List only hosts that hold this object (ID or its'
                          ' first digits)'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
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
        known = {image.content_id for image in self.client.images()}
        known |= {patch.id for patch in self.client.patches()}
        found = sorted(each for each in known
                       if each and each.startswith(digits))
        if len(found) != 1:
            raise exceptions.CommandError(
                f'{len(found)} objects have an ID that begins with'
                f' "{digits}"; see "openstack image cache patch list" and'
                f' "openstack image cache image show".')
        return found[0]


class ShowHost(commands.HostCommand, commands.ShowOne):
    """Show a host with a cache"""

    examples = ('edge-1-host-2',)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.fields(_SHOWN,
                              self.client.get_host(parsed_args.host))


class ListHostObjects(commands.Lister):
    """List the objects that a host holds, or the hosts of a site or plan"""

    examples = ('edge-1-host-2 --kind patches',)
    arguments = (
        cli.OneOf(cli.Argument('host', metavar='<host>', nargs='?',
                               help='Name of the host'),
                  cli.Argument('--site', metavar='<site>',
                               help='List objects of all hosts of this site'),
                  cli.Argument('--not-in-plan', metavar='<plan>',
                               help='List images and patches that hosts hold'
                                    ' although this plan (ID) does not place'
                                    ' them there'),
                  required=True),
        cli.Argument('--kind',
                     choices=('images', 'patches', 'manifests', 'recipes'),
                     help='List only objects of this kind'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        if parsed_args.host is None:
            return formats.table(_HOLDINGS, self.client.holdings(
                **commands.query(parsed_args, 'site', 'not_in_plan',
                                 'kind')))
        return formats.table(_OBJECTS, self.client.host_objects(
            parsed_args.host, **commands.query(parsed_args, 'kind')))


class ListPendingImages(commands.HostCommand, commands.Lister):
    """List images of Glance that a repository could not add yet, and why

    Images in state waiting_for_space are retried at the time in Retry At: free
    space in the state directory of the repository's agent.
    """

    examples = ('edge-1-host-2',)
    wide = frozenset({'Attempts', 'Retry At'})

    arguments = (
        commands.state('images', 'adding', 'waiting', 'waiting_for_space',
                       'refused'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.table(_PENDING, self.client.pending_images(
            parsed_args.host, **commands.query(parsed_args, 'state')))


class ListBootSets(commands.HostCommand, commands.Lister):
    """List boot sets that a host has or that are planned for it

    A boot set has the chunks that boots read of an image, on a host without
    the image. Wait Seconds is how long each boot would wait without it, for
    bytes from a host of the site or over the WAN.
    """

    examples = ('edge-1-host-2 --state ready',)
    wide = frozenset({'Content', 'Held', 'Wanted', 'Boots Per Day',
                      'Wait Seconds', 'From Peer', 'Message'})

    arguments = (
        commands.state('sets', 'waiting', 'fetching', 'ready', 'used',
                       'failed'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.table(_BOOT_SETS, self.client.boot_sets(
            parsed_args.host, **commands.query(parsed_args, 'state')))


class DeleteHost(commands.Command):
    """Remove hosts that were retired

    A host that is alive is refused: its next report would register it again.
    Stop its agent first, and wait until the host is listed as not alive.
    """

    examples = ('edge-1-host-2',)
    arguments = (
        cli.Argument('hosts', metavar='<host>', nargs='+',
                     help='Name of the host'),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        for name in parsed_args.hosts:
            self.client.delete_host(name)
