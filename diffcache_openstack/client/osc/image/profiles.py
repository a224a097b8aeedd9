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
"""``openstack image profile``."""

import argparse
import json
import typing

from osc_lib import exceptions as osc_exceptions

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import profile_files

# Of a file of a profile; one with the most rows has a quarter.
_LONGEST_FILE = 4 << 20
_LISTED: list[formats.Column] = [
    ('ID', 'id', None), ('Image', 'image_id', None),
    ('Label', 'servers_label', None), ('Project', 'project_id', None),
    ('Instances', 'instances', None), ('Chunks', 'chunks', None),
    ('Carried From', 'carried_from', None),
    ('Updated At', 'updated_at', cells.Time)]
_SHOWN: list[formats.Column] = [
    *_LISTED, ('Bytes', 'bytes', cells.Size),
    ('Last Read s', 'last_read', cells.Rounded),
    ('Generation', 'generation', None),
    ('Created At', 'created_at', cells.Time)]


class _ProfileCommand(commands.Command):
    """A command about one profile."""

    arguments: cli.Arguments = (
        cli.Argument('profile', metavar='<profile>', help='Profile (ID)'),)


class ListProfiles(commands.Lister):
    """List profiles: what servers read of images as they boot lazily

    A profile without a project is one of all projects. One that was carried
    from the profile of a similar image names that image, until enough servers
    have read this one.
    """

    examples = ('--image debian-12',)
    wide = frozenset({'Project', 'Instances', 'Chunks', 'Carried From',
                      'Updated At'})

    arguments = (
        cli.Argument('--image', metavar='<image>', dest='image_id',
                     help='List only profiles of this image (name or ID)'),
        cli.Argument('--label', metavar='<label>',
                     help='List only profiles with this label, such as the'
                          ' name of a flavor'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        self.name_images(parsed_args, 'image_id')
        return formats.table(_LISTED, self.client.profiles(
            **commands.query(parsed_args, 'image_id', 'label')))


class ShowProfile(_ProfileCommand, commands.ShowOne):
    """Show a profile of an image

    --graph draws when servers read which part of the image.
    """

    examples = ('3f2a --graph reads.svg',)
    arguments = (
        commands.graph('the profile'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        profile = self.client.get_profile(parsed_args.profile)
        if parsed_args.graph:
            _draw(profile, parsed_args.graph)
        return _show(profile)


class DeleteProfiles(commands.Command):
    """Delete profiles; they are learned anew"""

    examples = ('3f2a',)
    arguments = (
        cli.Argument('profiles', metavar='<profile>', nargs='+',
                     help='Profiles (IDs)'),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        for profile_id in parsed_args.profiles:
            self.client.delete_profile(profile_id)


class ExportProfile(_ProfileCommand):
    """Export a profile to a file

    The file can be imported for another image or cloud, and "diffcache lazy
    serve --profile" takes it.
    """

    examples = ('3f2a boots.json',)
    arguments = (
        cli.Argument('file', metavar='<file>', help='File to write, as JSON'),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Call the service.

        :raises CommandError: the file cannot be written
        """
        profile = self.client.get_profile(parsed_args.profile)
        with commands.writing(parsed_args.file), files.replacing(
                parsed_args.file, durable=False) as part:
            part.write_bytes(json.dumps(profile_files.document(
                profile.chunk, profile.rows)).encode())


class ImportProfile(commands.ImageCommand, commands.ShowOne):
    """Import a profile from a file, as export writes it

    Lazy boots of the image start from it. It counts for at most as much as
    what a host reports, and replaces what was imported before.
    """

    examples = ('debian-12 boots.json --label first-boot',)
    arguments = (
        cli.Argument('file', metavar='<file>', help='File to read'),
        cli.Argument('--label', metavar='<label>', default='',
                     help='Label of the servers that it is for, such as the'
                          ' name of a flavor (default: none)'))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        document = _read(parsed_args.file)
        return _show(self.client.import_profile(
            image_id=self.known_image_id(parsed_args.image),
            label=parsed_args.label, chunk=document['chunk'],
            rows=document['profile']))


def _show(profile: typing.Any) -> tuple:
    return formats.fields(_SHOWN, {
        **profile.to_dict(computed=False),
        'bytes': profile.chunks * profile.chunk,
        'last_read': max((mean_us for _chunk, _count, mean_us
                          in profile.rows), default=0.0) / 1e6})


def _read(path: str) -> dict[str, typing.Any]:
    """Return the profile of a file; the service checks what it says.

    :raises CommandError: it cannot be read, or has none
    """
    try:
        with open(path, 'rb') as file:
            document = json.loads(file.read(_LONGEST_FILE))
    except (OSError, ValueError) as error:
        reason = getattr(error, 'strerror', None) or error
        raise osc_exceptions.CommandError(
            f'Could not read a profile from {path}: {reason}.') from error
    try:
        profile_files.check_format(path, document)
    except exceptions.InvalidInput as error:
        raise osc_exceptions.CommandError(f'{error}.') from error
    if not isinstance(document.get('profile'), list) \
            or document.get('chunk') != profile_files.CHUNK:
        raise osc_exceptions.CommandError(
            f'{path} is no profile with chunks of {profile_files.CHUNK} bytes;'
            f' write one with "openstack image profile export".')
    return document


def _draw(profile: typing.Any, path: str) -> None:
    profile_graphs = commands.load_graphs('image.profile_graphs')
    with commands.writing(path):
        profile_graphs.draw(profile, path)
