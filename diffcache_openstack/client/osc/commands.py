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
"""Base classes and options shared by the commands."""

import argparse
import collections.abc
import contextlib
import importlib
import pathlib
import sys
import types
import typing

from keystoneauth1 import exceptions as ksa_exceptions
from openstack import exceptions
from osc_lib.command import command
from osc_lib import exceptions as osc_exceptions
from oslo_utils import uuidutils

from diffcache_openstack.client import proxy
from diffcache_openstack.common.commands import cli


@contextlib.contextmanager
def errors_in_words() -> typing.Iterator[None]:
    """Turn errors of the libraries into messages for a user.

    :raises CommandError: instead of the library's errors
    """
    try:
        yield
    except exceptions.HttpException as error:
        raise osc_exceptions.CommandError(http_words(error)) from error
    except exceptions.SDKException as error:
        raise osc_exceptions.CommandError(str(error)) from error
    except ksa_exceptions.ConnectFailure as error:
        # The library's text lists every attempt and layer.
        place = str(error).removeprefix('Unable to establish connection to ')
        raise osc_exceptions.CommandError(
            f'{place.partition(": ")[0]} does not answer; check that'
            f' diffcache-api runs there, and try again.') from error
    except KeyboardInterrupt as error:
        if error.args:
            # Names the resource waited for, whose ID was not printed yet.
            sys.stderr.write(f'{error}\n')
        raise
    except ksa_exceptions.EndpointNotFound as error:
        raise osc_exceptions.CommandError(
            f'{error}; create a service of type "diffcache" with an endpoint'
            f' in Keystone\'s catalogue, or set diffcache_endpoint_override'
            f' in clouds.yaml.') from error


def http_words(error: exceptions.HttpException) -> str:
    """Return what a service says of an error, in words for a user."""
    if error.status_code == 401:
        return ('The service does not accept the token (401); log in again,'
                ' and check the OS_ variables or --os-cloud.')
    # What the library says itself, where a service's words are in the details.
    said_nothing = f'{type(error).__name__}: {error.status_code}'
    if error.details is None or error.message not in ('', said_nothing):
        return error.message
    return error.details


class Command(cli.Command, command.Command):
    """A command that calls the service."""

    app: typing.Any

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return a parser whose help has the description in sentences."""
        parser = super().get_parser(prog_name)
        # The help joins lines; the first, in lists of commands, has no end.
        first, empty, more = self.get_description().partition('\n\n')
        if more:
            parser.description = f'{first}.{empty}{more}'
        return parser

    @property
    def client(self) -> proxy.Proxy:
        """The client of the service."""
        return self.app.client_manager.diffcache

    @property
    def connection(self) -> typing.Any:
        """The connection to the cloud."""
        return self.app.client_manager.sdk_connection

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command; turn errors of the libraries into messages."""
        with errors_in_words():
            return super().run(parsed_args)

    def image_id(self, name: str) -> str:
        """Return the ID of an image by its name or ID.

        :raises NotFoundException: there is none
        """
        return find_image(self.connection.image, name).id

    def known_image_id(self, name: str) -> str:
        """Return the ID of an image that may be deleted in Glance.

        :raises NotFoundException: there is none by that name
        """
        if uuidutils.is_uuid_like(name):
            return name
        return self.image_id(name)

    def project_id(self, name: str) -> str:
        """Return the ID of a project by its name or ID.

        A user without the right to list projects has to give the ID.

        :raises NotFoundException: there is none
        """
        with contextlib.suppress(exceptions.ForbiddenException):
            return self.connection.identity.find_project(
                name, ignore_missing=False).id
        return name

    def server_id(self, name: str, may_be_gone: bool = False) -> str:
        """Return the ID of a server by its name or ID.

        :param may_be_gone: take an unknown name for the ID of a deleted server
        :raises NotFoundException: there is none
        """
        found = self.connection.compute.find_server(
            name, ignore_missing=may_be_gone)
        return name if found is None else found.id

    def volume_id(self, name: str) -> str:
        """Return the ID of a volume by its name or ID.

        :raises NotFoundException: there is none by that name
        """
        if uuidutils.is_uuid_like(name):
            return name
        return self.connection.block_storage.find_volume(
            name, ignore_missing=False).id

    def name_images(self, parsed_args: argparse.Namespace, *options: str
                    ) -> None:
        """Replace names of images with IDs in the given options.

        :raises NotFoundException: there is no such image
        """
        for option in options:
            name = getattr(parsed_args, option)
            if name:
                setattr(parsed_args, option, self.known_image_id(name))


def find_image(images: typing.Any, name: str) -> typing.Any:
    """Find an image in Glance by its name or ID.

    :param images: the SDK's proxy of Glance
    :raises NotFoundException: there is none
    """
    found = images.find_image(name, ignore_missing=True) if name else None
    if found is None:
        raise exceptions.NotFoundException(
            f'No image has the name or ID "{name}"; see "openstack image'
            f' list".')
    return found


def only_site(client: proxy.Proxy) -> str:
    """Return the only site that has compute hosts, and print its name.

    The repository's site need not have any.

    :raises CommandError: there are none or several
    """
    names = sorted({host.site for host in client.hosts(role='compute')})
    if not names:
        raise osc_exceptions.CommandError(
            'No compute host has reported yet; see "openstack image cache'
            ' host list".')
    if len(names) > 1:
        raise osc_exceptions.CommandError(
            f'There are {len(names)} sites; name one of them:'
            f' {", ".join(names)}.')
    sys.stderr.write(f'Site: {names[0]}\n')
    return names[0]


class Lister(Command, command.Lister):
    """A command that prints a table.

    ``wide`` has the headings of columns that a table leaves out unless it is
    long, so that it fits into 100 columns of a terminal. Formats for programs
    have all columns.
    """

    wide: typing.ClassVar[frozenset[str]] = frozenset()

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        if self.wide:
            parser.add_argument(
                '--long', action='store_true',
                help=f'Show {", ".join(sorted(self.wide))} in the table, too')
        return parser

    def produce_output(self, parsed_args: argparse.Namespace,
                       column_names: collections.abc.Sequence[str],
                       data: collections.abc.Iterable[
                           collections.abc.Sequence]) -> int:
        """Print the table, without columns that make it too wide."""
        is_narrow = (self.wide and parsed_args.formatter == 'table'
                     and not parsed_args.long and not parsed_args.columns)
        if is_narrow:
            kept = [index for index, name in enumerate(column_names)
                    if name not in self.wide]
            column_names = [column_names[index] for index in kept]
            data = [[row[index] for index in kept] for row in data]
        return super().produce_output(parsed_args, column_names, data)


class ShowOne(Command, command.ShowOne):
    """A command that prints the fields of one resource."""


class HostCommand(Command):
    """A command about one host."""

    arguments: cli.Arguments = (
        cli.Argument('host', metavar='<host>', help='Name of the host'),)


class ImageCommand(Command):
    """A command about one image."""

    arguments: cli.Arguments = (
        cli.Argument('image', metavar='<image>', help='Image (name or ID)'),)


class ServerCommand(Command):
    """A command about one server."""

    arguments: cli.Arguments = (
        cli.Argument('server', metavar='<server>',
                     help='Server (name or ID)'),)


class SiteCommand(Command):
    """A command about one site; it need not be named if it is the only one."""

    arguments: cli.Arguments = (
        cli.Argument('site', metavar='<site>', nargs='?',
                     help='Name of the site (default: the only site with'
                          ' compute hosts)'),)

    def site_name(self, name: str | None) -> str:
        """Return the name of a site, by default of the only one.

        :raises CommandError: no name is given and there is not just one site
        """
        return name or only_site(self.client)


def filters(what: str, **texts: str) -> list[cli.Argument]:
    """Return options that filter a listing.

    :param what: kind of the listed resources, for the help
    :param texts: by option, which of them it selects, for the help
    """
    found = []
    for name, text in texts.items():
        is_image = name in ('image', 'family', 'base', 'target')
        found.append(cli.Argument(
            f'--{name}', metavar='<image>' if is_image else f'<{name}>',
            help=f'List only {what} {text}' + is_image * ' (name or ID)'))
    return found


def state(what: str, *states: str) -> cli.Argument:
    """Return the option that lists only what is in one state."""
    return cli.Argument('--state', choices=states,
                        help=f'List only {what} in this state')


def project(what: str) -> cli.Argument:
    """Return the option that lists only what belongs to one project."""
    return cli.Argument('--project', metavar='<project>', dest='project_id',
                        help=f'List only {what} of this project (name or ID)')


def limit(what: str) -> cli.Argument:
    """Return the option that limits a listing without pages."""
    return cli.Argument('--limit', type=cli.whole(1), metavar='<n>',
                        help=f'List at most this many {what}')


def wait(until: str, timeout: float = 3600.0) -> list[cli.Argument]:
    """Return the options to wait for what a command has started."""
    return [cli.Argument('--wait', action='store_true',
                         help=f'Wait until {until}'), time_limit(timeout)]


def time_limit(timeout: float = 3600.0) -> cli.Argument:
    """Return the option that limits waiting."""
    return cli.Argument('--timeout', type=cli.seconds(0), default=timeout,
                        metavar='<seconds>',
                        help='Maximum seconds to wait (default:'
                             f' {timeout:.0f})')


def graph(what: str) -> cli.Argument:
    """Return the option to draw what a command shows."""
    return cli.Argument('--graph', type=_picture, metavar='<file>',
                        help=f'Draw {what} into this file, too (PNG, SVG or'
                             f' PDF by its suffix)')


def _picture(text):
    if pathlib.Path(text).suffix.lower() not in ('.png', '.svg', '.pdf'):
        raise argparse.ArgumentTypeError(
            f'"{text}" does not end in .png, .svg or .pdf')
    return text


@contextlib.contextmanager
def writing(path: str) -> typing.Iterator[None]:
    """Turn an error of writing a file into a message.

    :raises CommandError: the file cannot be written
    """
    try:
        yield
    except OSError as error:
        raise osc_exceptions.CommandError(
            f'Could not write {path}: {error.strerror or error}; choose'
            f' another path.') from error


def load_graphs(module: str) -> types.ModuleType:
    """Import a module that draws: not before it has to, as that is slow.

    :param module: below ``diffcache_openstack.client.osc``
    :raises CommandError: matplotlib is not installed
    """
    try:
        return importlib.import_module(
            f'diffcache_openstack.client.osc.{module}')
    except ModuleNotFoundError as error:
        if error.name != 'matplotlib':
            raise
        raise osc_exceptions.CommandError(
            'Graphs need matplotlib, which is not installed: install it, or'
            ' diffcache-openstack-plugins[graphs].') from error


def unset(*settings: str) -> list[cli.Argument]:
    """Return the options of a command that removes settings."""
    return [cli.Argument(f'--{name}', action='store_true', default=None,
                         help=f'Remove what was set by --{name}')
            for name in settings]


PAGING = (
    cli.Argument('--limit', type=cli.whole(1), metavar='<n>',
                 help='List at most this many entries (default: all)'),
    cli.Argument('--marker', metavar='<id>',
                 help='List entries after this ID'))


def given(parsed_args: argparse.Namespace, *names: str
          ) -> dict[str, typing.Any]:
    """Return the options that are given."""
    return {name: value for name in names
            if (value := getattr(parsed_args, name)) is not None}


def changes(parsed_args: argparse.Namespace, *names: str
            ) -> dict[str, typing.Any]:
    """Return the options of a command that changes something.

    :raises CommandError: none is given
    """
    found = given(parsed_args, *names)
    if not found:
        raise osc_exceptions.CommandError(
            'Nothing to change; see --help for the options.')
    return found


def query(parsed_args: argparse.Namespace, *names: str
          ) -> dict[str, typing.Any]:
    """Return the given filters and paging options for the API."""
    found = given(parsed_args, *names)
    if parsed_args.limit is not None:
        found.update(limit=parsed_args.limit, paginated=False)
    return found | given(parsed_args, 'marker')
