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
"""``openstack image cache image`` and ``image cache patch``."""

import argparse

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli

_LISTED: list[formats.Column] = [
    ('ID', 'id', None), ('Name', 'name', None), ('Family', 'family', None),
    ('Size', 'size', cells.Size), ('Data', 'data_size', cells.Size),
    ('Format', 'disk_format', None), ('Hosts', 'host_count', None),
    ('Status', 'status', None)]
_SHOWN: list[formats.Column] = [
    *_LISTED, ('Compressed', 'compressed_size', cells.Size),
    ('Members', 'members', None),
    ('Content', 'content_id', None), ('File', 'file_size', cells.Size),
    ('Owner', 'owner', None), ('Visibility', 'visibility', None),
    ('Created At', 'created_at', cells.Time)]
_PATCHES: list[formats.Column] = [
    ('ID', 'id', cells.Hash), ('Base', 'base', cells.Hash),
    ('Target', 'target', cells.Hash), ('Size', 'size', cells.Size),
    ('Made In (s)', 'create_seconds', cells.Rounded),
    ('Applied In (s)', 'apply_seconds', cells.Rounded),
    ('Hosts', 'host_count', None)]
_PAIRS: list[formats.Column] = [
    ('Base', 'base', cells.Hash), ('Target', 'target', cells.Hash),
    ('State', 'state', None), ('Size', 'size', cells.Size),
    ('Repository', 'host', None), ('Reason', 'reason', cells.Text),
    ('Attempts', 'attempts', None), ('Retry At', 'retry_at', cells.Time),
    ('Terms', 'terms', None)]
_LOCATIONS: list[formats.Column] = [
    ('Host', 'host', None), ('Site', 'site', None),
    ('Size', 'bytes', cells.Size), ('Cached', 'is_held', None),
    ("In Nova's Cache", 'is_borrowed', None)]

_LOOKUPS: list[formats.Column] = [
    ('Host', 'host', None), ('Site', 'site', None), ('Way', 'way', None),
    ('Seconds', 'seconds', cells.Rounded),
    ('WAN', 'wan_bytes', cells.Size),
    ('LAN', 'lan_bytes', cells.Size),
    ('Lazy Boot Waits (s)', 'lazy_boot.seconds', cells.Rounded),
    ('Detail', 'detail', cells.Text)]


class ListImages(commands.Lister):
    """List the images of the catalogue"""

    examples = ('--host edge-1-host-2', '--family debian-12')
    wide = frozenset({'Data', 'Family', 'Format'})

    arguments = (
        *commands.filters('images', name='with this name',
                          family='whose family is this image',
                          host='that this host holds'),
        cli.Argument('--status', choices=('active', 'deactivated', 'deleted'),
                     help='List only images with this status'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        self.name_images(parsed_args, 'family')
        return formats.table(_LISTED, self.client.images(**commands.query(
            parsed_args, 'name', 'family', 'host', 'status')))


class ShowImage(commands.ImageCommand, commands.ShowOne):
    """Show an image of the catalogue"""

    examples = ('debian-12',)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.fields(_SHOWN, self.client.get_image(
            self.known_image_id(parsed_args.image)))


class ListLocations(commands.ImageCommand, commands.Lister):
    """List the hosts that have a whole image"""

    examples = ('debian-12',)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.table(_LOCATIONS, self.client.image_locations(
            self.known_image_id(parsed_args.image)))


class ListLookups(commands.ImageCommand, commands.Lister):
    """List the cheapest way to get an image of each host that is alive"""

    examples = ('debian-12 --site edge-1',)
    wide = frozenset({'Detail'})

    arguments = (
        *commands.filters('hosts', site='of this site'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        found = self.client.lookups(
            self.known_image_id(parsed_args.image),
            **commands.query(parsed_args, 'site'))
        return formats.table(_LOOKUPS, [
            {'host': each.host, 'site': each.site,
             'lazy_boot': each.lazy_boot, **each.way} for each in found])


class ListPatches(commands.Lister):
    """List patches between images"""

    examples = ('--target debian-12',)
    arguments = (
        *(cli.Argument(f'--{option}', metavar='<image>', action='append',
                       help=f'List only patches {text} this image (name or ID;'
                            f' repeat for patches {text} any of several)')
          for option, text in (('base', 'from'), ('target', 'to'))),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        for option in ('base', 'target'):
            names = getattr(parsed_args, option)
            setattr(parsed_args, option, names and [
                self.known_image_id(name) for name in names])
        return formats.table(_PATCHES, self.client.patches(
            **commands.query(parsed_args, 'base', 'target')))


class ListPairs(commands.Lister):
    """List pairs of images that patches are considered for

    States: found (the images are similar), wanted or declined (by the
    estimated size of the patch), made (a repository has the patch).
    """

    examples = ('--state declined',)
    wide = frozenset({'Attempts', 'Repository', 'Retry At', 'Terms'})

    arguments = (
        *commands.filters('pairs', base='with this base',
                          target='with this target'),
        commands.state('pairs', 'found', 'wanted', 'declined', 'made'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        self.name_images(parsed_args, 'base', 'target')
        return formats.table(_PAIRS, self.client.patch_pairs(
            **commands.query(parsed_args, 'base', 'target', 'state')))
