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
"""``openstack image cache object`` and ``image cache patch``."""

import argparse

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats

_LISTED: list[formats.Column] = [
    ('ID', 'id', None), ('Name', 'name', None), ('Family', 'family', None),
    ('Size', 'size', formats.Size), ('Data', 'data_size', formats.Size),
    ('Format', 'disk_format', None), ('Hosts', 'host_count', None),
    ('Status', 'status', None)]
_SHOWN: list[formats.Column] = [
    *_LISTED, ('Compressed', 'compressed_size', formats.Size),
    ('Members', 'members', None),
    ('Content', 'content_id', None), ('File', 'file_size', formats.Size),
    ('Owner', 'owner', None), ('Visibility', 'visibility', None),
    ('Created At', 'created_at', formats.Time)]
_PATCHES: list[formats.Column] = [
    ('ID', 'id', formats.Hash), ('Base', 'base', formats.Hash),
    ('Target', 'target', formats.Hash), ('Size', 'size', formats.Size),
    ('Made In (s)', 'create_seconds', formats.Rounded),
    ('Applied In (s)', 'apply_seconds', formats.Rounded),
    ('Hosts', 'host_count', None)]
_PAIRS: list[formats.Column] = [
    ('Base', 'base', formats.Hash), ('Target', 'target', formats.Hash),
    ('State', 'state', None), ('Size', 'size', formats.Size),
    ('Repository', 'host', None), ('Reason', 'reason', formats.Text),
    ('Attempts', 'attempts', None), ('Retry At', 'retry_at', formats.Time),
    ('Terms', 'terms', None)]
_LOCATIONS: list[formats.Column] = [
    ('Host', 'host', None), ('Site', 'site', None),
    ('Size', 'bytes', formats.Size), ('Cached', 'is_held', None),
    ("In Nova's Cache", 'is_borrowed', None)]

_LOOKUPS: list[formats.Column] = [
    ('Host', 'host', None), ('Site', 'site', None), ('Way', 'way', None),
    ('Seconds', 'seconds', formats.Rounded),
    ('WAN', 'wan_bytes', formats.Size),
    ('LAN', 'lan_bytes', formats.Size),
    ('Lazy Boot Waits (s)', 'lazy_boot.seconds', formats.Rounded),
    ('Detail', 'detail', formats.Text)]


class ListObjects(commands.Lister):
    """List the templates of the catalogue"""

    wide = frozenset({'Data', 'Family', 'Format'})

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        commands.add_filters(parser, 'templates', name='with this name',
                             family='whose family is this image',
                             host='that this host holds')
        parser.add_argument('--status',
                            choices=('active', 'deactivated', 'deleted'),
                            help='List only templates with this status')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        self.name_images(parsed_args, 'family')
        return formats.table(_LISTED, self.client.templates(**commands.query(
            parsed_args, 'name', 'family', 'host', 'status')))


class ShowObject(commands.ImageCommand, commands.ShowOne):
    """Show a template of the catalogue"""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        return formats.fields(_SHOWN, self.client.get_template(
            self.known_image_id(parsed_args.image)))


class ListLocations(commands.ImageCommand, commands.Lister):
    """List the hosts that have a whole image"""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        return formats.table(_LOCATIONS, self.client.template_locations(
            self.known_image_id(parsed_args.image)))


class ListLookups(commands.ImageCommand, commands.Lister):
    """List the cheapest way to get an image of each host that is alive"""

    wide = frozenset({'Detail'})

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        commands.add_filters(parser, 'hosts', site='of this site')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        found = self.client.lookups(
            self.known_image_id(parsed_args.image),
            **commands.query(parsed_args, 'site'))
        return formats.table(_LOOKUPS, [
            {'host': each.host, 'site': each.site,
             'lazy_boot': each.lazy_boot, **each.way} for each in found])


class ListPatches(commands.Lister):
    """List patches between images"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        for option, text in (('base', 'from'), ('target', 'to')):
            parser.add_argument(
                f'--{option}', metavar='<image>', action='append',
                help=f'List only patches {text} this image (name or ID; repeat'
                     f' for patches {text} any of several)')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        for option in ('base', 'target'):
            names = getattr(parsed_args, option)
            setattr(parsed_args, option, names and [
                self.known_image_id(name) for name in names])
        return formats.table(_PATCHES, self.client.patches(
            **commands.query(parsed_args, 'base', 'target')))


class ListPairs(commands.Lister):
    """List pairs of images that patches are considered for

    A pair is found by the likeness of two images, wanted or declined by the
    estimated size of the patch, and made once a repository has the patch.
    """

    wide = frozenset({'Attempts', 'Repository', 'Retry At', 'Terms'})

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        commands.add_filters(parser, 'pairs', base='with this base',
                             target='with this target')
        parser.add_argument('--state',
                            choices=('found', 'wanted', 'declined', 'made'),
                            help='List only pairs in this state')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        self.name_images(parsed_args, 'base', 'target')
        return formats.table(_PAIRS, self.client.patch_pairs(
            **commands.query(parsed_args, 'base', 'target', 'state')))
